"""What a checkpoint knows of the voices of its clips."""

from pathlib import Path

import pytest

from tests.cache.corpora import build, make_config, write_corpus
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.online import OnlineSource
from xtts_pipeline.data.survey import survey_corpus


def write_voices(root: Path, voices: list[tuple[str, str]]) -> Path:
    """Write a corpus with a speaker and a language of each clip."""
    write_corpus(root, len(voices))
    (root / "metadata.csv").unlink()
    rows = (f"clip-{number:03d}.wav|this is {number}|{'|'.join(voice)}\n" for number, voice in enumerate(voices))
    (root / "manifest.csv").write_text("".join(["audio|text|speaker|language\n", *rows]))
    return root


def identities(root: Path, voices: list[tuple[str, str]], broken: str = "") -> list[CacheIdentity]:
    data, config = write_voices(root / "data", voices), make_config()
    if broken:
        (data / "wavs" / f"{broken}.wav").write_bytes(b"RIFF")
    build(data, root / "cache")
    survey = survey_corpus(index_corpora([read_corpus(data)], config), config, lambda _rows: None)
    sources = CachedSource(root / "cache", load_manifest(root / "cache")), OnlineSource(data, survey, config)
    return [source.identity() for source in sources]


def test_a_speaker_has_the_language_of_most_of_its_clips(tmp_path: Path) -> None:
    voices = [("anna", "en")] * 4 + [("anna", "de")] * 2 + [("ben", "de")] * 4 + [("cara", "en"), ("cara", "de")]
    for identity in identities(tmp_path, voices):
        assert identity.speaker_languages == ("en", "de", "de")
        chosen = [identity.default_language(name) for name in (None, "anna", "ben", "nobody")]
        assert chosen == ["en", "en", "de", "en"]


def test_a_speaker_without_a_kept_clip_takes_no_language_from_others(tmp_path: Path) -> None:
    voices = [("anna", "en")] * 4 + [("ben", "de")] * 4 + [("cara", "en")]
    for identity in identities(tmp_path, voices, broken="clip-008"):
        assert identity.speaker_languages == ("en", "de", "de")


@pytest.mark.parametrize("voices", [[("anna", "de"), ("ben", "de")], [("anna", "en"), ("anna", "de")]])
def test_with_one_speaker_or_one_language_there_is_nothing_to_know(
    tmp_path: Path, voices: list[tuple[str, str]]
) -> None:
    for identity in identities(tmp_path, voices * 4):
        assert identity.speaker_languages == ()
        assert identity.default_language(None) == "de"


def test_a_speaker_is_found_in_either_form_of_its_letters(tmp_path: Path) -> None:
    for identity in identities(tmp_path, [("Ann", "en"), ("José", "es")]):
        assert [identity.default_language(f"Jos{letter}") for letter in ("é", "e\u0301")] == ["es", "es"]
