"""Stored waves: the sound under the mel frames, in shard files beside those of the mels."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import build, cache_bytes, make_config, modification_times, write_corpus, write_records
from tests.damage import flip_bit
from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.cache.build.pool import local_pool
from xtts_pipeline.cache.copy import copy_cache
from xtts_pipeline.cache.format.example import decode_values, encode_values
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import bucket_specs, load_manifest
from xtts_pipeline.cache.format.schema import padded_wave, wave_fields
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands.verify_cache import verify

CLIPS = 24
WAVES = "cache.store_waves=true"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its cache with waves, side by side; tests work on copies."""
    root = tmp_path_factory.mktemp("pristine")
    build(write_corpus(root / "data", CLIPS), root / "cache", make_config(WAVES))
    return root


def waves_of(cache: Path) -> dict[str, np.ndarray]:
    """Return the stored samples of each clip, with their padding, by the clip's place in utterances.jsonl."""
    manifest = load_manifest(cache)
    waves = {}
    payloads = {shard.name: list(read_records(cache / f"{WAVE_PREFIX}{shard.name}")) for shard in manifest.shards}
    for entry in read_utterances(cache):
        fields = wave_fields(manifest.spec_of_shard[entry.shard], manifest.audio.hop_samples)
        values = decode_values(payloads[entry.shard][entry.position], fields)
        assert values["id"] == entry.id
        waves[entry.id] = np.asarray(values["wave"])
    return waves


def test_a_stored_wave_is_the_sound_under_its_frames(root: Path) -> None:
    config = make_config()
    waves = waves_of(root / "cache")
    assert len(waves) == CLIPS
    for entry in read_utterances(root / "cache"):
        recorded, _ = soundfile.read(root / "data" / entry.source.path, dtype="int16")
        wave = waves[entry.id]
        np.testing.assert_array_equal(wave[: len(recorded)], recorded)
        assert len(wave) == config.limits.max_mel_frames * config.audio.hop_samples
        assert not wave[len(recorded) :].any()


def test_a_trimmed_wave_begins_at_the_centre_of_its_first_frame(tmp_path: Path) -> None:
    data, config = write_corpus(tmp_path / "data", CLIPS), make_config(WAVES, "audio.trim_db=30")
    for path in (data / "wavs").iterdir():
        sound, rate = soundfile.read(path)
        soundfile.write(path, np.concatenate([np.zeros(3_000), sound]), rate, "PCM_16")
    build(data, tmp_path / "cache", config)

    entry = next(iter(read_utterances(tmp_path / "cache")))
    wave = load_wave(data / entry.source.path, config.audio, config.limits)
    stored = waves_of(tmp_path / "cache")[entry.id][: entry.frames * config.audio.hop_samples] / 32_768
    start = next(
        at for at in range(0, 3_000, config.audio.hop_samples) if np.array_equal(wave[at:][:500], stored[:500])
    )

    assert 0 < start < 3_000
    report = verify(tmp_path / "cache", level="deep", data=data, sample=CLIPS, repair=False, jobs=1)
    assert report.valid, report.to_text()


def test_mel_shards_do_not_depend_on_stored_waves_and_a_rerun_adds_or_removes_them(root: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    build(root / "data", without)
    with_waves, plain = cache_bytes(root / "cache"), cache_bytes(without)
    shards = {name for name in plain if name.endswith(".tfrecord")}

    assert {name: with_waves[name] for name in shards} == {name: plain[name] for name in shards}
    build(root / "data", without, make_config(WAVES))
    assert cache_bytes(without) == with_waves
    build(root / "data", without)
    assert cache_bytes(without) == plain


def test_a_manifest_without_waves_has_no_key_of_them(root: Path) -> None:
    build(root / "data", root / "cache")
    assert "waves" not in (root / "cache" / "manifest.json").read_text()


def test_waves_do_not_depend_on_jobs_and_a_rerun_writes_nothing(root: Path, tmp_path: Path) -> None:
    before = modification_times(root / "cache")
    result = build(root / "data", root / "cache", make_config(WAVES))
    assert (result.shards_written, modification_times(root / "cache")) == (0, before)

    build(root / "data", tmp_path / "parallel", make_config(WAVES), local_pool(2))
    assert cache_bytes(tmp_path / "parallel") == cache_bytes(root / "cache")


def test_waves_of_buckets_lie_beside_their_mels(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", CLIPS)
    build(data, tmp_path / "cache", make_config(WAVES, "data.buckets=[[40, 24], [40, 80]]"))

    lengths = {len(wave) for wave in waves_of(tmp_path / "cache").values()}
    assert lengths == {24 * 128, 80 * 128}
    assert verify_cache(tmp_path / "cache").valid


def test_every_flipped_bit_of_a_wave_file_is_found_and_repaired(root: Path) -> None:
    cache = root / "cache"
    path = next(cache.glob("wave-train-*.tfrecord"))
    before = cache_bytes(cache)
    for place in (3, 20, path.stat().st_size // 2, -1):
        flip_bit(path, place)
        report = verify_cache(cache)
        assert {problem.where.split(" ")[0] for problem in report.problems} == {path.name}
        flip_bit(path, place)

    path.unlink()
    assert [str(problem.kind) for problem in verify_cache(cache, "quick").problems] == ["missing"]
    report = verify(cache, level="full", data=root / "data", sample=None, repair=True, jobs=1)
    assert report.valid
    assert cache_bytes(cache) == before


def test_a_wave_that_does_not_lie_under_its_mel_is_found_by_the_deep_level(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damage has right checksums everywhere: a faulty writer made it."""

    def shifted(id: str, wave: np.ndarray, fields: object) -> object:
        return padded_wave(id, np.roll(wave, 256), fields)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("xtts_pipeline.cache.build.workers.padded_wave", shifted)
        build(root / "data", root / "faulty", make_config(WAVES))
    assert verify_cache(root / "faulty").valid

    report = verify(root / "faulty", level="deep", data=root / "data", sample=1, repair=False, jobs=1)

    assert "wave: its mel differs from the stored mel" in report.problems[0].detail


def test_sound_after_the_last_frame_of_a_wave_is_found(root: Path) -> None:
    cache, entry = root / "cache", next(iter(read_utterances(root / "cache")))
    manifest = load_manifest(cache)
    fields = wave_fields(bucket_specs(manifest)[0], manifest.audio.hop_samples)
    path = cache / f"{WAVE_PREFIX}{entry.shard}"
    payloads = list(read_records(path))
    wave = np.array(decode_values(payloads[entry.position], fields)["wave"])
    wave[-1] = 1
    payloads[entry.position] = encode_values(padded_wave("another", wave, fields), fields)
    write_records(path, payloads)

    details = [problem.detail for problem in verify_cache(cache).problems]

    assert f"wave: found sound after frame {entry.frames}, expected zeros" in details
    assert any(detail.startswith("id: found 'another'") for detail in details)


def test_a_copy_has_the_waves_and_drops_those_of_an_earlier_cache(root: Path, tmp_path: Path) -> None:
    copy_cache(root / "cache", tmp_path / "copied", 1, lambda _: None, lambda _: None)
    assert cache_bytes(tmp_path / "copied") == cache_bytes(root / "cache")

    build(root / "data", root / "cache")
    report = copy_cache(root / "cache", tmp_path / "copied", 1, lambda _: None, lambda _: None)
    assert report.removed
    assert all(name.startswith(WAVE_PREFIX) for name in report.removed)
    assert cache_bytes(tmp_path / "copied") == cache_bytes(root / "cache")
