"""The model card of a voice: what Hugging Face reads of it, and what it says of the training."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.speaking import SETTINGS, SYMBOLS
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import record_spec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.inference.export.model_card import SampleSentence, model_card, read_evaluation
from xtts_pipeline.inference.voice_folder import VoiceTerms
from xtts_pipeline.training.checkpoints.state import CHECKPOINT_VERSION, FileDigest, SavedState

CONFIG = Config.model_validate(SETTINGS)
CACHE = CacheIdentity("f" * 64, record_spec(CONFIG), SYMBOLS, ("ann", "bob"), ("pt-BR", "no"))
STATE = SavedState(CHECKPOINT_VERSION, "0.1.0", "2.21.0", 7, FileDigest(1, "0" * 64), CONFIG, CACHE, None, "acoustic")
EXPORTED = (STATE.step, CACHE.fingerprint, STATE.weights.sha256, None)
TERMS = VoiceTerms("MIT", "CC0-1.0; both speakers consent in writing")
EVALUATION = {
    "run": "runs/first",
    "step": 7,
    "fingerprint": "f" * 64,
    "weights_sha256": "0" * 64,
    "vocoder_weights_sha256": None,
    "references": [],
    "overrides": [],
    "split": "val",
    "truth": "copy_synthesis",
    "utterances": 5,
    "stop_misses": 1,
    "phoneme_error_rates": {"to_truth": 0.125},
    "judges": {"spoken": {"dnsmos_p808": 3.5, "stoi": None}},
    "figures": {"duration_ratio": {"median": 1.01, "mean": 1.02, "worst": 1.5, "worst_id": "a", "utterances": 5}},
}


def metadata_of(card: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return loaded


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("CC-BY-NC-4.0", {"license": "cc-by-nc-4.0"}),
        ("GPL-3.0-or-later", {"license": "other", "license_name": "GPL-3.0-or-later"}),
        ("ours: ask 'us' first", {"license": "other", "license_name": "ours: ask 'us' first"}),
    ],
    ids=["known to the hub", "SPDX alone", "text"],
)
def test_the_license_is_the_given_one(given: str, expected: dict[str, str]) -> None:
    card = model_card("ann", VoiceTerms(given, TERMS.data_license), STATE, None, [], None)
    metadata = metadata_of(card)
    assert {key: value for key, value in metadata.items() if "license" in key} == expected
    assert f"License of the voice: {given}\n" in card
    assert f"License and consent of the recordings: {TERMS.data_license}\n" in card


def test_the_metadata_are_those_of_a_hub() -> None:
    terms = VoiceTerms("MIT", "own recordings", ("keithito/lj_speech",))
    metadata = metadata_of(model_card("ann", terms, STATE, STATE, [], None))
    assert metadata["pipeline_tag"] == "text-to-speech"
    assert metadata["library_name"] == "xtts-pipeline"
    assert metadata["language"] == ["no", "pt"]
    assert metadata["datasets"] == ["keithito/lj_speech"]
    assert "datasets" not in metadata_of(model_card("ann", TERMS, STATE, None, [], None))


def test_the_card_tells_of_the_training_and_the_samples() -> None:
    samples = [SampleSentence("samples/no-1.wav", "no", "bob", "Hei.")]
    card = model_card("ann", TERMS, STATE, replace(STATE, step=9), samples, None)
    assert "| steps | 7 |" in card
    assert f"| cache fingerprint | `{'f' * 64}` |" in card
    assert "| vocoder, steps | 9 |" in card
    assert "- no, bob: [no-1.wav](samples/no-1.wav): Hei." in card


@pytest.mark.parametrize(
    ("speakers", "latents", "lines"),
    [
        (("ann",), 4, ""),
        (("ann", "Bob Lee"), 0, "`--speaker 'Bob Lee'` speaks as another speaker.\n"),
        (
            ("ann", "bob"),
            4,
            "`--speaker bob` speaks as another speaker, `--reference FILE` with the voice of a recording.\n",
        ),
    ],
)
def test_the_card_says_how_to_choose_another_voice(speakers: tuple[str, ...], latents: int, lines: str) -> None:
    config = CONFIG.with_settings("model", voice_latents=latents)
    card = model_card(
        "ann", TERMS, replace(STATE, config=config, cache=replace(CACHE, speakers=speakers)), None, [], None
    )
    assert f"--output speech.wav\n\n{lines}" in card
    assert ("--speaker" in card, "--reference" in card) == (len(speakers) > 1, latents > 0 and len(speakers) > 1)


@pytest.mark.parametrize(("tokens", "extra"), [("characters", ""), ("phonemes", "[phonemes]")])
def test_the_card_installs_from_a_clone_or_a_wheel_since_no_index_has_the_package(tokens: str, extra: str) -> None:
    config = CONFIG.with_settings("text", tokens=tokens)
    card = model_card("ann", TERMS, replace(STATE, config=config), None, [], None)
    assert f'    pip install -c constraints.txt ".{extra}"\n' in card
    assert f'`pip install "NAME.whl{extra}"`' in card
    assert 'pip install "xtts' not in card


def test_the_figures_are_those_of_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(EVALUATION), encoding="utf-8")
    card = model_card("ann", TERMS, STATE, None, [], read_evaluation(tmp_path, *EXPORTED))
    assert "5 utterances of the split `val`, compared with copy synthesis: 4 ended by themselves." in card
    assert "| duration_ratio | 1.01 | 1.02 | 1.5 |" in card
    assert "| phoneme error rate, to_truth | 0.125 |" in card
    assert "| dnsmos_p808, spoken | 3.5 |" in card
    assert "stoi" not in card


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        ("[]", "no report of `xtts evaluate`"),
        (
            json.dumps({**EVALUATION, "step": 8}),
            "found step 8, expected step 7; give xtts evaluate the --run and --vocoder",
        ),
        (json.dumps({**EVALUATION, "fingerprint": "e"}), "found cache e, expected cache ffffffffffff; "),
        (
            json.dumps({**EVALUATION, "weights_sha256": "1" * 64}),
            "found weights 111111111111, expected weights 000000000000",
        ),
        (json.dumps({**EVALUATION, "vocoder_weights_sha256": "2" * 64}), "weights 222222222222, expected Griffin-Lim"),
        (json.dumps({**EVALUATION, "figures": {"a": {"median": math.nan, "mean": 1, "worst": 1}}}), "no report of"),
    ],
    ids=["missing", "another file", "another step", "another cache", "another run", "another vocoder", "not finite"],
)
def test_figures_of_something_else_are_refused(tmp_path: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=problem):
        read_evaluation(tmp_path, *EXPORTED)


def test_figures_of_a_cloned_voice_or_of_other_settings_say_so(tmp_path: Path) -> None:
    changed = {**EVALUATION, "references": ["me.wav"], "overrides": ["flow_steps=8"]}
    (tmp_path / "report.json").write_text(json.dumps(changed), encoding="utf-8")
    card = model_card("ann", TERMS, STATE, None, [], read_evaluation(tmp_path, *EXPORTED))
    assert "the split `val`, with flow_steps=8, in the voice of 1 reference, compared with" in card
