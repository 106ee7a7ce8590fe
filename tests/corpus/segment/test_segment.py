import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.calling import refusal, xtts
from tests.json_lines import read_json_lines
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.corpus.demo.espeak import EspeakVoice, demo_sentences
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.segment.cut import CutClip, Misfit
from xtts_pipeline.corpus.segment.segment import Recording, SegmentReport, find_recordings, segment_corpus
from xtts_pipeline.corpus.segment.speech import hear
from xtts_pipeline.errors import CorpusError, OutputError
from xtts_pipeline.text.normalize import normalize

SENTENCES = ["Mr. Brown paid $25 in 1990, and on 3 May he sold it.", *demo_sentences()[:35]]
FOREIGN, UNREAD = slice(12, 15), slice(24, 27)  # sentences without text, sentences without sound
NOISE = 10 ** (-25 / 20)

Word = tuple[float, float, str]


def spell(sentence: str) -> list[str]:
    return normalize(sentence, TextConfig(lowercase=False), "en").split()


def speak_book(path: Path, sentences: list[str]) -> list[Word]:
    """Write sentences in another voice and pace than the aligner's, with noise; return the time of each word."""
    generator = np.random.default_rng(0)
    waves, words, samples = [], [], 0
    with EspeakVoice("en-gb-x-rp+f3", 185) as voice:
        for sentence in sentences:
            wave, starts = voice.speak_words(spell(sentence))
            for start, end, word in zip(starts, [*starts[1:], len(wave)], spell(sentence), strict=True):
                loud = start + np.flatnonzero(np.abs(wave[start:end]) > 100)
                first, last = (loud[0], loud[-1] + 1) if len(loud) else (start, start)
                words.append(((samples + first) / voice.sample_rate, (samples + last) / voice.sample_rate, word))
            pause = np.zeros(int(generator.uniform(0.2, 0.8) * voice.sample_rate))
            waves += [wave / 32_768, pause]
            samples += len(wave) + len(pause)
        rate = voice.sample_rate
    book = np.concatenate(waves)
    book += NOISE * np.sqrt(np.mean(book**2)) * generator.standard_normal(len(book))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, book, rate, subtype="PCM_16")
    return words


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Word]]:
    """Return a folder of one recording, and its words; some sentences have no text, and some text has no sound."""
    folder = tmp_path_factory.mktemp("book")
    heard = SENTENCES[: UNREAD.start] + SENTENCES[UNREAD.stop :]
    words = speak_book(folder / "chapter 1.wav", heard)
    (folder / "chapter 1.txt").write_text("\n".join(SENTENCES[: FOREIGN.start] + SENTENCES[FOREIGN.stop :]))
    return folder, words


@pytest.fixture(scope="module")
def corpus(book: tuple[Path, list[Word]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut") / "corpus"
    segment_corpus(book[0], folder, "en", 10.0)
    return folder


def test_clips_have_exactly_their_words(book: tuple[Path, list[Word]], corpus: Path):
    clips = read_json_lines(corpus / "clips.jsonl")
    spoken = [
        [word for start, end, word in book[1] if clip["start"] < (start + end) / 2 < clip["end"]] for clip in clips
    ]

    assert len(clips) > 10
    assert [clip["text"].split() for clip in clips] == spoken
    assert all(0.5 <= clip["confidence"] <= 1 for clip in clips)


def test_no_cut_is_within_a_word(book: tuple[Path, list[Word]], corpus: Path):
    cuts = [clip[side] for clip in read_json_lines(corpus / "clips.jsonl") for side in ("start", "end")]

    assert [word for cut in cuts for word in book[1] if word[0] + 0.02 < cut < word[1] - 0.02] == []


def test_numbers_and_abbreviations_are_spelled_out(corpus: Path):
    assert read_json_lines(corpus / "clips.jsonl")[0]["text"].startswith("mister Brown paid twenty-five dollars")


def test_a_passage_without_text_is_listed_and_left_out(book: tuple[Path, list[Word]], corpus: Path):
    words_before = sum(len(spell(sentence)) for sentence in SENTENCES[: FOREIGN.start])
    words_inside = sum(len(spell(sentence)) for sentence in SENTENCES[FOREIGN])
    start, end = book[1][words_before][0], book[1][words_before + words_inside - 1][1]
    left_out = [line for line in read_json_lines(corpus / "left_out.jsonl") if line["problem"] == "sound_without_text"]
    kept = read_json_lines(corpus / "clips.jsonl")

    assert sum(line["end"] - line["start"] for line in left_out) > 0.5 * (end - start)
    assert all(start - 0.5 < line["start"] < line["end"] < end + 0.5 for line in left_out)
    assert [clip for clip in kept if clip["end"] > start + 0.1 and clip["start"] < end - 0.1] == []


def test_text_that_nobody_speaks_is_listed_and_no_word_is_lost(corpus: Path):
    lines = read_json_lines(corpus / "clips.jsonl") + read_json_lines(corpus / "left_out.jsonl")
    unread = [line["text"] for line in lines if line.get("problem") == "text_without_sound"]
    transcript = SENTENCES[: FOREIGN.start] + SENTENCES[FOREIGN.stop :]
    in_order = sorted((line for line in lines if line["text"]), key=lambda line: line["id"])

    assert " ".join(unread) == " ".join(" ".join(spell(sentence)) for sentence in SENTENCES[UNREAD])
    assert " ".join(line["text"] for line in in_order) == " ".join(" ".join(spell(line)) for line in transcript)


def test_the_corpus_is_read_without_an_option_at_the_rate_of_the_source(corpus: Path):
    read = read_corpus(corpus)
    kept = {line["id"]: line for line in read_json_lines(corpus / "clips.jsonl")}

    assert read.reading.layout == "ljspeech"
    assert [row.text for row in read.utterances] == [line["text"] for line in kept.values()]
    assert not read.rejections
    for clip_id, line in kept.items():
        sound = soundfile.info(corpus / "wavs" / f"{clip_id}.wav")
        assert sound.samplerate == 22_050
        assert sound.duration == pytest.approx(line["end"] - line["start"], abs=0.01)


def test_a_transcript_of_another_book_is_refused_in_one_line(book: tuple[Path, list[Word]], tmp_path: Path):
    (tmp_path / "book.wav").symlink_to(book[0] / "chapter 1.wav")
    (tmp_path / "book.txt").write_text("\n".join(demo_sentences()[36:]))

    with pytest.raises(
        CorpusError, match=r"book.txt: its words explain \d% of the speech in book.wav, expected"
    ) as error:
        segment_corpus(tmp_path, tmp_path / "out", "en", 10.0)

    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_recording_without_a_transcript_is_cut_only(book: tuple[Path, list[Word]], tmp_path: Path):
    sound, output = book[0] / "chapter 1.wav", tmp_path / "out"
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "b.wav").symlink_to(sound)

    result = xtts("segment", "--data", tmp_path / "alone", "--output", output)

    assert result.exit_code == 0, result.output
    assert "without a transcript: 1 of them, cut only" in result.output
    table = output / "untranscribed" / "metadata.csv"
    assert f"next: write {table} with the header file,text and a row for each clip" in result.output
    assert not (output / "metadata.csv").exists()
    lengths = [soundfile.info(file).duration for file in (output / "untranscribed").iterdir()]
    assert len(lengths) > 10
    assert max(lengths) <= 10


def test_a_recording_of_which_nothing_is_kept_is_not_said_to_be_cut():
    long = CutClip(0.0, 30.0, problem=Misfit.TOO_LONG)
    text = SegmentReport(Path("out"), [Recording("a", Path("a.wav"), None)], [[long]], []).to_text()
    assert "cut only" not in text


def test_clips_without_a_text_have_no_confidence_and_no_part_in_the_next_step():
    recordings = [Recording("a", Path("a.wav"), Path("a.txt")), Recording("b", Path("b.wav"), None)]
    spoken, cut = CutClip(0.0, 3.0, "one", 0.9), CutClip(0.0, 4.0)
    assert SegmentReport(Path("out"), recordings, [[spoken], [cut, cut]], []).to_json()["median_confidence"] == 0.9
    left_out = replace(spoken, problem=Misfit.TOO_LONG)
    said = SegmentReport(Path("out"), recordings, [[left_out], [cut]], []).to_text()
    assert said.splitlines()[-1].startswith(f"next: write {Path('out/untranscribed/metadata.csv')}")


def test_chapters_are_found_in_folders_with_their_texts(tmp_path: Path):
    for name in ("one/a.flac", "one/a.txt", "one/b.wav", "two/x.mp3", "two/words.txt", "TWO/Y.WAV", "TWO/Y.TXT"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = [(item.id, item.transcript and item.transcript.name) for item in find_recordings(tmp_path)]

    assert found == [("TWO_Y", "Y.TXT"), ("one_a", "a.txt"), ("one_b", None), ("two_x", "words.txt")]


def test_of_a_file_nothing_else_is_looked_at(tmp_path: Path):
    (tmp_path / "below").mkdir()
    for name in ("talk.wav", "README.txt", "below/other.wav", "below/song.m4a"):
        (tmp_path / name).touch()

    (found,) = find_recordings(tmp_path / "talk.wav")

    assert (found.id, found.transcript) == ("talk", None)
    with pytest.raises(CorpusError, match=r"missing\.wav: no sound; expected long recordings"):
        find_recordings(tmp_path / "missing.wav")


def test_one_unusable_recording_does_not_stop_the_others(book: tuple[Path, list[Word]], tmp_path: Path):
    folder, good = tmp_path / "books", next(book[0].glob("*.wav"))
    folder.mkdir()
    shutil.copy(good, folder / "good.wav")
    shutil.copy(good.with_suffix(".txt"), folder / "good.txt")
    (folder / "bad.wav").write_bytes(b"RIFF")
    (folder / "bad.txt").write_text("some words")
    shutil.copy(good, folder / f"{'long' * 62}.wav")  # its clips would have names of 258 bytes
    # What a Mac leaves beside each file.
    for name in ("._good.wav", "._good.txt"):
        (folder / name).write_bytes(b"\0\5\x16\7")
    result = xtts("segment", "--data", folder, "--output", tmp_path / "clips", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["recordings"], len(report["problems"])) == (3, 2)
    assert "bad.wav" in report["problems"][0]
    assert "is longer than 255 bytes a name" in report["problems"][1]
    assert {line["source"] for line in read_json_lines(tmp_path / "clips" / "clips.jsonl")} == {
        str(folder / "good.wav")
    }
    (folder / "good.wav").unlink()
    with pytest.raises(CorpusError, match=r"bad\.wav"):
        segment_corpus(folder, tmp_path / "none", "en", 10.0)


def test_a_recording_that_fails_is_not_counted_among_those_cut_and_makes_no_folder(
    book: tuple[Path, list[Word]], tmp_path: Path
):
    folder, output = tmp_path / "books", tmp_path / "clips"
    shutil.copytree(book[0], folder)
    (folder / "empty.wav").touch()
    result = xtts("segment", "--data", folder, "--output", output)
    assert result.exit_code == 0, result.output
    assert f"warning: {folder / 'empty.wav'}: the file has 0 bytes; expected a sound file" in result.output
    assert "without a transcript" not in result.output
    assert sorted(path.name for path in output.iterdir() if path.is_dir()) == ["wavs"]


@pytest.mark.parametrize(("sure", "end"), [(120, "; 28 s of speech may be too short to find its words"), (20, "")])
def test_the_words_of_a_short_recording_may_be_right(
    book: tuple[Path, list[Word]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sure: int, end: str
):
    monkeypatch.setattr("xtts_pipeline.corpus.segment.segment.SEGMENTED_SECONDS", sure)
    wave, rate = soundfile.read(book[0] / "chapter 1.wav", stop=40 * 22_050)
    soundfile.write(tmp_path / "book.wav", wave, rate)
    (tmp_path / "book.txt").write_text("\n".join(demo_sentences()[36:44]))
    with pytest.raises(CorpusError, match=f"check the pair and --language{end}$"):
        segment_corpus(tmp_path, tmp_path / "out", "en", 10.0)


def test_a_sound_of_an_unusual_rate_is_refused_in_one_line(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", np.zeros(384_000, np.float32), 384_000)
    with pytest.raises(CorpusError, match=r"a\.wav: 384000 samples a second, expected 4000 to 192000; resample it$"):
        hear(tmp_path / "a.wav")


def test_of_a_cut_recording_nothing_is_made_up(tmp_path: Path):
    soundfile.write(tmp_path / "a.mp3", 0.1 * np.random.default_rng(0).standard_normal(200 * 22_050), 22_050)
    whole = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "a.mp3").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"a\.mp3: truncated, the header promises 44\d{5} samples and 2\d{6} can"):
        hear(tmp_path / "a.mp3")


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        (np.full(100_000, 1e30), r"a sample is 1e\+30; expected at most 16, where full scale is 1"),
        (np.full(100_000, np.nan), "the wave or its spectrum is not finite; expected samples between -1 and 1"),
    ],
    ids=["huge", "NaN"],
)
def test_samples_far_over_full_scale_and_those_that_are_no_numbers_are_refused_in_one_line(
    tmp_path: Path, samples: np.ndarray, found: str
):
    samples[:50_000] = 0.1 * np.random.default_rng(0).standard_normal(50_000)
    soundfile.write(tmp_path / "a.wav", samples, 22_050, subtype="FLOAT")
    with pytest.raises(CorpusError, match=rf"a\.wav: {found}$"):
        hear(tmp_path / "a.wav")


def test_a_recording_without_speech_makes_no_corpus(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", np.zeros(22_050 * 30), 22_050)
    assert "a.wav: found no speech" in refusal("segment", "--data", tmp_path / "a.wav", "--output", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_no_next_step_is_named_if_no_clip_is_left(book: tuple[Path, list[Word]], tmp_path: Path):
    result = xtts("segment", "--data", book[0], "--output", tmp_path / "new", "--max-seconds", 2)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "no clip is left, so there is no next step"


def test_a_format_that_is_not_read_is_named_with_what_to_do(tmp_path: Path):
    (tmp_path / "Memo 1.m4a").touch()
    with pytest.raises(CorpusError, match=r"Memo 1.m4a: a format that is not read; expected WAV.*convert it"):
        find_recordings(tmp_path)


def test_a_full_disk_is_not_blamed_on_the_recording(
    book: tuple[Path, list[Word]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"clips: cannot be written \(No space left on device\); free space"):
        segment_corpus(book[0], tmp_path / "clips", "en", 10.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("written", "found"), [("Deutsch", "de"), ("en-us", "en-US"), ("en-us+f3", "en-us+f3")])
def test_a_language_is_written_as_in_other_commands_or_as_a_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, found: str
):
    asked: list[str] = []
    monkeypatch.setattr("xtts_pipeline.cli.commands.segment.segment_corpus", lambda *words: asked.append(words[2]))
    monkeypatch.setattr("xtts_pipeline.cli.commands.segment.print_report", lambda *_: None)
    assert xtts("segment", "--data", tmp_path, "--output", tmp_path / "new", "--language", written).exit_code == 0
    assert asked == [found]


def test_a_folder_without_sound_is_an_error(tmp_path: Path):
    with pytest.raises(
        CorpusError, match=r"no sound; expected long recordings such as book\.wav, each beside book\.txt"
    ):
        find_recordings(tmp_path)


def test_a_label_file_is_no_transcript_of_a_recording(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", 0.1 * np.random.default_rng(0).standard_normal(22_050), 22_050)
    (tmp_path / "a.txt").write_text("0.000000\t3.200000\tHello there.\n")
    with pytest.raises(CorpusError, match=r"a\.txt: holds times, as a label file does; expected the words alone$"):
        segment_corpus(tmp_path, tmp_path / "clips", "en", 10.0)


def test_a_recording_that_fails_while_its_clips_are_written_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clips = [CutClip(start, start + 1.0, "one two", 1.0) for start in (0.0, 2.0)]
    monkeypatch.setattr("xtts_pipeline.corpus.segment.segment._cut", lambda *_: (clips, 8_000, ""))
    for name, seconds in (("bad", 1), ("good", 3)):
        soundfile.write(tmp_path / f"{name}.wav", np.full(seconds * 8_000, 0.1), 8_000)
        (tmp_path / f"{name}.txt").write_text("one two one two")
    report = segment_corpus(tmp_path, tmp_path / "clips", "en", 10.0)
    assert len(report.problems) == 1
    assert "bad.wav: cannot be cut at 2.0 s" in report.problems[0]
    assert sorted(path.name for path in (tmp_path / "clips" / "wavs").iterdir()) == ["good-0001.wav", "good-0002.wav"]
    assert [line["id"] for line in read_json_lines(tmp_path / "clips" / "clips.jsonl")] == ["good-0001", "good-0002"]
    assert report.clips == [[], clips]
