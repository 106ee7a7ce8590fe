"""Find what a run still lacks: speak held-out clips with parts of their prosody or of their frames known.

    python benchmarks/error_sources.py --run runs/two-cores --cache cache --limit 60 --vocoder runs/vocoder \
      --paces 150 160 180

Prints the PER to the recording, and the means of DNSMOS (P.808, and overall of P.835). Needs the extra `eval` and a
cache with stored waves. What is known comes from the recording. "recorded frames" are those of the recording too, at
the predicted times. Frames that are recorded below or above 1,000 Hz have the prosody of the recording in their other
half. `--paces` speaks the texts with espeak-ng's voice en-us, in words a minute, where that voice made the corpus at
165; these mels go through the same vocoder. A run that clones voices takes the first of the clips of each speaker as
the reference of the others.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import SLANEY_CORNER_HZ, bin_to_hz
from xtts_pipeline.audio.mel import PCM_SCALE, log_mel
from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.cache.format.schema import pad_to
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.evaluation.ground_truth import read_ground_truth, read_true_mels, split_entries
from xtts_pipeline.evaluation.intelligibility import Recogniser, count_errors, pool_errors
from xtts_pipeline.evaluation.judges import Judges, mean_judgements
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.model.batch import Batch, References
from xtts_pipeline.model.frame_decoder import Prosody
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_network

KNOWN = {
    "nothing known": (),
    "energies and pitches known": ("energy", "voicing", "octaves"),
    "durations known": ("log_duration",),
    "all prosody known": Prosody._fields,
}


def one_clip(tokens: np.ndarray, mel_TM: np.ndarray, speaker: int, checkpoint: Checkpoint) -> Batch:
    """Return a clip of the speaker with this number as a batch of one row in the shape of the limits."""
    spec = checkpoint.cache.spec
    return Batch(
        tf.constant(pad_to(tokens, spec.max_text_length, 0)[None]),
        tf.constant(pad_to(mel_TM.astype(np.float16), spec.max_mel_frames, spec.pad_value)[None]),
        tf.constant([len(tokens)]),
        tf.constant([len(mel_TM)]),
        speaker=tf.constant([speaker]),
    )


def as_reference(mel_TM: np.ndarray, checkpoint: Checkpoint) -> References:
    """Return the first frames of a clip as the reference of a batch of one row."""
    frames = checkpoint.config.model.reference_frames
    padded_CM = pad_to(mel_TM[:frames], frames, checkpoint.cache.spec.pad_value)
    return References(tf.constant(padded_CM[None]), tf.constant([min(len(mel_TM), frames)]))


def check_cache_of(run: Path, checkpoint: Checkpoint, cache: Path, manifest: Manifest) -> None:
    """End the program if the numbers of tokens and speakers have other meanings in the cache than in the run."""
    if (manifest.symbols, manifest.speakers) != (checkpoint.cache.symbols, checkpoint.cache.speakers):
        raise SystemExit(f"{cache}: other symbols or speakers than those of {run}; name the cache of the run")


def held_out_clips(
    cache: Path, manifest: Manifest, checkpoint: Checkpoint, entries: Sequence[UtteranceEntry]
) -> Iterator[tuple[UtteranceEntry, np.ndarray, Batch, References | None]]:
    """Yield the entry, the tokens, the batch of one row and the speaker's reference of clips of the cache of a run.

    A run that clones voices takes the first of the clips of each speaker as the reference of the others.
    """
    tokenizer, references = Tokenizer(manifest.symbols, manifest.text.blank), dict[str, References]()
    for entry, mel_TM in read_true_mels(cache, manifest, entries):
        if checkpoint.config.model.voice_latents and entry.speaker not in references:
            references[entry.speaker] = as_reference(mel_TM, checkpoint)
            continue
        tokens = tokenizer.encode(entry.text)
        batch = one_clip(tokens, mel_TM, manifest.speakers.index(entry.speaker), checkpoint)
        yield entry, tokens, batch, references.get(entry.speaker)


def versions(
    network: Network, batch: Batch, reference: References | None, settings: SynthesisConfig
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the mel [T, M] of each way to speak a clip."""
    dropout, frames = Dropout.fixed(0), int(batch.mel_length[0])
    recorded_TM = batch.mel[0, :frames].numpy().astype(np.float32)
    memory, prediction = network.encode_clips(batch, reference, dropout), network(batch, reference, dropout)
    predictor = network.predictor
    predicted = predictor(network.add_voice(memory), memory.text_mask, dropout)
    longest = tf.constant([network.max_mel_frames])
    for name, known in KNOWN.items():
        prosody = predicted._replace(**{field: getattr(prediction.measured, field) for field in known})
        network.predictor = lambda *_, prosody=prosody: prosody
        speech = network.speak(memory, dropout, longest, settings)
        network.predictor = predictor
        yield name, speech.mel[0, : speech.mel_length[0]].numpy()
        if not known:
            ends = [
                np.cumsum(durations) for durations in (speech.duration[0], np.exp(prediction.measured.log_duration[0]))
            ]
            spoken, recorded = (np.append(0.0, np.where(batch.tokens[0] == 0, each[-1], each)) for each in ends)
            places = np.interp(np.arange(int(speech.mel_length[0])) + 0.5, spoken, recorded)
            yield "recorded frames", recorded_TM[np.clip(places.astype(int), 0, frames - 1)]
    drawn_TM = network.predict_known(batch, reference, dropout, settings)[0, :frames].numpy()
    is_low_M = bin_to_hz(np.arange(network.mel_bins), network.audio) < SLANEY_CORNER_HZ
    yield f"recorded below {SLANEY_CORNER_HZ:,.0f} Hz", np.where(is_low_M, recorded_TM, drawn_TM)
    yield f"recorded above {SLANEY_CORNER_HZ:,.0f} Hz", np.where(is_low_M, drawn_TM, recorded_TM)


def speak_at(pace: int, texts: Sequence[str], sample_rate: int) -> Iterator[np.ndarray]:
    """Yield the wave of each text by espeak-ng."""
    with EspeakVoice("en-us", pace) as voice:
        if voice.sample_rate != sample_rate:
            raise SystemExit(f"--paces: espeak-ng has {voice.sample_rate} Hz, the cache {sample_rate}")
        for text in texts:
            yield voice.speak(text).astype(np.float32) / np.float32(PCM_SCALE)


def main() -> None:
    """Speak, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--vocoder", required=True)
    parser.add_argument("--paces", type=int, nargs="*", default=[])
    asked = parser.parse_args()
    manifest = load_manifest(asked.cache)
    require_waves(asked.cache, manifest)
    synthesizer, audio = Synthesizer.load(asked.run, vocoder=asked.vocoder), manifest.audio
    network, settings = load_network(synthesizer.checkpoint), synthesizer.checkpoint.config.synthesis
    entries = split_entries(asked.cache, manifest, "val", asked.limit)
    spoken = synthesizer.synthesize_batch([entry.raw_text for entry in entries])
    references: dict[str, References] = {}
    waves: dict[str, list[np.ndarray]] = {}
    texts = []
    truth = read_ground_truth(asked.cache, manifest, entries, None)
    for (entry, mel_TM, wave), speech in zip(truth, spoken, strict=True):
        if network.voice_encoder is not None and entry.speaker not in references:
            references[entry.speaker] = as_reference(mel_TM, synthesizer.checkpoint)
            continue
        texts.append(entry.raw_text)
        waves.setdefault("recordings", []).append(wave)
        waves.setdefault("copies", []).append(synthesizer.vocoder(mel_TM))
        speaker = manifest.speakers.index(entry.speaker)
        batch = one_clip(speech.tokens, mel_TM, speaker, synthesizer.checkpoint)
        for name, version_TM in versions(network, batch, references.get(entry.speaker), settings):
            waves.setdefault(name, []).append(synthesizer.vocoder(version_TM))
    for pace in asked.paces:
        paced = waves[f"{pace} words a minute"] = list(speak_at(pace, texts, audio.sample_rate))
        waves[f"{pace} words a minute, copies"] = [synthesizer.vocoder(log_mel(wave, audio)) for wave in paced]
    recogniser, judges = Recogniser(), Judges()
    truths = [recogniser.transcribe(wave, audio.sample_rate) for wave in waves["recordings"]]
    for name, members in waves.items():
        heard = [recogniser.transcribe(wave, audio.sample_rate) for wave in members]
        rate = pool_errors([count_errors(*pair) for pair in zip(heard, truths, strict=True)]).rate
        judged = mean_judgements([judges.judge({"spoken": wave}, audio.sample_rate) for wave in members])["spoken"]
        print(
            f"{name:<32} PER {rate:.3f}  P.808 {judged.dnsmos_p808:.2f}  overall {judged.dnsmos_overall:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
