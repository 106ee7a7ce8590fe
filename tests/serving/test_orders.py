from pathlib import Path

import pytest

from tests.speaking import make_run
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.serving.orders import RequestError, VoiceTable


def test_a_voice_speaks_at_the_speed_that_is_asked_for(tmp_path: Path) -> None:
    run = make_run(tmp_path / "tiny", token_frames=1.5)
    voices = VoiceTable({"tiny": Synthesizer.load(run)}, 100)
    samples = [sum(map(len, voices.order("one two three", speed=speed).open())) for speed in (1.0, 0.5)]
    assert samples[1] == pytest.approx(2 * samples[0], rel=0.1)
    with pytest.raises(RequestError, match=r"speed: found 5, expected 0.25 to 4"):
        voices.order("one", speed=5.0)


def test_a_voice_speaks_the_language_of_its_speaker_by_default(tmp_path: Path) -> None:
    run = make_run(tmp_path / "two", languages=("de", "en"), speaker_languages=("en", "de"))
    voices = VoiceTable({"two": Synthesizer.load(run)}, 100)
    assert [voices.find(name, None).language for name in (None, "two/ann", "two/bob")] == ["en", "en", "de"]
    assert [voices.find("two/ann", tag).language for tag in ("German", "de-AT")] == ["de", "de"]


def test_without_a_voice_the_first_that_speaks_the_language_is_taken(tmp_path: Path) -> None:
    runs = {name: make_run(tmp_path / name, languages=(name,)) for name in ("en", "de")}
    voices = VoiceTable({name: Synthesizer.load(run) for name, run in runs.items()}, 100)
    assert [voices.find(None, tag).name for tag in (None, "en-GB", "de")] == ["en", "en", "de"]
    with pytest.raises(RequestError, match="language: found 'fr'"):
        voices.find(None, "fr")


def test_a_voice_of_one_speaker_takes_no_reference_though_it_has_a_voice_encoder(tmp_path: Path) -> None:
    voices = VoiceTable({"one": Synthesizer.load(make_run(tmp_path / "one", speakers=("ann",)))}, 100)
    assert [voice["takes_reference"] for voice in voices.describe()] == [False]
    with pytest.raises(RequestError, match="one takes none; choose a voice that clones"):
        voices.order("one", clip=b"a sound")
