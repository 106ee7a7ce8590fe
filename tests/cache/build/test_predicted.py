"""A cache of predicted mels: made from another cache, with a function in place of a model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cache.corpora import build, cache_bytes, make_config, records_of, write_corpus, write_records
from xtts_pipeline.cache.build.predicted import MelComparison, write_predicted_cache
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, MelOrigin, load_manifest
from xtts_pipeline.cache.format.schema import padded_wave, without_padding
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands.verify_cache import verify
from xtts_pipeline.errors import CacheError, CheckpointError, OutputError

CLIPS = 24
ORIGIN = MelOrigin("5e" * 32, 7, 4, 3.0)
CONFIG = make_config("cache.store_waves=true", "data.buckets=[[40, 24], [40, 80]]")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its cache with waves and buckets, side by side; tests work on copies."""
    root = tmp_path_factory.mktemp("pristine")
    build(write_corpus(root / "data", CLIPS), root / "cache", CONFIG)
    return root


def quieter(_bucket: int, records: Sequence[dict[str, Any]]) -> list[np.ndarray]:
    """Predict each mel a quarter below that of the recording."""
    return [without_padding(record).mel.astype(np.float32) - 0.25 for record in records]


def predict(
    root: Path, predictor: Callable[..., Sequence[np.ndarray]] = quieter, progress: Callable[[int], object] = id
) -> dict[str, MelComparison]:
    source = root / "cache"
    return write_predicted_cache(source, load_manifest(source), root / "predicted", ORIGIN, [3, 5], predictor, progress)


def mels_of(cache: Path) -> dict[str, np.ndarray]:
    return {record["id"]: without_padding(record).mel for _, record in records_of(cache)}


def test_a_predicted_cache_has_other_mels_and_is_the_same_elsewhere(root: Path) -> None:
    done: list[int] = []

    comparisons = predict(root, progress=done.append)

    source, predicted = load_manifest(root / "cache"), load_manifest(root / "predicted")
    recorded = mels_of(root / "cache")
    assert mels_of(root / "predicted").keys() == recorded.keys()
    for id, mel in mels_of(root / "predicted").items():
        np.testing.assert_allclose(mel, recorded[id] - np.float32(0.25), atol=0.005)
    assert predicted.mels_from == ORIGIN
    assert predicted.fingerprint != source.fingerprint
    assert (predicted.audio, predicted.waves, predicted.files) == (source.audio, source.waves, source.files)
    names = {*source.wave_files, *source.files}
    before, after = cache_bytes(root / "cache"), cache_bytes(root / "predicted")
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert sum(done) == sum(each.clips for each in comparisons.values()) == CLIPS
    assert sum(each.frames for each in comparisons.values()) == sum(map(len, recorded.values()))
    assert [round(each.mean_difference, 6) for each in comparisons.values()] == [0.25, 0.25]


def test_every_level_proves_a_predicted_cache(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict(root)

    for level in ("quick", "full"):
        assert verify_cache(root / "predicted", level, jobs=1).valid  # type: ignore[arg-type]
    report = verify(root / "predicted", "deep", root / "data", CLIPS, repair=False, jobs=1)
    assert report.problems == ()
    assert report.sampled == CLIPS
    assert "a model predicted its mels, so only texts and waves are compared" in capsys.readouterr().err


def test_the_deep_level_finds_a_wave_of_another_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage has right checksums everywhere: a faulty writer made it."""

    def shifted(id: str, wave: np.ndarray, fields: Any) -> object:
        return padded_wave(id, np.roll(wave, 256), fields)

    with monkeypatch.context() as patch:
        patch.setattr("xtts_pipeline.cache.build.workers.padded_wave", shifted)
        build(root / "data", root / "cache", CONFIG, reshard=True, train_shards=2)
    predict(root)

    assert verify_cache(root / "predicted", jobs=1).valid
    report = verify(root / "predicted", "deep", root / "data", 1, repair=False, jobs=1)
    assert "wave: its mel differs" in report.problems[0].detail


def test_a_stopped_prediction_leaves_nothing_and_begins_again(root: Path) -> None:
    def stopped(_bucket: int, _records: object) -> list[np.ndarray]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(root, stopped)
    assert {path.name for path in root.iterdir()} == {"data", "cache"}
    predict(root)
    first = cache_bytes(root / "predicted")
    # What a killed process leaves.
    (root / "predicted").rename(root / ".predicted.partial")
    (root / ".predicted.partial" / MANIFEST_NAME).unlink()
    (root / "predicted").mkdir()

    predict(root)

    assert cache_bytes(root / "predicted") == first
    assert {path.name for path in root.iterdir()} == {"data", "cache", "predicted"}


def test_a_mel_that_is_not_finite_is_refused(root: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the mel predicted for clip-\d+ is not finite; use another checkpoint"):
        predict(root, lambda bucket, records: [mel + 1e5 for mel in quieter(bucket, records)])
    assert not (root / "predicted").exists()


@pytest.mark.parametrize("kind", ["shard", "wave", "listing"])
def test_a_damaged_source_is_refused(root: Path, kind: str) -> None:
    manifest = load_manifest(root / "cache")
    shard = next(shard.name for shard in manifest.shards if shard.records > 1)
    name = {"shard": shard, "wave": WAVE_PREFIX + shard, "listing": "utterances.jsonl"}[kind]
    path = root / "cache" / name
    if kind == "shard":  # valid records in another order
        write_records(path, reversed(list(read_records(path))))
    else:
        path.write_bytes(path.read_bytes()[::-1])

    with pytest.raises(CacheError, match=f"{name}: found other bytes than the manifest says; run xtts verify-cache"):
        predict(root)
    assert not (root / "predicted").exists()


def test_a_full_disk_is_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: RecordWriter, _payload: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(
        OutputError, match=r"predicted: cannot be written \(No space left on device\); free space, or choose"
    ):
        predict(root)


def test_waves_are_copied_where_there_are_no_hard_links(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    predict(root)

    assert verify_cache(root / "predicted", jobs=1).valid


def test_a_repair_of_predicted_mels_is_refused(root: Path) -> None:
    predict(root)
    (root / "predicted" / "utterances.jsonl").unlink()

    with pytest.raises(CacheError, match="expected those of recordings; make the cache again with xtts predict-mels"):
        verify(root / "predicted", "full", root / "data", None, repair=True, jobs=1)
