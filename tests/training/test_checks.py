"""Checks of cache and memory before TensorFlow is imported, and the batch size that `auto` chooses."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from xtts_pipeline.cache.format.manifest import Manifest, summarize
from xtts_pipeline.cache.format.padding import padding_advice
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.errors import CacheError, ConfigError
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.training import checks
from xtts_pipeline.training.checks import (
    AvailableMemory,
    check_enough_records,
    check_memory,
    choose_batch_size,
    choose_precision,
    describe_batches,
    describe_precision,
    idle_settings,
    slow_settings,
    training_memory,
)

WriteCache = Callable[..., Manifest]


class Machine(NamedTuple):
    """The answers of a machine to the checks of precision."""

    has_gpu: bool = False
    compute_capability: tuple[int, int] | None = None
    has_bfloat16_products: bool = False

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the checks see this machine."""
        for name, value in self._asdict().items():
            monkeypatch.setattr(checks, name, lambda value=value: value)


PLAIN, WITH_BFLOAT16 = Machine(), Machine(has_bfloat16_products=True)
OLD_GPU, NEW_GPU, UNKNOWN_GPU = Machine(True, (7, 5)), Machine(True, (8, 6)), Machine(True)


@pytest.fixture
def manifest(tmp_path: Path, write_cache: WriteCache) -> Manifest:
    return write_cache(tmp_path / "cache", train=60, val=0)


@pytest.fixture
def bucketed(tmp_path: Path, write_cache: WriteCache) -> Manifest:
    return write_cache(tmp_path / "12-48", train=60, buckets=((9, 12), (16, 24)))


def settings(batch_size: int | str, **training: object) -> Config:
    return Config(training=TrainingConfig(batch_size=batch_size, **training))


def room_for(manifest: Manifest, config: Config, rows: int) -> AvailableMemory:
    """Return exactly the memory that this many rows at once need."""
    return AvailableMemory(training_memory(manifest, config).total_bytes(rows), "memory")


def room_to_spare(manifest: Manifest, config: Config, rows: int) -> AvailableMemory:
    """Return the memory of which `auto` uses as much as this many rows need."""
    room = room_for(manifest, config, rows)
    return AvailableMemory(round(room.bytes / checks.AUTO_SHARE) + 100, room.where)


def test_a_batch_that_does_not_fit_is_an_error_that_names_one_that_does(manifest: Manifest) -> None:
    config = settings(8)
    room = room_for(manifest, config, 8)
    needed, text = check_memory(manifest, config, room)
    assert needed == room.bytes
    assert text.startswith(f"about {needed / 1e9:.1f} GB needed, ")
    assert text.endswith(f"{needed / 1e9:.1f} GB of memory available")
    with pytest.raises(
        ConfigError,
        match=r"training.batch_size=12: about .* of memory available; set training.batch_size=8 or auto",
    ):
        check_memory(
            manifest, settings(12), AvailableMemory(training_memory(manifest, settings(12)).total_bytes(8), "memory")
        )


def test_the_largest_batch_size_is_refused_without_trying_each_smaller_one(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    monkeypatch.setattr(checks, "is_filled", lambda _manifest, size, _parts: tried.append(size) or size <= 60)
    with pytest.raises(CacheError, match=r"60 training records, but .*; set training.batch_size=60 or less"):
        check_enough_records(tmp_path, manifest, settings(65_536))
    assert tried == [60]


def test_with_accumulation_one_part_of_the_batch_must_fit(manifest: Manifest) -> None:
    config = settings(12, accumulation_steps=3)
    check_memory(manifest, config, room_for(manifest, config, 4))
    with pytest.raises(
        ConfigError, match=r"set training.batch_size=9 or auto, or keep it and set training.accumulation_steps=4 "
    ):
        check_memory(manifest, config, room_for(manifest, settings(12, accumulation_steps=4), 3))


@pytest.mark.parametrize(("rows", "shares", "devices"), [(1, 1, 1), (3, 1, 1), (1, 2, 2), (2, 2, 2), (5, 1, 5)])
def test_the_accumulation_that_is_advised_fits(manifest: Manifest, rows: int, shares: int, devices: int) -> None:
    room = room_for(manifest, settings(1_440, accumulation_steps=1_440 // (rows * shares)), rows)
    with pytest.raises(ConfigError) as refused:
        check_memory(manifest, settings(1_440), room, shares, devices)
    fitting = re.search(r"set training.batch_size=(\d+) or auto", str(refused.value))
    assert fitting is None or int(fitting[1]) % devices == 0
    advised = re.search(r"keep it and set training.accumulation_steps=(\d+) ", str(refused.value))
    assert advised is not None
    parts = int(advised[1])
    assert 1_440 % (parts * devices) == 0
    check_memory(manifest, settings(1_440, accumulation_steps=parts), room, shares, devices)


def test_features_that_are_kept_count(manifest: Manifest) -> None:
    config = settings(4)
    kept = config.with_settings("data", cache_features=True)
    plain, more = (training_memory(manifest, one).total_bytes(4) for one in (config, kept))
    assert more >= plain
    big = replace(manifest, shards=tuple(replace(shard, bytes=1 << 40) for shard in manifest.shards))
    assert training_memory(big, kept).total_bytes(4) > 1 << 40 > training_memory(big, config).total_bytes(4)


@pytest.mark.parametrize(
    ("network", "section", "setting", "said"),
    [
        ("acoustic", "training", {"voice_change": 0.1}, "voice_change does nothing without a voice encoder"),
        ("vocoder", "augmentation", {"gain_db": 3.0}, "augmentation changes the clips of `xtts train` alone"),
        ("acoustic", "data", {"cache_features": True}, "data.cache_features does nothing for a cache"),
    ],
)
def test_a_setting_that_does_nothing_is_said(network: Any, section: Any, setting: dict[str, float], said: str) -> None:
    config = Config().with_settings("model", voice_latents=0)
    assert idle_settings(config, network, is_cached=True) == []
    assert said in "".join(idle_settings(config.with_settings(section, **setting), network, is_cached=True))


def test_settings_of_the_vocoder_do_nothing_for_an_acoustic_model() -> None:
    config = load_config(["vocoder"])
    assert idle_settings(config, "vocoder", is_cached=True) == []
    (line,) = idle_settings(config, "acoustic", is_cached=True)
    assert line == "warning: this trains an acoustic model; settings of `vocoder` are for `xtts train-vocoder`"
    assert idle_settings(load_config(base=config.model_dump(mode="json")), "acoustic", is_cached=True) == []


def test_check_memory_false_skips_the_check(manifest: Manifest) -> None:
    with pytest.raises(
        ConfigError,
        match=r"choose a smaller model, or preprocess with lower limits \(training.check_memory=false goes on\)",
    ):
        check_memory(manifest, settings(4), AvailableMemory(1, "memory"))
    check_memory(manifest, settings(4, check_memory=False), AvailableMemory(1, "memory"))


def test_a_gpu_of_unknown_memory_is_accepted_but_not_for_auto(manifest: Manifest) -> None:
    line = check_memory(manifest, settings(4), None)[1]
    assert line.endswith(f"; how much the GPU has cannot be asked: {install_command('gpu')}")
    with pytest.raises(
        ConfigError,
        match=re.escape(
            "training.batch_size=auto: how much memory the GPU has cannot be asked; "
            f"{install_command('gpu')}, or give a number"
        ),
    ):
        choose_batch_size(manifest, settings("auto"), None)


@pytest.mark.parametrize(("rows", "chosen"), [(5, 5), (8, 8), (15, 8), (17, 16), (10_000, 56)])
def test_auto_is_the_largest_batch_that_fits_and_that_clips_fill(manifest: Manifest, rows: int, chosen: int) -> None:
    found = choose_batch_size(manifest, settings("auto"), room_to_spare(manifest, settings("auto"), rows))
    assert found == settings(chosen)


def test_auto_fills_every_bucket_in_whole_parts(bucketed: Manifest) -> None:
    # 12 clips of the small bucket, which has twice the rows.
    assert choose_batch_size(bucketed, settings("auto"), AvailableMemory(1 << 40, "memory")).training.batch_size == 6
    assert (
        choose_batch_size(
            bucketed, settings("auto", accumulation_steps=4), AvailableMemory(1 << 40, "memory")
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


def test_auto_without_any_fitting_batch_is_an_error(
    manifest: Manifest, tmp_path: Path, write_cache: WriteCache
) -> None:
    with pytest.raises(
        ConfigError, match=r"training.batch_size=auto: one clip of 16 x 24 needs about .*; choose a smaller model"
    ):
        choose_batch_size(manifest, settings("auto"), AvailableMemory(1 << 20, "memory"))
    few = write_cache(tmp_path / "few", train=24, buckets=((4, 4), (16, 24)))
    with pytest.raises(
        CacheError, match=r"a bucket has fewer clips than the smallest batch; preprocess with other data.buckets"
    ):
        choose_batch_size(few, settings("auto"), AvailableMemory(1 << 40, "memory"))


def test_a_given_batch_size_is_kept(manifest: Manifest) -> None:
    assert choose_batch_size(manifest, settings(7), None) == settings(7)


def test_cached_records_and_the_shuffle_buffer_are_counted(manifest: Manifest) -> None:
    kept, shuffled, both = (
        training_memory(manifest, Config(data=DataConfig(cache_records=is_kept, shuffle_records=records))).data_bytes
        for is_kept, records in ((True, 10), (False, 10), (False, 20))
    )
    record = 2 * 24 * manifest.audio.mel_bins + 4 * 16
    assert both - shuffled == 10 * record
    assert kept - shuffled == manifest.split_bytes("train") - 10 * record
    four, ten = (training_memory(manifest, Config(data=DataConfig(prefetch_buffer_size=count))) for count in (4, 10))
    assert ten.row_bytes - four.row_bytes == 6 * record


def test_the_available_memory_is_the_gpu_s_or_without_one_the_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_gpu", lambda: False)
    monkeypatch.setattr(checks, "memory_limit_bytes", lambda: 5_000)
    assert checks.available_memory() == AvailableMemory(5_000, "memory")
    monkeypatch.setattr(checks, "has_gpu", lambda: True)
    monkeypatch.setattr(checks, "free_memory_bytes", lambda: 8 << 30)
    assert checks.available_memory() == AvailableMemory((8 << 30) - checks.GPU_RESERVED_BYTES, "the GPU's memory")
    monkeypatch.setattr(checks, "free_memory_bytes", lambda: None)
    assert checks.available_memory() is None


def check(manifest: Manifest, **settings: object) -> None:
    check_enough_records(Path("cache"), manifest, Config(training=TrainingConfig(**settings)))


def test_a_cache_must_fill_a_batch(tmp_path: Path, write_cache: WriteCache) -> None:
    manifest = write_cache(tmp_path / "few", train=3, val=1)
    check(manifest, batch_size=3)
    with pytest.raises(
        CacheError, match=r"cache: 3 training records, but training.batch_size=4; set training.batch_size=3 or less"
    ):
        check(manifest, batch_size=4)
    with pytest.raises(
        CacheError,
        match=r"cache: 1 training record, but training.batch_size=4; set training.batch_size=1, or preprocess a larger",
    ):
        check(write_cache(tmp_path / "one", train=1, shards=1), batch_size=4)
    with pytest.raises(CacheError, match=r"cache: 0 training records; preprocess a larger corpus"):
        check(write_cache(tmp_path / "none", train=0), batch_size=4)


def test_every_bucket_must_fill_a_batch(tmp_path: Path, write_cache: WriteCache) -> None:
    manifest = write_cache(tmp_path / "12-48", train=60, buckets=((9, 12), (16, 24)))
    assert [manifest.split_records("train", bucket) for bucket in (0, 1)] == [12, 48]
    check(manifest, batch_size=6)
    found = (
        r"cache: bucket 0 \[9, 12\]: 12 training records, but training.batch_size=8, which is 16 rows in this bucket"
    )
    with pytest.raises(CacheError, match=rf"{found}; set training.batch_size=6 or less"):
        check(manifest, batch_size=8)
    with pytest.raises(CacheError, match=rf"{found}; set training.batch_size=4, or preprocess a larger corpus"):
        check(manifest, batch_size=8, accumulation_steps=4)


def test_a_bucket_that_no_batch_size_fills_is_refused_and_an_empty_one_is_not(
    tmp_path: Path, write_cache: WriteCache
) -> None:
    with pytest.raises(
        CacheError,
        match=r"bucket 0 \[4, 4\]: 1 training record, .* 12 rows in this bucket; preprocess with other data.buckets",
    ):
        check(write_cache(tmp_path / "one", train=24, buckets=((4, 4), (16, 24))), batch_size=2)
    check(write_cache(tmp_path / "none", train=24, buckets=((3, 2), (16, 24))), batch_size=2)


def test_several_devices_round_a_bucket_s_batch_down_to_their_number(tmp_path: Path, write_cache: WriteCache) -> None:
    manifest = write_cache(tmp_path / "4-56", train=60, buckets=((6, 8), (16, 24)))
    found = manifest.split_records("train", 0)
    config = settings(3 * found // 5 or 1)
    rows = config.training.clips_per_batch * 3
    assert found < rows
    with pytest.raises(CacheError, match=rf"{found} training records?, .* which is {rows} rows in this bucket"):
        check_enough_records(Path("cache"), manifest, config)
    assert f" {rows} x 6 x 8," in describe_batches(manifest, config)[0]
    shares = rows // 2 + 1
    assert f" {shares} x 6 x 8," in describe_batches(manifest, config, shares)[0]


@pytest.mark.parametrize(("shares", "fewer"), [(1, ""), (2, " or --devices")])
def test_more_parts_than_clips_are_refused_with_what_helps(
    tmp_path: Path, write_cache: WriteCache, shares: int, fewer: str
) -> None:
    manifest = write_cache(tmp_path / "few", train=15)
    with pytest.raises(CacheError) as refused:
        check_enough_records(tmp_path, manifest, settings(16, accumulation_steps=16 // shares), shares)
    assert str(refused.value).endswith(
        f"; set a smaller training.accumulation_steps{fewer}, or preprocess a larger corpus"
    )


def test_patience_needs_a_validation_split(tmp_path: Path, write_cache: WriteCache) -> None:
    check(write_cache(tmp_path / "one", train=4, val=1), batch_size=4, patience=2)
    with pytest.raises(
        CacheError, match=r"no validation records, but training.patience=2 .* cache.validation_share over 0"
    ):
        check(write_cache(tmp_path / "none", train=4, val=0), batch_size=4, patience=2)


def test_batch_shapes_and_padding_are_described(tmp_path: Path, write_cache: WriteCache) -> None:
    settings = Config(training=TrainingConfig(batch_size=8))
    one, three = (
        write_cache(tmp_path / name, buckets=buckets)
        for name, buckets in (("1", None), ("3", ((9, 12), (12, 20), (16, 24))))
    )
    real = one.statistics["frames"].mean * 34
    assert (
        describe_batches(one, settings)[0]
        == f"batches (clips x tokens x frames): 8 x 16 x 24; {1 - real / (34 * 24):.0%} of the frames are padding"
    )
    described, *_ = describe_batches(three, settings)
    assert described.startswith("batches (clips x tokens x frames): 16 x 9 x 12, 9 x 12 x 20, 8 x 16 x 24; ")
    padded = sum(
        three.split_records(split, bucket) * frames
        for split in ("train", "val")
        for bucket, frames in enumerate((12, 20, 24))
    )
    assert described.endswith(f"; {1 - real / padded:.0%} of the frames are padding")


def test_buckets_are_advised_where_over_a_quarter_of_the_frames_of_one_shape_is_padding(
    tmp_path: Path, write_cache: WriteCache
) -> None:
    one, three = (
        write_cache(tmp_path / name, train=256, buckets=buckets)
        for name, buckets in (("1", None), ("3", ((9, 12), (12, 20), (16, 24))))
    )

    def described(padding: float, manifest: Manifest = one) -> list[str]:
        frames = replace(manifest.statistics["frames"], mean=24 * (1 - padding))
        # As a training takes them from its cache.
        config = Config(limits=manifest.limits, data=DataConfig(buckets=manifest.buckets or None))
        return describe_batches(replace(manifest, statistics={**manifest.statistics, "frames": frames}), config)

    assert [line.partition(":")[0] for line in described(0.26)] == ["batches (clips x tokens x frames)", "advice"]
    assert "data.buckets=auto" in described(0.26)[1]
    assert "xtts stats" in described(0.26)[1]
    assert len(described(0.9, three)) == 1
    assert len(described(0.24)) == 1


@pytest.mark.parametrize(
    ("settings", "machine", "warned"),
    [
        ({}, PLAIN, ""),
        ({"precision": "bfloat16"}, PLAIN, "no instructions for it; set training.precision=float32"),
        ({"precision": "bfloat16"}, WITH_BFLOAT16, ""),
        (
            {"precision": "bfloat16", "jit_compile": False},
            WITH_BFLOAT16,
            "since only XLA is faster with it; set training.precision=float32",
        ),
        ({"precision": "bfloat16"}, OLD_GPU, ""),
        ({"debug_eager": True}, NEW_GPU, "for a debugger"),
    ],
)
def test_settings_that_are_slow_on_this_machine_have_one_line_each(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], machine: Machine, warned: str
) -> None:
    machine.replace(monkeypatch)
    lines = slow_settings(TrainingConfig(**settings))
    assert len(lines) == bool(warned)
    assert all(line.endswith(warned) for line in lines)


@pytest.mark.parametrize(
    ("settings", "machine", "chosen"),
    [
        ({}, PLAIN, "float32"),
        ({}, WITH_BFLOAT16, "bfloat16"),
        ({}, OLD_GPU, "float32"),
        ({}, UNKNOWN_GPU, "float32"),
        ({}, NEW_GPU, "bfloat16"),
        ({"jit_compile": False}, WITH_BFLOAT16, "float32"),
        ({"jit_compile": False}, NEW_GPU, "bfloat16"),
        ({"debug_eager": True}, NEW_GPU, "float32"),
        ({"precision": "float32"}, NEW_GPU, "float32"),
        ({"precision": "float16"}, PLAIN, "float16"),
    ],
)
def test_the_precision_is_the_fastest_of_the_machine_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], machine: Machine, chosen: str
) -> None:
    machine.replace(monkeypatch)
    config = Config().with_settings("training", **settings)
    assert choose_precision(config).training.precision == chosen


def test_the_line_about_precision_says_what_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    WITH_BFLOAT16.replace(monkeypatch)
    lines = [describe_precision(TrainingConfig(precision=name)) for name in ("bfloat16", "float32")]
    assert lines == [
        "precision: matrix products in bfloat16 (faster than float32 here)",
        "precision: matrix products in float32",
    ]
    UNKNOWN_GPU.replace(monkeypatch)
    assert "[gpu]" in describe_precision(TrainingConfig(precision="float32"))


@pytest.mark.parametrize(
    ("clips", "buckets", "longest", "advised"),
    [
        (40, None, 9, "--set limits.max_text_length=16 --set limits.max_mel_frames=16 for 50% padding"),
        (40, "auto", 9, "--set limits.max_text_length=16 --set limits.max_mel_frames=16 for 50% padding"),
        (40, None, 24, None),
        (40, "auto", 24, None),
        (300, "auto", 24, None),
        (300, None, 24, "--set data.buckets=auto to train faster; xtts stats shows the padding that is left"),
    ],
)
def test_what_is_set_or_cannot_help_is_not_advised(
    tmp_path: Path, write_cache: WriteCache, clips: int, buckets: Literal["auto"] | None, longest: int, advised: str
) -> None:
    made = write_cache(tmp_path / "one", train=clips - 5)
    spreads = {
        "frames": summarize([max(1, 16 - longest), longest]),
        "tokens": summarize([10]),
    }
    manifest = replace(made, statistics={**made.statistics, **spreads})
    found = padding_advice(manifest, Config(data=DataConfig(buckets=buckets)))
    assert [line.partition(" with ")[2].partition(" and ")[0] for line in found] == ([advised] if advised else [])


def test_a_batch_that_devices_cannot_share_is_refused_before_tensorflow_starts(manifest: Manifest) -> None:
    found = "training.batch_size=10 cannot be shared by 4 devices in 1 parts each"
    with pytest.raises(ConfigError, match=f"{found}.*expected a multiple of 4"):
        check_enough_records(Path("cache"), manifest, settings(10), 4)
