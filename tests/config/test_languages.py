"""A language has one code, however it is written."""

import pytest

from xtts_pipeline.config.languages import canonical_language, find_language, nearest_language
from xtts_pipeline.config.load import load_config
from xtts_pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("de", "de"), ("DE", "de"), ("deu", "de"), ("ger", "de"), ("german", "de"), ("Deutsch", "de"),
        ("de_de", "de-DE"), ("en_uk", "en-GB"), ("zh-hant", "zh-Hant"), ("Farsi", "fa"), ("kz", "kk"),
        ("iw", "he"), ("mi", "mi"),
        ("cmn", "cmn"), ("en-gb-x-rp", "en-GB-x-rp"), (" fr ", "fr"),
    ],
)  # fmt: skip
def test_a_language_written_in_any_way_has_one_code(written: str, code: str) -> None:
    assert canonical_language(written) == code
    assert canonical_language(code) == code


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("germn", "did you mean german?"), ("cn", "did you mean zh?"), ("xx", "such as af, am, ar"),
        ("und", "such as af"), ("de.UTF-8", "such as af"), ("", "such as af"), ("e\n", "such as af"),
    ],
)  # fmt: skip
def test_an_unknown_language_is_refused_in_one_line(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="is not known") as refused:
        canonical_language(written)
    assert remedy in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_take_any_name_of_a_language() -> None:
    assert load_config(overrides=["text.language=German"]).text.language == "de"
    with pytest.raises(ConfigError, match=r"^--set text.language=germn: language 'germn' is not known"):
        load_config(overrides=["text.language=germn"])


def test_settings_of_an_earlier_cache_or_run_stay_readable() -> None:
    assert load_config(base={"text": {"language": "xx_YY"}}).text.language == "xx_YY"
    assert find_language("german", ["en", "DE"]) == "DE"
    assert find_language("fr", ["en", "DE", "xx_YY"]) is None


@pytest.mark.parametrize(
    ("wanted", "known", "nearest"),
    [
        ("de-AT", ["en", "de"], "de"),
        ("German", ["en", "DE"], "DE"),
        ("en", ["de", "en-US", "en-GB"], "en-US"),
        ("en-GB", ["en-US", "en", "en-GB"], "en-GB"),
        ("zh-Hant-TW", ["zh", "zh-Hant", "zh-Hans"], "zh-Hant"),
        ("zh-Hant-TW", ["mandarin", "zh-Hant"], "zh-Hant"),
        ("en-GB", ["en-US"], None),
        ("enm", ["en"], None),
        ("", ["en"], None),
    ],
)
def test_a_region_is_spoken_in_its_language(wanted: str, known: list[str], nearest: str | None) -> None:
    assert nearest_language(wanted, known) == nearest
