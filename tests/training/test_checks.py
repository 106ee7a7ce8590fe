"""Whether a training fits into the memory that is there, and the batch size that `auto` chooses."""

from collections.abc import Callable
from pathlib import Path

import pytest
from xtts_pipeline.cli.training_memory import Available, check_memory, choose_batch_size, memory_estimate

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cli import training_memory
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.errors import CacheError, ConfigError

WriteCache = Callable[..., Manifest]


@pytest.fixture
def manifest(tmp_path: Path, write_cache: WriteCache) -> Manifest:
    return write_cache(tmp_path / "cache", train=60, val=0)


@pytest.fixture
def bucketed(tmp_path: Path, write_cache: WriteCache) -> Manifest:
    return write_cache(tmp_path / "12-48", train=60, buckets=((9, 12), (16, 24)))


def settings(batch_size: int | str, **training: object) -> Config:
    return Config(training=TrainingConfig(batch_size=batch_size, **training))


def room_for(manifest: Manifest, config: Config, rows: int) -> Available:
    """Return just the memory that so many rows at once need."""
    return Available(memory_estimate(manifest, config).total_bytes(rows), "memory")


def room_to_spare(manifest: Manifest, config: Config, rows: int) -> Available:
    """Return the memory of which `auto` would use what so many rows need."""
    room = room_for(manifest, config, rows)
    return Available(round(room.bytes / training_memory.AUTO_SHARE) + 100, room.where)


def test_what_fits_is_said_and_what_does_not_is_an_error_with_the_batch_that_would(manifest: Manifest) -> None:
    config = settings(8)
    room = room_for(manifest, config, 8)
    needed, text = check_memory(manifest, config, room)
    assert needed == room.bytes
    assert text.startswith(f"about {needed / 1e9:.1f} GB are needed (")
    assert text.endswith(f"{needed / 1e9:.1f} GB of memory are available")
    with pytest.raises(
        ConfigError,
        match=r"training.batch_size=12: about .* of memory are available; set training.batch_size=8 or auto",
    ):
        check_memory(
            manifest, settings(12), Available(memory_estimate(manifest, settings(12)).total_bytes(8), "memory")
        )


def test_parts_of_a_batch_are_what_must_fit(manifest: Manifest) -> None:
    config = settings(12, accumulation_steps=3)
    check_memory(manifest, config, room_for(manifest, config, 4))
    with pytest.raises(
        ConfigError, match=r"set training.batch_size=9 or auto, or keep it and set training.accumulation_steps=4 "
    ):
        check_memory(manifest, config, room_for(manifest, config, 3))


def test_the_check_can_be_left_out(manifest: Manifest) -> None:
    with pytest.raises(
        ConfigError,
        match=r"choose a smaller model, or preprocess with lower limits \(training.check_memory=false goes on\)",
    ):
        check_memory(manifest, settings(4), Available(1, "memory"))
    check_memory(manifest, settings(4, check_memory=False), Available(1, "memory"))


def test_a_gpu_that_cannot_be_asked_is_no_reason_to_stop_but_none_to_guess(manifest: Manifest) -> None:
    assert check_memory(manifest, settings(4), None)[1].endswith("; how much the GPU has cannot be asked")
    with pytest.raises(
        ConfigError,
        match=r"training.batch_size=auto: how much memory the GPU has cannot be asked; install nvidia-ml-py",
    ):
        choose_batch_size(manifest, settings("auto"), None)


@pytest.mark.parametrize(("rows", "chosen"), [(5, 5), (8, 8), (15, 8), (17, 16), (10_000, 56)])
def test_auto_is_the_largest_batch_that_fits_and_that_the_clips_fill(
    manifest: Manifest, rows: int, chosen: int
) -> None:
    found = choose_batch_size(manifest, settings("auto"), room_to_spare(manifest, settings("auto"), rows))
    assert found == settings(chosen)


def test_auto_fills_every_bucket_in_whole_parts(bucketed: Manifest) -> None:
    # 12 clips of the small bucket, which has twice the rows.
    assert choose_batch_size(bucketed, settings("auto"), Available(1 << 40, "memory")).training.batch_size == 6
    assert (
        choose_batch_size(
            bucketed, settings("auto", accumulation_steps=4), Available(1 << 40, "memory")
        ).training.batch_size
        == 4
    )


def test_auto_gives_each_of_several_devices_whole_rows(manifest: Manifest) -> None:
    room = room_to_spare(manifest, settings("auto"), 17)
    chosen = choose_batch_size(manifest, settings("auto"), room, devices=3).training.batch_size
    # One memory for all three: 5 rows each.
    assert chosen == 15
    halved = settings("auto", accumulation_steps=2)
    chosen = choose_batch_size(manifest, halved, room_to_spare(manifest, halved, 17), devices=3).training.batch_size
    assert chosen == 30


def test_auto_that_fits_nowhere_says_so(manifest: Manifest, tmp_path: Path, write_cache: WriteCache) -> None:
    with pytest.raises(
        ConfigError, match=r"training.batch_size=auto: one clip of 16 x 24 needs about .*; choose a smaller model"
    ):
        choose_batch_size(manifest, settings("auto"), Available(1 << 20, "memory"))
    few = write_cache(tmp_path / "few", train=24, buckets=((4, 4), (16, 24)))
    with pytest.raises(
        CacheError, match=r"a bucket has fewer clips than the smallest batch; preprocess with other data.buckets"
    ):
        choose_batch_size(few, settings("auto"), Available(1 << 40, "memory"))


def test_a_number_stays(manifest: Manifest) -> None:
    assert choose_batch_size(manifest, settings(7), None) == settings(7)


def test_records_that_are_kept_are_counted_and_so_is_the_buffer_that_shuffles(manifest: Manifest) -> None:
    kept, shuffled, both = (
        memory_estimate(manifest, Config(data=DataConfig(cache_records=is_kept, shuffle_records=records))).data_bytes
        for is_kept, records in ((True, 10), (False, 10), (False, 20))
    )
    record = 2 * 24 * manifest.audio.mel_bins + 4 * 16
    assert both - shuffled == 10 * record
    assert kept - shuffled == manifest.split_bytes("train") - 10 * record


def test_the_memory_of_the_machine_is_asked_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_memory, "has_gpu", lambda: False)
    monkeypatch.setattr(training_memory, "memory_limit_bytes", lambda: 5_000)
    assert training_memory.available_memory() == Available(5_000, "memory")
    monkeypatch.setattr(training_memory, "has_gpu", lambda: True)
    monkeypatch.setattr(training_memory, "free_memory_bytes", lambda: 8 << 30)
    assert training_memory.available_memory() == Available(
        (8 << 30) - training_memory.GPU_RESERVED_BYTES, "the GPU's memory"
    )
    monkeypatch.setattr(training_memory, "free_memory_bytes", lambda: None)
    assert training_memory.available_memory() is None
