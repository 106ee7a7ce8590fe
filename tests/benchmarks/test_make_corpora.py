"""The benchmark corpora fit their names, and the same arguments make the same bytes."""

from pathlib import Path

import pytest
import soundfile

from benchmarks import make_corpora
from benchmarks.make_corpora import Clip, clips_of, make_corpus, persian_sentences, portions, read_transcripts
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.config.load import load_config
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import CorpusError

ENGLISH = [("a1", "The rain came early."), ("a2", "A small boat waits."), ("a3", "Hold the rope.")]


def test_transcripts_are_read_in_order_and_long_ones_left_out(tmp_path: Path):
    table = tmp_path / "transcripts.csv"
    table.write_text("a1|One two.|Said  so.\na2|Very much longer than that.\na3|Short.\na4|Also.\n", encoding="utf-8")

    assert read_transcripts(table, 2, 10) == [("a1", "Said so."), ("a3", "Short.")]
    assert len(read_transcripts(None, None, None)) == 60


@pytest.mark.parametrize("line", ["no bar", "../up|text", "|text"])
def test_a_line_that_is_no_transcript_is_named(tmp_path: Path, line: str):
    table = tmp_path / "transcripts.csv"
    table.write_text(f"a1|Fine.\n{line}\n", encoding="utf-8")

    with pytest.raises(CorpusError, match=r"transcripts.csv:2: found .*expected id\|text"):
        read_transcripts(table, None, None)


def test_two_languages_are_the_one_voice_and_the_persian_sentences():
    one_voice, both = list(clips_of("one-voice", ENGLISH, ())), list(clips_of("two-languages", ENGLISH, ()))

    assert both[:3] == one_voice
    assert [clip.text for clip in both[3:]] == persian_sentences()
    assert {(clip.language, clip.speaker, clip.voice) for clip in both} == {
        ("en", "plain", "en-us"),
        ("fa", "plain", "fa"),
    }


def test_eight_voices_share_the_rows_in_turn():
    clips = list(clips_of("eight-voices", ENGLISH, ("ian", "f2")))

    assert [(clip.id, clip.speaker, clip.language) for clip in clips] == [
        ("a1", "ian", "en"),
        ("a3", "ian", "en"),
        ("a2", "f2", "en"),
    ]


def test_a_process_speaks_one_voice_and_never_too_many_clips(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(make_corpora, "CLIPS_PER_PROCESS", 2)
    clips = [Clip(f"c{number}", "text", voice) for number, voice in enumerate(["en-us"] * 3 + ["fa"] * 2)]

    assert [len(portion) for portion in portions(clips)] == [2, 1, 2]


def test_the_corpus_is_the_same_with_any_jobs_and_each_row_is_read_in_its_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(make_corpora, "CLIPS_PER_PROCESS", 2)
    monkeypatch.setattr(make_corpora, "persian_sentences", lambda: ["قایق کوچک به ساحل رسید."])
    clips = list(clips_of("two-languages", ENGLISH, ()))

    for jobs in (1, 2):
        make_corpus(tmp_path / str(jobs), clips, 165, jobs)

    one, two = (
        {path.relative_to(tmp_path / jobs): path.read_bytes() for path in (tmp_path / jobs).rglob("*.*")}
        for jobs in "12"
    )
    assert one == two
    assert len(one) == 5
    assert soundfile.info(tmp_path / "1" / "fa" / "plain" / "fa-0001.wav").duration > 1
    index = index_corpora([read_corpus(tmp_path / "1", language="de")], load_config((), ["text.tokens=phonemes"]))
    assert (index.layout, index.languages, index.speakers, index.rejections) == (
        "manifest",
        ("en", "fa"),
        ("plain",),
        (),
    )
    spoken = {row.id: row.text for row in index.rows}
    assert spoken["fa-0001"] == "qˈɑjeq kˈuːtʃak beː sˈɑhel rˈesid."
    assert spoken["a3"] == "hˈoʊld ðə ɹˈoʊp."
