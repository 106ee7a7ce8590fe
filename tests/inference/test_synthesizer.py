from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.speaking import make_run
from xtts_pipeline.audio.reference import load_reference
from xtts_pipeline.errors import AudioError, CheckpointError, ConfigError, Reason, TextError
from xtts_pipeline.inference import synthesizer as synthesis
from xtts_pipeline.inference.pieces import TextSplitter
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer

LONG = "one two three four, five six. seven eight nine; ten.\n\neleven twelve."


@pytest.fixture(scope="module")
def synthesizer(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    return Synthesizer.load(make_run(tmp_path_factory.mktemp("run")))


def write_clip(path: Path, seconds: float, hertz: float, sample_rate: int = 22_050) -> Path:
    wave = 0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * sample_rate)) / sample_rate)
    soundfile.write(path, wave, sample_rate, subtype="PCM_16")
    return path


def assert_same_speech(found: SpokenText, expected: SpokenText) -> None:
    assert (found.text, found.has_stopped) == (expected.text, expected.has_stopped)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.mel, expected.mel, atol=1e-3)
    np.testing.assert_allclose(found.durations, expected.durations, atol=1e-3)


def pauses(spoken: SpokenText, synthesizer: Synthesizer) -> list[int]:
    """Return the lengths of the silent stretches of the mel."""
    is_silent = np.all(spoken.mel == synthesizer.silence(1), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_silent, [0]])))
    return [int(end - start) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def test_speech_is_capped_by_its_text_and_says_so(synthesizer: Synthesizer) -> None:
    spoken = synthesizer.synthesize("abc")
    assert spoken.mel.shape == (10, 20)  # 5 tokens, 2 frames each at most
    assert not spoken.has_stopped
    assert len(spoken.wave) == 9 * 256
    assert spoken.durations.sum() == pytest.approx(10)
    assert synthesizer.symbols(spoken.tokens) == ["<begin>", *"abc", "<end>"]


def test_planned_durations_end_each_piece_of_any_text(tmp_path: Path) -> None:
    brief = Synthesizer.load(make_run(tmp_path, token_frames=1.0))
    # 250 pieces and the marks between them: no text hangs, and none is too long.
    for text in ("a", "7", "abcdefghi " * 500, "x" * 300, "... , ; a"):
        spoken = brief.synthesize(text)
        assert spoken.has_stopped
        assert np.isfinite(spoken.wave).all()


@settings(max_examples=6)
@given(
    texts=st.lists(
        st.text("abc ,.;", min_size=1, max_size=40).filter(lambda text: any(map(str.isalpha, text))),
        min_size=1,
        max_size=5,
    )
)
def test_a_batch_is_what_its_texts_are_alone(synthesizer: Synthesizer, texts: list[str]) -> None:
    together = synthesizer.synthesize_batch(texts)
    for text, spoken in zip(texts, together, strict=True):
        assert_same_speech(spoken, synthesizer.synthesize(text))


class Mels:
    """Hands the mel's first column on as sound, frame by frame, so that what is pushed can be seen."""

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        return log_mel[:, 0]

    def stream(self) -> "Mels":
        return self

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        return log_mel[:, 0]

    def finish(self) -> np.ndarray:
        return np.zeros(0, np.float32)


@pytest.mark.parametrize("text", ["abc", LONG])
def test_a_stream_is_the_speech_of_the_whole(synthesizer: Synthesizer, text: str) -> None:
    plain = Synthesizer(synthesizer.checkpoint, Mels())
    speech = plain.stream(text)
    waves = list(speech)
    whole = plain.synthesize_batch([text])[0]
    assert len(waves) > 1 or text == "abc"
    np.testing.assert_allclose(np.concatenate(waves), whole.wave, atol=1e-4)
    assert (speech.mel_frames, speech.has_stopped) == (len(whole.mel), whole.has_stopped)


def test_streamed_sound_has_every_sample(synthesizer: Synthesizer) -> None:
    waves = list(synthesizer.stream(LONG))
    assert sum(map(len, waves)) == len(synthesizer.synthesize(LONG).wave)
    assert all(wave.dtype == np.float32 and np.isfinite(wave).all() for wave in waves)


def test_long_text_is_said_in_pieces_with_pauses(synthesizer: Synthesizer) -> None:
    spoken = synthesizer.synthesize(LONG)
    names = synthesizer.symbols(spoken.tokens)
    pieces = "".join(names).replace("<begin>", "").split("<end>")
    assert pieces == ["one two three four,", "five six.", "seven eight nine; ten.", "eleven twelve.", ""]
    # After clause, sentence and paragraph: 0.15, 0.35 and 0.5 s, in steps of 3 frames of 256 samples.
    expected = [round(seconds * 22_050 / 768) * 3 for seconds in (0.15, 0.35, 0.5)]
    assert [pause - pause % 3 for pause in pauses(spoken, synthesizer)] == expected
    assert len(spoken.wave) == (len(spoken.mel) - 1) * 256


def test_references_change_the_voice_and_not_the_length(synthesizer: Synthesizer, tmp_path: Path) -> None:
    low, high = (
        write_clip(tmp_path / "low.wav", 0.6, 200.0),
        write_clip(tmp_path / "high.wav", 2.0, 3_000.0, sample_rate=8_000),
    )
    plain = synthesizer.synthesize("abc").mel
    heard = [synthesizer.synthesize("abc", references=paths).mel for paths in ([low], [high], [low, high], [low, low])]
    for mel in heard:
        assert np.abs(mel - plain).max() > 1e-4
    assert np.abs(heard[0] - heard[1]).max() > 1e-4
    assert np.abs(heard[2] - heard[0]).max() > 1e-4
    np.testing.assert_allclose(heard[3], heard[0], atol=1e-4)


def test_references_whose_content_is_not_known_are_not_taken_for_one_another(
    synthesizer: Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = [write_clip(tmp_path / f"{hz:.0f}.wav", 0.65, hz) for hz in (300.0, 2_000.0)]
    expected = [synthesizer.synthesize("abc", references=clip).mel for clip in clips]
    monkeypatch.setattr(synthesis, "read_regular_file", lambda *_: (tmp_path / "nowhere.wav").read_bytes())
    for clip, mel in zip(clips, expected, strict=True):
        np.testing.assert_array_equal(synthesizer.synthesize("abc", references=clip).mel, mel)


def test_a_reference_is_read_once_and_again_when_it_has_changed(
    synthesizer: Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(
        synthesis, "load_reference", lambda path, audio: read.append(path) or load_reference(path, audio)
    )
    clip = write_clip(tmp_path / "clip.wav", 0.65, 200.0)
    first, again = (synthesizer.synthesize("abc", references=given).mel for given in ([clip], str(clip)))
    np.testing.assert_array_equal(first, again)
    assert read == [clip]
    copy = tmp_path / "copy.wav"
    copy.write_bytes(clip.read_bytes())
    np.testing.assert_array_equal(synthesizer.synthesize("abc", references=[copy]).mel, first)
    assert read == [clip]
    write_clip(clip, 0.85, 3_000.0)
    assert np.abs(synthesizer.synthesize("abc", references=[clip]).mel - first).max() > 1e-4
    assert read == [clip, clip]


def test_speakers_differ_and_the_first_is_the_default(synthesizer: Synthesizer) -> None:
    plain, ann, bob = (synthesizer.synthesize("abc", speaker=name).mel for name in (None, "ann", "bob"))
    np.testing.assert_array_equal(plain, ann)
    assert np.abs(ann - bob).max() > 1e-4


def test_a_speaker_speaks_its_own_language_by_default(tmp_path: Path) -> None:
    two = Synthesizer.load(make_run(tmp_path, languages=("de", "en"), speaker_languages=("en", "de")))
    for speaker, language in (("ann", "en"), ("bob", "de")):
        plain, own = (two.synthesize("abc", speaker=speaker, language=name).mel for name in (None, language))
        np.testing.assert_array_equal(plain, own)
    english, german = (two.synthesize("abc", language=name).mel for name in ("en", "de"))
    assert np.abs(english - german).max() > 1e-4


@pytest.mark.parametrize(
    ("seconds", "hertz", "sample_rate", "reason"),
    [
        (0.1, 200.0, 22_050, Reason.AUDIO_TOO_SHORT),
        (0.0, 200.0, 22_050, Reason.AUDIO_EMPTY),
        (1.0, 0.0, 22_050, Reason.AUDIO_SILENT),
    ],
    ids=["short", "empty", "silent"],
)
def test_a_reference_without_a_voice_is_an_error(
    synthesizer: Synthesizer, tmp_path: Path, seconds: float, hertz: float, sample_rate: int, reason: Reason
) -> None:
    clip = write_clip(tmp_path / "clip.wav", seconds, hertz, sample_rate)
    with pytest.raises(AudioError, match=r"reference .*clip\.wav") as caught:
        synthesizer.synthesize("abc", references=[clip])
    assert caught.value.reason is reason


def test_a_reference_of_ten_minutes_is_heard(synthesizer: Synthesizer, tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.wav", 600.0, 200.0, sample_rate=8_000)
    assert np.isfinite(synthesizer.synthesize("abc", references=[clip]).mel).all()


def test_a_speaker_beside_a_reference_is_an_error(synthesizer: Synthesizer) -> None:
    with pytest.raises(ConfigError, match="a reference takes the speaker's place"):
        synthesizer.synthesize("abc", speaker="ann", references=[Path("a.wav")])


def test_a_model_without_voice_latents_takes_no_reference(tmp_path: Path) -> None:
    synthesizer = Synthesizer.load(make_run(tmp_path, voice_latents=0))
    with pytest.raises(CheckpointError, match="cannot clone a voice"):
        synthesizer.synthesize("abc", references=[Path("a.wav")])
    synthesizer.warm_up()
    assert len(synthesizer.synthesize("abc").mel) == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.EMPTY_TEXT),
        (" \n", Reason.EMPTY_TEXT),
        ("фф", Reason.EMPTY_TEXT),
    ],
)
def test_a_text_that_cannot_be_said_is_an_error(synthesizer: Synthesizer, text: str, reason: Reason) -> None:
    for say in (synthesizer.synthesize, synthesizer.stream):
        with pytest.raises(TextError) as caught:
            say(text)
        assert caught.value.reason is reason


@pytest.mark.parametrize("text", ["Hello, wörld! ф", "Hello, wörld! " * 30 + "ф"], ids=["short", "in pieces"])
def test_characters_that_the_model_lacks_are_changed_and_counted(synthesizer: Synthesizer, text: str) -> None:
    count = text.count("!")
    changes = {("ö", "o"): count, ("!", "."): count, ("ф", ""): 1}
    spoken = synthesizer.synthesize(text)
    assert spoken.text_changes == synthesizer.stream(text).text_changes == changes
    assert "".join(synthesizer.symbols(spoken.tokens)).startswith("<begin>hello, world.<end>")


@pytest.mark.parametrize("text", ["abc ф", "abc " * 30 + "ф"], ids=["short", "in pieces"])
def test_strict_text_refuses_characters_that_the_model_lacks(synthesizer: Synthesizer, text: str) -> None:
    splitter = TextSplitter(synthesizer.checkpoint, 3, strict=True)
    with pytest.raises(TextError, match=r"'ф' \(U\+0444 CYRILLIC SMALL LETTER EF\)") as caught:
        splitter.split(text, 0)
    assert caught.value.reason is Reason.UNKNOWN_SYMBOL


def test_everything_is_traced_once_for_a_stream_once_for_a_text_and_once_for_a_batch(
    synthesizer: Synthesizer, tmp_path: Path
) -> None:
    fresh = Synthesizer(synthesizer.checkpoint)
    fresh.warm_up(batch=True)
    functions = (fresh._begin, fresh._continue, fresh._embed)
    before = [function.experimental_get_tracing_count() for function in functions]
    clip = write_clip(tmp_path / "clip.wav", 0.7, 300.0)
    voices: Sequence[Sequence[Path]] = ([], [clip])
    for references in voices:
        fresh.synthesize(LONG, references=references)
        fresh.synthesize("a", references=references)
        list(fresh.stream(LONG, references=references))
    assert before == [function.experimental_get_tracing_count() for function in functions] == [2, 3, 1]
