"""One clip in a worker: rejections, and machine errors that end the run."""

import errno
import os
import re
from pathlib import Path

import pytest

from tests.cache.build.test_plan import make_corpus
from tests.cache.corpora import make_config, write_clip
from xtts_pipeline.cache.build import workers
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.build.workers import ExampleMaker, ShardTask
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import MACHINE_ERRORS, CacheError

# Workers are given the buckets that were chosen before.
ONE_SHAPE = "data.buckets=null"


@pytest.fixture
def task(tmp_path: Path) -> ShardTask:
    write_clip(tmp_path, "clip")
    return make_task(tmp_path, make_config(ONE_SHAPE))


def make_task(root: Path, config: Config) -> ShardTask:
    corpus = make_corpus(["clip"])
    index = index_corpora([Corpus(corpus.reading, root, corpus.utterances, ())], config)
    return ShardTask(root, root, ShardName("train", 0, 1), index.rows, index.roots, config, index.symbols)


def make(task: ShardTask) -> tuple[str | None, list[bytes]]:
    clip, payloads = ExampleMaker(task.roots, task.config, task.symbols).make(task.rows[0])
    return clip.reason, payloads


def test_a_clip_that_takes_all_memory_is_one_line_where_no_worker_is_left_to_retry_it(
    task: ShardTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(workers, "decode_wave", exhaust)
    message = r"^clip: the clip takes more memory than there is; free some, or leave it out"
    with pytest.raises(CacheError, match=message):
        make(task)


def test_a_sound_clip_becomes_a_record(task: ShardTask) -> None:
    reason, payloads = make(task)
    assert reason is None
    assert len(payloads) == 1


def test_a_file_too_large_for_any_clip_is_not_read(task: ShardTask) -> None:
    path = task.roots[0] / "wavs" / "clip.wav"
    os.truncate(path, 1 << 40)
    assert make(task) == ("audio_too_long", [])


@pytest.mark.parametrize("place", ["missing", "folder", "fifo"])
def test_an_irregular_file_is_not_opened(task: ShardTask, place: str) -> None:
    path = task.roots[0] / "wavs" / "clip.wav"
    path.unlink()
    if place == "folder":
        path.mkdir()
    elif place == "fifo":
        os.mkfifo(path)
    assert make(task) == ("audio_missing" if place == "missing" else "audio_unreadable", [])


def test_a_machine_error_is_not_a_rejection(task: ShardTask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def read_bytes(_path: Path) -> bytes:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "read_bytes", read_bytes)

    fail(errno.EACCES)
    assert make(task) == ("audio_unreadable", [])
    for number in MACHINE_ERRORS:
        fail(number)
        with pytest.raises(CacheError, match=re.escape(os.strerror(number))):
            make(task)


def test_a_text_is_checked_before_its_sound(tmp_path: Path) -> None:
    assert make(make_task(tmp_path, make_config(ONE_SHAPE, "limits.max_text_length=5"))) == ("text_too_long", [])
