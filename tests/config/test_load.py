import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from xtts_pipeline.config.load import (
    StrictLoader,
    dump_config,
    find_config_file,
    load_config,
    preset_names,
)
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("written", "read"),
    [("1e-4", 1e-4), ("3E2", 300.0), ("1.5e-3", 1.5e-3), (".5e1", 5.0), ("+2e0", 2.0), ("0.25", 0.25), ("1", 1.0)],
)
def test_a_number_in_scientific_notation_is_a_number(tmp_path: Path, written: str, read: float) -> None:
    file = write(tmp_path / "a.yaml", f"training:\n  learning_rate: {written}\n")
    assert load_config([file]).training.learning_rate == read
    assert load_config(overrides=[f"training.learning_rate={written}"]).training.learning_rate == read


def test_a_later_file_overrides_an_earlier_one_and_set_overrides_all(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "training: {batch_size: 2, steps: 7}\n")
    second = write(tmp_path / "b.yaml", "training: {batch_size: 3}\n")
    config = load_config([first, second], ["training.steps=9"], {"training": {"seed": 5}})
    assert (config.training.batch_size, config.training.steps, config.training.seed) == (3, 9, 5)


@pytest.mark.parametrize("symbols", ["abc ق", "0E0"])
def test_a_dumped_config_is_read_back_unchanged(symbols: str, tmp_path: Path) -> None:
    config = load_config(
        overrides=[
            "training.learning_rate=1e-4",
            "audio.trim_db=30",
            f"text.symbols='{symbols}'",
            "data.num_workers=3",
        ]
    )
    assert load_config([write(tmp_path / "a.yaml", dump_config(config))]) == config


@given(
    st.floats(min_value=1e-12, max_value=1e3), st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
)
def test_any_value_survives_yaml(rate: float, symbols: str) -> None:
    config = Config.model_validate({"training": {"learning_rate": rate}, "text": {"symbols": symbols}})
    assert Config.model_validate(yaml.load(dump_config(config), Loader=StrictLoader)) == config  # noqa: S506 (a SafeLoader)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {learing_rate: 1}", "unknown key training.learing_rate; did you mean training.learning_rate?"),
        ("trainin: {}", "unknown key trainin; did you mean training?"),
        ("training: {batch_size: '8'}", "training.batch_size='8': input should be a valid integer"),
        ("training: {batch_size: 0}", "training.batch_size=0: input should be greater than or equal to 1"),
        ("training: {batch_size: 2.5}", "training.batch_size=2.5"),
        ("training: {learning_rate: yes}", "training.learning_rate='yes': input should be a valid number"),
        ("training: 3", "training=3: input should be settings"),
        ("training: {patience: none}", "training.patience='none': input should be a valid integer, or null"),
        (
            "training: {save_every: 10m}",
            "training.save_every='10m': input should be a valid integer, or a time such as",
        ),
        ("training: {epochs: 5}", "unknown key training.epochs; training.steps counts updates: epochs x clips"),
        ("data: {buckets: [[9, 9]]}", "data.buckets: the last one is [9, 9], expected the limits"),
        ("training: {strict_shapes: maybe}", "training.strict_shapes='maybe': input should be true or false"),
        ("training: {strategy: 1}", "unknown key training.strategy; known are batch_size"),
        ("interval: 5", "unknown key interval"),
        ("batch_size: 5", "unknown key batch_size; did you mean training.batch_size or synthesis.batch_size?"),
        ("training: {num_workers: 2}", "unknown key training.num_workers; did you mean data.num_workers?"),
        (
            "audio: {n_mels: 80}",
            "unknown key audio.n_mels; did you mean audio.mel_bins? `xtts config migrate` translates files of MyXTTS",
        ),
        ("training: {batch_size: {int: 1}}", "training.batch_size="),
        (
            "cache: {validation_share: 0.6, test_share: 0.6}",
            "cache: validation_share=0.6 and test_share=0.6 leave nothing to train on",
        ),
        ("training:\n  steps: 1\n  steps: 2", "duplicate key 'steps'"),
        ("- 1", "found a list, expected sections"),
        ("training: [", "not valid YAML"),
        ("audio: &a {x: *a}", "aliases are not allowed"),
        ("? [a]\n: 1", "not valid YAML"),
        ("training: {seed: 2001-99-99}", "training.seed='2001-99-99'"),
        ("training: {seed: !!int abc}", "not valid YAML"),
        ("[" * 5_000, "not valid YAML"),
        ("audio: {floor: .inf}", "audio.floor=inf"),
        ("limits: {max_seconds: .nan}", "limits.max_seconds=nan"),
        ("model: {width: 4000000}", "model.width=4000000: input should be less than or equal to 16384"),
        ("limits: {max_mel_frames: 1000000000}", "limits.max_mel_frames=1000000000"),
        ("training: {seed: -1}", "training.seed=-1"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("model: {width: 30, heads: 4}", "width=30 is not a multiple of heads=4"),
        ("model: {width: 15, heads: 5}", "width=15 is odd"),
        ("audio: {max_hz: 20000.0}", "max_hz=20000 is over half of sample_rate=22050"),
        ("text: {symbols: ''}", "text.symbols=''"),
    ],
)
def test_an_error_names_file_key_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([write(tmp_path / "bad.yaml", text)])
    assert message in str(caught.value)
    assert "bad.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin-1.yaml").write_bytes("text: {symbols: é}".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin-1.yaml: byte 16 is not UTF-8; save the file as UTF-8$"):
        load_config([tmp_path / "latin-1.yaml"])


def test_all_problems_are_listed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "training: {batch_size: 0, stps: 1}\n")
    with pytest.raises(ConfigError) as caught:
        load_config([file], ["audio.mel_bins=-1"])
    for part in ("batch_size=0", "training.steps?", "audio.mel_bins=-1"):
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["training.steps", "=3", "training.=3", ".steps=3"])
def test_a_malformed_override_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected section.key=value"):
        load_config(overrides=[text])


def test_an_override_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds bytes that are not UTF-8"):
        load_config(overrides=["text.symbols=\udcff"])


def test_a_huge_config_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found 1048577 bytes, expected at most 65536"):
        load_config([write(tmp_path / "a.yaml", "#" * (1 << 20) + "\n")])


def test_a_long_list_of_problems_is_cut() -> None:
    overrides = [f"training.no_such_key_{number}=1" for number in range(50)]
    with pytest.raises(ConfigError, match="30 more problems"):
        load_config(overrides=overrides)


@pytest.mark.parametrize(
    "text", ["a." * 2_000 + "a=1", "training.steps=" + "[" * 5_000, "training.seed=" + "9" * 6_000]
)
def test_the_error_of_a_huge_override_is_short(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[text])
    assert len(str(caught.value)) < 500


def test_settings_that_are_no_regular_file_are_refused_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for found in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(ConfigError, match=f"--config {found}: found no regular file, expected a YAML file"):
            find_config_file(str(found))


def test_the_error_of_a_missing_preset_lists_the_presets() -> None:
    with pytest.raises(ConfigError, match=r"no such file or preset; known are .*ljspeech"):
        find_config_file("nothing")
    assert {"ljspeech", "ljspeech-800", "smoke", "tiny", "small", "base", "large", "demo"} <= set(preset_names())


@pytest.mark.parametrize(
    ("overrides", "sources"),
    [
        (
            ["training.batch_size=4", "training.accumulation_steps=3", "training.steps=4"],
            "--set training.batch_size=4, --set training.accumulation_steps=3",
        ),
        (
            ["training.accumulation_steps=5", "training.steps=4"],
            "the cache's settings, --set training.accumulation_steps=5",
        ),
    ],
)
def test_a_contradiction_names_each_place_of_its_settings_and_no_other(overrides: list[str], sources: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides, base={"training": {"batch_size": 9}})
    size, steps = (4, 3) if len(overrides) == 3 else (9, 5)
    problem = f"training: batch_size={size} is not a multiple of accumulation_steps={steps}"
    assert str(caught.value) == f"{sources}: {problem}"


def test_a_step_that_is_not_compiled_cannot_be_tuned() -> None:
    with pytest.raises(ConfigError, match="debug_eager=true with autotune=true"):
        load_config(overrides=["training.debug_eager=true", "training.autotune=true"])


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().training.steps = 3  # type: ignore[misc]


def test_buckets_are_pairs_auto_or_none_and_survive_yaml(tmp_path: Path) -> None:
    config = load_config(overrides=["data.buckets=[[100, 440], [150, 440], [200, 880]]"])
    assert config.data.buckets == ((100, 440), (150, 440), (200, 880))
    assert load_config([write(tmp_path / "a.yaml", dump_config(config))]) == config
    assert load_config(overrides=["data.buckets=auto"]).data.buckets == "auto"
    assert load_config(overrides=["data.buckets=null"]).data.buckets is None
    assert Config().data.buckets == "auto"


@pytest.mark.parametrize(
    ("buckets", "problem"),
    [
        (
            "[[100, 440], [200, 800]]",
            "the last one is [200, 800], expected the limits [200, 880]; add [200, 880], or set limits.",
        ),
        (
            "[[100, 440], [100, 440], [200, 880]]",
            "bucket [100, 440] comes after [100, 440], expected a larger one",
        ),
        (
            "[[150, 300], [100, 440], [200, 880]]",
            "bucket [100, 440] comes after [150, 300], expected a larger one",
        ),
        ("[[0, 440], [200, 880]]", "bucket [0, 440] holds nothing"),
        (str([[10 * number, 88] for number in range(1, 21)]), "found 20 buckets, expected at most 8"),
        ("[]", "found [], expected [[max_text_length, max_mel_frames], ...]"),
        ("[200, 880]", "found [200, 880], expected [["),
        ("[[200]]", "found [[200]], expected [["),
        ("[[200, 880.0]]", "found [[200, 880.0]], expected [["),
        ("[[true, 880]]", "found [[True, 880]], expected [["),
        ("[[100, 440], 7]", "found [[100, 440], 7], expected [["),
        ("automatic", "found 'automatic', expected [["),
        ("{a: 1}", "found {'a': 1}, expected [["),
    ],
)
def test_invalid_buckets_are_one_line(buckets: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[f"data.buckets={buckets}"])
    assert problem in str(caught.value)
    assert str(caught.value).startswith("--set data.buckets=")
    assert "\n" not in str(caught.value)


def test_a_section_whose_keys_are_all_comments_sets_nothing(tmp_path: Path) -> None:
    assert load_config([write(tmp_path / "a.yaml", "training:\n  # steps: 5\n")]) == Config()
