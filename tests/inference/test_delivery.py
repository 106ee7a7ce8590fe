"""What is planned before a text is decoded: durations, speed, pitch, noise, and a second attempt."""

from pathlib import Path

import numpy as np
import pytest

from tests.inference.test_synthesizer import LONG, Mels, assert_same_speech
from tests.speaking import make_run
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.inference.guard import NO_FAULTS, Faults, planned_faults
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer


@pytest.fixture(scope="module")
def synthesizer(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    run = make_run(tmp_path_factory.mktemp("run"), token_frames=4.0)
    return Synthesizer.load(run, ["synthesis.max_frames_per_token=1000"])


@pytest.fixture(scope="module")
def spoken(synthesizer: Synthesizer) -> SpokenText:
    return synthesizer.synthesize(LONG)


def test_a_stream_and_a_batch_are_the_speech_of_the_whole(synthesizer: Synthesizer, spoken: SpokenText) -> None:
    speech = synthesizer.stream(LONG)
    assert sum(map(len, speech)) == len(spoken.wave)
    assert speech.has_stopped
    assert speech.mel_frames == len(spoken.mel)
    for text, said in zip(("abc", LONG), synthesizer.synthesize_batch(["abc", LONG]), strict=True):
        assert_same_speech(said, synthesizer.synthesize(text))


def test_a_stream_begins_with_two_short_chunks_and_goes_on_with_long_ones(synthesizer: Synthesizer) -> None:
    plain = Synthesizer(synthesizer.checkpoint, Mels())
    parts = list(plain.stream("abcdefgh abcdefgh"))
    # The longest mel of the cache, 40 frames, in whole decoder steps of three frames.
    assert [len(part) for part in parts[:3]] == [12, 12, 42]
    np.testing.assert_allclose(np.concatenate(parts), plain.synthesize("abcdefgh abcdefgh").wave, atol=1e-4)


def test_streams_that_are_decoded_together_are_the_streams_of_each_text(synthesizer: Synthesizer) -> None:
    texts = ["abc", LONG, "abcdefgh"]
    plain = Synthesizer(synthesizer.checkpoint, Mels())
    alone = [np.concatenate(list(plain.stream(text))) for text in texts]
    streams = plain.stream_batch(texts)
    # The longest one is heard first, and decodes for the others.
    together = [np.concatenate(list(streams[number])) for number in (1, 2, 0)]
    for number, wave in zip((1, 2, 0), together, strict=True):
        np.testing.assert_allclose(wave, alone[number], atol=1e-4)
    assert all(stream.has_stopped for stream in streams)


def test_durations_and_pauses_make_up_the_speech(synthesizer: Synthesizer, spoken: SpokenText) -> None:
    assert spoken.durations.sum() == pytest.approx(len(spoken.mel), rel=1e-4)
    assert spoken.durations.min() > 0.9
    ends = np.flatnonzero(np.array(synthesizer.symbols(spoken.tokens)) == "<end>")
    pauses = np.cumsum(spoken.durations)[ends[0]].round().astype(int)
    # The end of the first piece includes the pause after its comma, 0.15 s in whole decoder steps of three frames.
    np.testing.assert_array_equal(spoken.mel[pauses - 12 : pauses], synthesizer.silence(12))
    assert spoken.mel[pauses] != pytest.approx(synthesizer.silence(1)[0])


def test_half_the_speed_takes_twice_the_time_and_no_longer_program(synthesizer: Synthesizer) -> None:
    usual = synthesizer.synthesize("abc def.")
    traces = synthesizer._begin.experimental_get_tracing_count()
    slow = synthesizer.synthesize("abc def.", speed=0.5)
    assert len(slow.mel) == pytest.approx(2 * len(usual.mel), abs=1)
    assert slow.has_stopped
    assert synthesizer._begin.experimental_get_tracing_count() == traces


def test_a_text_may_last_longer_than_any_of_training(synthesizer: Synthesizer) -> None:
    spoken = synthesizer.synthesize("abcdefgh abcdefgh", speed=0.25)
    assert len(spoken.mel) > synthesizer.checkpoint.cache.spec.max_mel_frames
    assert spoken.has_stopped


def test_a_seed_draws_other_frames_of_the_same_durations(synthesizer: Synthesizer, spoken: SpokenText) -> None:
    assert_same_speech(synthesizer.synthesize(LONG, seed=synthesizer.checkpoint.config.training.seed), spoken)
    other = synthesizer.synthesize(LONG, seed=5)
    np.testing.assert_array_equal(other.durations, spoken.durations)
    assert np.abs(other.mel - spoken.mel).max() > 0.01
    assert synthesizer._continue.experimental_get_tracing_count() <= 3  # the start of a stream, one text, a batch


def test_a_text_with_faults_is_decoded_again_with_other_noise_and_the_best_is_kept(
    synthesizer: Synthesizer, spoken: SpokenText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        synthesizer,
        "checkpoint",
        synthesizer.checkpoint.with_synthesis(["synthesis.max_attempts=3", "synthesis.max_frames_per_token=1000"]),
    )
    findings = iter([Faults(2), Faults(1), Faults(repeated_words=1)])
    monkeypatch.setattr("xtts_pipeline.inference.synthesizer.spoken_faults", lambda *_: next(findings))
    again = synthesizer.synthesize("abc")
    assert (again.attempts, again.faults) == (3, Faults(1))
    np.testing.assert_array_equal(again.mel, synthesizer_mel(synthesizer, monkeypatch, seed=1))


@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_words_that_are_planned_too_short_have_more_time_when_they_are_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    run = make_run(tmp_path, token_frames=1.0)
    once, twice = (
        Synthesizer.load(run, ["synthesis.max_frames_per_token=1000", f"synthesis.max_attempts={attempts}"])
        for attempts in (1, 3)
    )
    monkeypatch.setattr("xtts_pipeline.inference.synthesizer.spoken_faults", lambda plan, *_: planned_faults(plan))
    texts = ["abc d", "ef"]
    for first, again in zip(*(each.synthesize_batch(texts, speed=speed) for each in (once, twice)), strict=True):
        assert (first.attempts, again.attempts) == (1, 2)
        assert first.faults.skipped_words > 0
        assert again.faults == NO_FAULTS
        assert again.has_stopped
        assert again.durations.sum() == pytest.approx(len(again.mel), rel=1e-4)
    # A token of a word lasts 30 ms at normal speed, one outside of words a frame of 11.6 ms, as before.
    np.testing.assert_allclose(again.durations[1:3] / again.durations[0], 0.03 * 22_050 / 256, rtol=1e-5)


def synthesizer_mel(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch, seed: int) -> np.ndarray:
    monkeypatch.setattr("xtts_pipeline.inference.synthesizer.spoken_faults", lambda plan, *_: planned_faults(plan))
    return synthesizer.synthesize("abc", seed=seed).mel


def test_a_speed_out_of_range_is_refused(synthesizer: Synthesizer) -> None:
    with pytest.raises(ConfigError, match=r"speed 5: expected 0.25 to 4"):
        synthesizer.synthesize("abc", speed=5.0)


def test_semitones_change_the_frames_and_not_their_number(synthesizer: Synthesizer) -> None:
    usual, higher = synthesizer.synthesize("abc def."), synthesizer.synthesize("abc def.", semitones=4.0)
    np.testing.assert_array_equal(higher.durations, usual.durations)
    assert np.abs(higher.mel - usual.mel).max() > 1e-3
    with pytest.raises(ConfigError, match=r"semitones 13: expected -12 to 12"):
        synthesizer.synthesize("abc", semitones=13.0)


def test_an_attempt_that_a_limit_cuts_takes_no_place_of_a_whole_one(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["synthesis.max_attempts=2", "synthesis.max_frames_per_token=1000"]
    monkeypatch.setattr(synthesizer, "checkpoint", synthesizer.checkpoint.with_synthesis(settings))
    findings = iter([Faults(2), NO_FAULTS])
    monkeypatch.setattr("xtts_pipeline.inference.synthesizer.spoken_faults", lambda *_: next(findings))
    attempt = synthesizer._attempt
    monkeypatch.setattr(
        synthesizer,
        "_attempt",
        lambda *rest: [said._replace(has_stopped=rest[-1] == 1) for said in attempt(*rest)],
    )
    again = synthesizer.synthesize("abc")
    assert (again.has_stopped, again.faults, again.attempts) == (True, Faults(2), 2)
