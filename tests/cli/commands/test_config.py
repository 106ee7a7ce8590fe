"""`xtts config`: earlier settings become new ones, every key is accounted for, and presets are described."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.calling import start_xtts, xtts
from xtts_pipeline.cli.commands.config import Migration, migrate
from xtts_pipeline.config.load import load_config, preset_names
from xtts_pipeline.config.migration import GROUPS, RULES
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.training.settings import _suit_speakers

# The keys that the seeds of this project tell users to set.
OLD = """
data:
  pad_to_fixed_length: true
  max_text_length: 200
  max_mel_frames: 800
  n_mels: 80
  batch_size: 56
  num_workers: 16
  prefetch_buffer_size: 8
  use_tf_native_loading: true
  prefetch_to_gpu: true
  enhanced_gpu_prefetch: true
  optimize_cpu_gpu_overlap: true
  preprocessing_mode: "precompute"
  cache_verification: true
  auto_rebuild_token_cache: true
  auto_rebuild_mel_cache: true
  auto_tune_performance: true
  shuffle_buffer_multiplier: 20
model:
  max_attention_sequence_length: 200
  max_text_length: 500
training:
  enable_graph_mode: true
  enable_xla_compilation: true
  enable_eager_debug: false
  gradient_accumulation_steps: 2
  learning_rate: 1e-4
  min_learning_rate: 1e-6
  scheduler: noam
  mel_loss_weight: 35.0
  kl_loss_weight: 1.0
"""


def migrated(tmp_path: Path, text: str, **flags: str | int) -> Migration:
    file = tmp_path / "old.yaml"
    file.write_text(text, encoding="utf-8")
    return migrate(file, {f"--{name.replace('_', '-')}": value for name, value in flags.items()})


def config_of(migration: Migration, folder: Path) -> Config:
    new = folder / "new.yaml"
    new.write_text(migration.to_text(), encoding="utf-8")
    return load_config([str(new)])


def why_of(migration: Migration) -> dict[str, str]:
    return {key.key: key.why for key in migration.keys if not key.settings}


def test_the_printed_settings_can_be_loaded(tmp_path: Path) -> None:
    config = config_of(migrated(tmp_path, OLD), tmp_path)
    assert (config.limits.max_text_length, config.limits.max_mel_frames, config.audio.mel_bins) == (200, 800, 80)
    assert (config.training.batch_size, config.training.accumulation_steps) == (56, 2)
    assert (config.data.num_workers, config.data.prefetch_buffer_size, config.data.shuffle_records) == (16, 8, 20 * 56)
    assert (config.training.schedule, config.training.learning_rate, config.training.final_lr_fraction) == (
        "noam",
        1e-4,
        0.01,
    )
    assert (config.training.jit_compile, config.training.debug_eager, config.training.autotune) == (True, False, True)


def test_an_exponential_schedule_keeps_a_rate_over_0(tmp_path: Path) -> None:
    migration = migrated(tmp_path, "training:\n  scheduler: exponential\n  min_learning_rate: 0\n")
    assert config_of(migration, tmp_path).training.final_lr_fraction > 0
    assert "never falls to 0" in why_of(migration)["training.min_learning_rate"]


def test_every_dropped_key_has_a_reason(tmp_path: Path) -> None:
    why = why_of(migrated(tmp_path, OLD))
    assert why["data.pad_to_fixed_length"] == "records always have a fixed length; several lengths are data.buckets"
    assert "xtts preprocess" in why["data.preprocessing_mode"]
    assert "data.max_text_length" in why["model.max_text_length"]
    assert "training.debug_eager" in why["training.enable_graph_mode"]
    assert all(why.values())


def test_flags_override_the_file(tmp_path: Path) -> None:
    flags: dict[str, Any] = {
        "batch_size": 8,
        "num_workers": 3,
        "train_data": "train",
        "val_data": "val",
        "optimization_level": "enhanced",
    }
    migration = migrated(tmp_path, OLD, **flags)
    config = config_of(migration, tmp_path)
    assert (config.training.batch_size, config.data.num_workers, config.data.shuffle_records) == (8, 3, 160)
    why = why_of(migration)
    assert "--batch-size" in why["data.batch_size"]
    assert "xtts preprocess --data" in why["--train-data"]
    assert set(why) >= {"--val-data", "--optimization-level"}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("data: {sample_rate: 8000}", {"audio": {"sample_rate": 8_000, "max_hz": 4_000.0}}),
        ("data: {trim_silence: true, add_blank: true}", {"audio": {"trim_db": 20.0}, "text": {"blank": True}}),
        ("data: {trim_silence: false, enable_graph_mode: true}", {}),
        ("training: {enable_graph_mode: false}", {"training": {"debug_eager": True}}),
        ("training: {use_warmup_cosine_schedule: true, scheduler: noam}", {"training": {"schedule": "cosine"}}),
        ("training: {scheduler: plateau}", {}),
        ("model: {use_voice_conditioning: false}", {"model": {"voice_latents": 0}}),
        ("data: {reference_audio_length: 3.0}", {"model": {"reference_frames": 258}}),
        ("data: {enable_xla: true}\ntraining: {enable_xla_compilation: false}", {"training": {"jit_compile": False}}),
        ("batch_size: 4", {"training": {"batch_size": 4}}),
        ("model: {sample_rate: 8000}\ntraining: {sample_rate: 22050}", {"audio": {"sample_rate": 22_050}}),
        ("data: {trim_silence: true}\ntraining: {trim_silence: false}", {}),
    ],
)
def test_values_are_carried_over_in_the_units_of_this_system(
    tmp_path: Path, text: str, settings: dict[str, Any]
) -> None:
    assert migrated(tmp_path, text).settings == settings


PEAK = {"audio": {"normalize": "peak", "normalize_to_db": 0.0}}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("normalize_audio: true", PEAK),
        ("normalize_audio: true, target_loudness_lufs: -20.0", PEAK),
        ("normalize_audio: true, enable_loudness_normalization: false", PEAK),
        ("enable_loudness_normalization: true", {"audio": {"normalize": "lufs"}}),
        ("normalize_audio: true, enable_loudness_normalization: true", {"audio": {"normalize": "lufs"}}),
        (
            "enable_loudness_normalization: true, target_loudness_lufs: -20.0, normalize_audio: true",
            {"audio": {"normalize": "lufs", "normalize_to_db": -20.0}},
        ),
        ("target_loudness_lufs: -20.0", {}),
    ],
)
def test_loudness_overrides_the_peak_in_any_order_and_sets_its_level(
    tmp_path: Path, text: str, settings: dict[str, Any]
) -> None:
    migration = migrated(tmp_path, f"data: {{{text}}}")
    assert migration.settings == settings
    assert all(why_of(migration).values())


def test_an_unknown_key_is_reported_and_left_out(tmp_path: Path) -> None:
    migration = migrated(tmp_path, "gpu_optimizations: {turbo: {level: 9}}\ndata: {batch_size: 4}")
    unknown = [key for key in migration.keys if not key.is_known]
    assert [line.key for line in unknown] == ["gpu_optimizations.turbo.level"]
    assert migration.settings == {"training": {"batch_size": 4}}
    assert migration.notes()[-1].startswith("2 keys: 1 carried over, 0 dropped, 1 unknown")


def test_an_unknown_key_that_is_a_setting_here_is_said_to_be_one(tmp_path: Path) -> None:
    migration = migrated(tmp_path, "cache: {store_waves: true}\nmodel: {widht: 128}")
    assert [line.partition(": ")[2] for line in migration.notes()[:2]] == [
        "unknown, left out; no key of MyXTTS, but a setting here; copy it by hand",
        "unknown, left out; no setting has this name; xtts config show lists all settings",
    ]


def test_the_error_of_an_invalid_value_names_the_earlier_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"old\.yaml: data\.batch_size: training\.batch_size='8-16'"):
        migrated(tmp_path, "data: {batch_size: 8-16}")


def test_the_error_of_an_invalid_value_names_a_key_once_and_the_unknown_keys_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        migrated(tmp_path, "data: {num_workers: 8-16}\nlimits: {max_mel_frame: 800}")
    invalid, unknown = caught.value.problems
    assert invalid.startswith(f"{tmp_path}/old.yaml: data.num_workers='8-16': ")
    assert unknown.startswith(f"{tmp_path}/old.yaml: limits.max_mel_frame=800: unknown, left out; ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("training: {learning_rate: 0, min_learning_rate: 1e-6}", "training.learning_rate=0"),
        ("training: {learning_rate: .nan, min_learning_rate: 1e-6}", "training.learning_rate=nan"),
        ("data: {hop_length: 0, reference_audio_length: 3.0}", "audio.hop_samples=0"),
        (f"data: {{sample_rate: -1{'0' * 400}}}", "audio.sample_rate=-1000"),
        (f"data: {{sample_rate: 1{'0' * 400}, reference_audio_length: 3.0}}", "audio.sample_rate=1000"),
        ("data: {sample_rate: true}", "audio.sample_rate=True"),
        ("data: {reference_audio_length: 1e300}", "model.reference_frames=8"),
        ("data: {batch_size: 2001-01-01}", "training.batch_size=datetime.date"),
    ],
)
def test_values_that_cannot_be_computed_with_are_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        migrated(tmp_path, text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("data: {reference_audio_length: .inf}", "data.reference_audio_length", "inf is not finite"),
        ("data: {shuffle_buffer_multiplier: .nan}", "data.shuffle_buffer_multiplier", "nan is not finite"),
        (
            "data: {shuffle_buffer_multiplier: 1e308}",
            "data.shuffle_buffer_multiplier",
            "it comes to more than can be counted",
        ),
        ("training: {min_learning_rate: low}", "training.min_learning_rate", "'low' is no number"),
    ],
)
def test_a_value_that_is_not_a_number_is_left_out_with_its_reason(
    tmp_path: Path, text: str, key: str, why: str
) -> None:
    migration = migrated(tmp_path, text)
    assert (migration.settings, why_of(migration)) == ({}, {key: why})


def test_values_that_json_cannot_hold_become_text(tmp_path: Path) -> None:
    migration = migrated(
        tmp_path, "training: {scheduler_params: {2001-01-01: [.inf, 1, {a: .nan}]}, epochs: 2001-01-02, beta1: true}"
    )
    report = json.loads(json.dumps(migration.to_json(), allow_nan=False))
    values = {line["key"]: line["value"] for line in report["keys"]}
    assert values["training.scheduler_params"] == {"2001-01-01": ["inf", 1, {"a": "nan"}]}
    assert (values["training.epochs"], values["training.beta1"]) == ("2001-01-02", True)


def test_every_rule_leads_to_an_existing_setting() -> None:
    known = {f"{section}.{key}" for section, keys in Config().model_dump().items() for key in keys}
    assert {rule.becomes for rule in RULES.values() if rule.becomes} <= known


def test_the_document_has_every_key_in_its_group() -> None:
    text = (Path(__file__).parents[3] / "docs" / "migration.md").read_text(encoding="utf-8")
    for name, group in GROUPS.items():
        section = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        for key, rule in group.items():
            (row,) = [line for line in rows if f"`{key}`" in line.split(" | ")[0]]
            assert (f"`{rule.becomes}`" if rule.becomes else "dropped") in row
            assert rule.why in row


def test_the_command_prints_settings_alone_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(OLD, encoding="utf-8")
    done = start_xtts("config", "migrate", tmp_path / "old.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["training"]["batch_size"] == 56
    nothing = start_xtts("config", "migrate")
    assert nothing.returncode == 2
    assert nothing.stderr.startswith("xtts: nothing to migrate; ")


def test_every_preset_is_listed_with_what_it_is_for() -> None:
    listed = json.loads(xtts("config", "presets", "--json").stdout)
    assert list(listed) == preset_names()
    assert all(len(description) > 20 for description in listed.values())
    lines = xtts("config", "presets").stdout.splitlines()
    assert f"tiny               {listed['tiny']}" in lines


@pytest.mark.parametrize("given", [[], ["data.buckets=auto", "model.voice_latents=32", "synthesis.guidance=3"]])
def test_shown_settings_leave_the_same_choices_to_the_cache(tmp_path: Path, given: list[str]) -> None:
    shown = xtts("config", "show", "small", *(f"--set={setting}" for setting in given)).stdout
    (tmp_path / "my.yaml").write_text(shown)
    before, after = load_config(["small"], given), load_config([str(tmp_path / "my.yaml")])
    assert (after, after.data.are_buckets_given) == (before, bool(given))
    assert shown.count("(not set; depends on the cache)") == (0 if given else 3)
    for speakers in (1, 2):
        assert _suit_speakers(after, speakers) == _suit_speakers(before, speakers)
