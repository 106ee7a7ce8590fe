"""Export a run as a voice folder, and let the new folder speak its samples."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.errors import CheckpointError, TextError
from xtts_pipeline.inference.export.model_card import SampleSentence, model_card, read_evaluation
from xtts_pipeline.inference.export.report import Export
from xtts_pipeline.inference.export.saved_model import new_folder
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.inference.vocoders import choose_vocoder, offering_griffin_lim
from xtts_pipeline.inference.voice_folder import CARD_NAME, SAMPLES_FOLDER, VoiceTerms, seal_voice
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint, load_generator, save_for_speech
from xtts_pipeline.training.checkpoints.run_folder import ACOUSTIC_FOLDER, CONFIG_NAME, VOCODER_FOLDER, VOICE_NAME
from xtts_pipeline.training.checkpoints.state import read_run_state
from xtts_pipeline.vocoder.neural import NeuralVocoder

# One language a line: its code and two sentences, the first article of the Universal Declaration of Human Rights.
SENTENCES_FILE = Path(__file__).parent / "sample_sentences.txt"


def export_voice(
    run: Path,
    folder: Path,
    overrides: Sequence[str],
    terms: VoiceTerms,
    *,
    vocoder: Path | str | None = None,
    evaluation: Path | None = None,
) -> Export:
    """Write a run's last checkpoint and its vocoder as a voice folder, which appears whole or not at all.

    `overrides` and `vocoder` are those of `Synthesizer.load`; `evaluation` is a folder of `xtts evaluate`. Raises
    CheckpointError if the run, the vocoder or the evaluation cannot be read, ConfigError for an override that is not
    valid, OutputError if the folder exists or cannot be written.
    """
    saved = load_checkpoint(run)
    checkpoint = saved.with_synthesis(overrides)
    chosen = choose_vocoder(run, vocoder)
    with offering_griffin_lim(vocoder):
        trained = None if chosen is None else load_checkpoint(chosen)
    figures = None
    if evaluation is not None:
        vocoder_weights = None if trained is None else trained.weights_sha256
        exported = checkpoint.step, checkpoint.cache.fingerprint, checkpoint.weights_sha256, vocoder_weights
        figures = read_evaluation(evaluation, *exported)
        if saved.with_synthesis(figures.overrides).config.synthesis != checkpoint.config.synthesis:
            found = f"found figures with {', '.join(figures.overrides) or 'the settings of the run'}"
            expected = f"expected {', '.join(overrides) or 'the settings of the run'}"
            raise CheckpointError(f"{evaluation}: {found}, {expected}; give xtts evaluate the --set of this export")
    with new_folder(folder) as unfinished:
        save_for_speech(checkpoint, unfinished / ACOUSTIC_FOLDER)
        (unfinished / CONFIG_NAME).write_text(dump_config(checkpoint.config), encoding="utf-8")
        state, vocoder_state = read_run_state(unfinished / ACOUSTIC_FOLDER), None
        if trained is not None:
            save_for_speech(trained, unfinished / VOCODER_FOLDER)
            vocoder_state = read_run_state(unfinished / VOCODER_FOLDER)
        samples = list(_speak_samples(unfinished, checkpoint, trained))
        card = model_card(folder.name, terms, state, vocoder_state, samples, figures)
        (unfinished / CARD_NAME).write_text(card, encoding="utf-8")
        voice = seal_voice(unfinished, terms)
    size = sum(digest.bytes for digest in voice.files.values()) + (folder / VOICE_NAME).stat().st_size
    spoken = {sample.language for sample in samples}
    description = {
        "step": checkpoint.step,
        "weights_sha256": checkpoint.weights_sha256,
        "vocoder": trained and {"step": trained.step, "weights_sha256": trained.weights_sha256},
        "languages": list(checkpoint.cache.languages),
        "speakers": list(checkpoint.cache.speakers),
        "samples": [sample.path for sample in samples],
        "languages_without_samples": [name for name in checkpoint.cache.languages if name not in spoken],
    }
    speaks = "Griffin-Lim" if trained is None else f"the vocoder of step {trained.step}"
    return Export(folder, f"a voice with {speaks} and {len(samples)} samples", description, size)


def _speak_samples(folder: Path, checkpoint: Checkpoint, trained: Checkpoint | None) -> Iterator[SampleSentence]:
    """Speak the sentences of each language with the networks in a folder, by a speaker of it, into its samples/.

    Errors about weights that do not fit their settings name the exported checkpoints, from which the folder was made.
    """
    vocoder = None
    if trained is not None:
        written = replace(load_checkpoint(folder / VOCODER_FOLDER), folder=trained.folder)
        vocoder = NeuralVocoder(load_generator(written))
    written = replace(load_checkpoint(folder / ACOUSTIC_FOLDER), folder=checkpoint.folder)
    synthesizer = Synthesizer(written, vocoder)
    lines = SENTENCES_FILE.read_text("utf-8").splitlines()
    known = {language: texts for language, *texts in (line.split("\t") for line in lines)}
    (folder / SAMPLES_FOLDER).mkdir()
    cache = synthesizer.checkpoint.cache
    for language in cache.languages:
        speakers = (speaker for speaker in cache.speakers if cache.default_language(speaker) == language)
        speaker = next(speakers, cache.speakers[0])
        name = re.sub(r"[^a-z0-9]+", "-", language.lower())
        for number, text in enumerate(known.get(primary_language(language), ()), start=1):
            try:
                spoken = synthesizer.synthesize(text, speaker, language)
            except TextError:
                # No letter of the sentence is a symbol of the voice.
                continue
            path = f"{SAMPLES_FOLDER}/{name}-{number}.wav"
            write_wave(folder / path, spoken.wave, spoken.sample_rate)
            yield SampleSentence(path, language, speaker, text)
