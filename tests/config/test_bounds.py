"""Every setting at and beyond its bounds, in every spelling: it works, or it is refused in one line."""

import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from xtts_pipeline.config import load
from xtts_pipeline.config.load import StrictLoader, dump_config, load_config, read_yaml, to_yaml
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError

SECTIONS = {name: field.annotation.model_json_schema() for name, field in Config.model_fields.items()}  # type: ignore[union-attr]
KEYS = {
    f"{section}.{key}": found for section, schema in SECTIONS.items() for key, found in schema["properties"].items()
}
# Valid YAML for any key: other types, other spellings of numbers, and what does not fit a machine word or a float.
ANYTHING = """
0 -0 1 -1 0100 1:30 1_000 0x10 0o17 1e308 -1e308 1e309 5e-324 .inf -.inf .nan 2147483647 2147483648 9223372036854775808
-9223372036854775809 true no null ~ auto text [] [[1,1]] {} {a:1} 2001-01-01 '1' !!int !!float !!binary !!set
""".split()  # noqa: SIM905 (a table of words)
ANYTHING += ["", "9" * 500, "9" * 20_000, "0." + "1" * 20_000, "1e" + "9" * 5_000, "0x" + "f" * 20_000, "a" * 20_000]
ANYTHING += [f"[{'[1,1],' * 200}]", "[" * 500, "\ufeff", "\u0085", "\U0001f600", "!!int abc", "!!set {a}"]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail if the block takes more processor time."""

    def fail(_number: int, _frame: object) -> None:
        pytest.fail(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [inner for choice in schema.get("anyOf", []) for inner in choices(choice)] or [schema]


def numbers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice for choice in choices(schema) if choice.get("type") in ("integer", "number")]


def bounds(schema: dict[str, Any]) -> tuple[float | None, float | None]:
    least, most = (schema.get(name, schema.get(f"exclusive{name.title()}")) for name in ("minimum", "maximum"))
    return least, most


def at_the_bounds(schema: dict[str, Any]) -> Iterator[str]:
    """Yield each bound of a number, and its neighbours inside and outside."""
    for number in numbers(schema):
        for bound in bounds(number):
            yield str(bound)
            yield from (str(bound + step) for step in (-1, 1)) if number["type"] == "integer" else ()
            yield from (repr(math.nextafter(bound, towards)) for towards in (-math.inf, math.inf))
    yield from (str(choice) for kind in choices(schema) for choice in kind.get("enum", [kind.get("const", "auto")]))


DRAWN = {key: [*at_the_bounds(schema), *ANYTHING] for key, schema in KEYS.items()}
SETTING = st.sampled_from(sorted(DRAWN)).flatmap(lambda key: st.tuples(st.just(key), st.sampled_from(DRAWN[key])))


def test_every_number_has_two_finite_bounds() -> None:
    unbounded = [key for key, schema in KEYS.items() for number in numbers(schema) if None in bounds(number)]
    assert unbounded == []


def test_every_text_has_a_length_or_a_choice() -> None:
    texts = {key: kind for key, schema in KEYS.items() for kind in choices(schema) if kind.get("type") == "string"}
    assert [key for key, kind in texts.items() if not {"maxLength", "enum", "const", "pattern"} & set(kind)] == []


@given(st.lists(SETTING, min_size=1, max_size=4))
def test_settings_at_their_bounds_work_or_are_refused_in_one_line(settings: list[tuple[str, str]]) -> None:
    try:
        with within(5):
            config = load_config([], [f"{key}={value}" for key, value in settings])
    except ConfigError as error:
        problems = error.problems
    else:
        json.dumps(config.model_dump(mode="json"), allow_nan=False)
        assert Config.model_validate(yaml.load(dump_config(config), Loader=StrictLoader)) == config  # noqa: S506 (a SafeLoader)
        problems = ()
    assert all("\n" not in problem and len(problem) < 1_500 for problem in problems)


@pytest.mark.parametrize("key", [key for key, schema in KEYS.items() if numbers(schema)])
def test_each_bound_of_a_setting_is_accepted_and_its_neighbour_outside_refused(key: str) -> None:
    section, name = key.split(".")
    for number in numbers(KEYS[key]):
        for bound, step, outside in zip(bounds(number), (1, -1), (-math.inf, math.inf), strict=True):
            is_whole = number["type"] == "integer"
            is_excluded = bound in (number.get("exclusiveMinimum"), number.get("exclusiveMaximum"))
            inner, outer = (bound + step, bound - step) if is_whole else (bound, math.nextafter(bound, outside))
            for value, is_valid in ((bound, not is_excluded), (inner, not is_excluded or is_whole), (outer, False)):
                problems = problems_of({section: {name: value}})
                # A bound may contradict another setting; that is another line.
                assert any(f"{key}={value!r}: input should be" in problem for problem in problems) != is_valid


def problems_of(tree: dict[str, Any]) -> tuple[str, ...]:
    try:
        load.validate_tree(tree, {})
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("written", "read"),
    [("0100", 100), ("-0", 0), ("1_000", 1000), ("0x10", 16), ("0o17", 15), ("017", 17), ("+7", 7)],
)
def test_whole_numbers_are_read_as_people_read_them(tmp_path: Path, written: str, read: int) -> None:
    (tmp_path / "a.yaml").write_text(f"training: {{warmup_steps: {written}}}")
    assert load_config([str(tmp_path / "a.yaml")]).training.warmup_steps == read
    assert load_config([], [f"training.warmup_steps={written}"]).training.warmup_steps == read


def test_a_time_of_day_is_no_number_and_no_is_a_language() -> None:
    with pytest.raises(ConfigError, match=r"training.steps=1:30: input should be a valid integer"):
        load_config(overrides=["training.steps=1:30"])
    assert load_config(overrides=["text.language=no"]).text.language == "no"


@given(st.text(st.sampled_from("0123456789.eExo_:-+~ynNtrufalsY "), min_size=1, max_size=8))
def test_any_text_survives_yaml_as_a_text(text: str) -> None:
    assert yaml.load(to_yaml({"a": text}), Loader=StrictLoader) == {"a": text}  # noqa: S506 (a SafeLoader)


def test_thousands_of_unknown_keys_are_compared_with_the_known_ones_twenty_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    monkeypatch.setattr(load, "did_you_mean", lambda *given, **_: compared.append(given) or "known are many")
    (tmp_path / "a.yaml").write_text("training:\n" + "".join(f" k{number}: 1\n" for number in range(5_000)))
    with pytest.raises(ConfigError, match=r"unknown key training.k0; known are many; .*; 4980 more problems$"):
        load_config([str(tmp_path / "a.yaml")])
    assert len(compared) == 20


def test_a_pipe_and_a_device_are_no_settings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_yaml(path)
