"""`xtts inspect`: one record of a cache as text, picture and sound."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click
import numpy as np

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import REJECTED_NAME, UTTERANCES_NAME, load_manifest, record_spec
from xtts_pipeline.cache.format.schema import Example, without_padding
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cli.completion import complete_id
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, json_option, print_report, stored_cache_option
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.errors import CacheError, did_you_mean, output_errors
from xtts_pipeline.plots import SPACE_MARK, save_speech_picture
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import join_lines
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

# Fixed names: an id comes from the corpus and may not be a safe file name.
PICTURE_NAME, SOUND_NAME = "mel.png", "sound.wav"


@dataclass(frozen=True)
class InspectReport:
    """The line of an utterance in utterances.jsonl, and the content of its record."""

    entry: UtteranceEntry
    record: Example
    symbols: tuple[str, ...]
    output: Path

    @property
    def mel_range(self) -> tuple[float, float]:
        """The lowest and the highest value of the mel."""
        return float(self.record.mel.min()), float(self.record.mel.max())

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        entry, record = self.entry, self.record
        return {
            "id": entry.id,
            "split": entry.split,
            "shard": entry.shard,
            "position": entry.position,
            "raw_text": entry.raw_text,
            "text": entry.text,
            "symbols": list(self.symbols),
            "tokens": record.tokens.tolist(),
            "text_length": len(record.tokens),
            "mel_length": len(record.mel),
            "seconds": entry.seconds,
            "speaker": {"name": entry.speaker, "index": record.speaker},
            "language": {"name": entry.language, "index": record.language},
            "mel_range": [round(bound, 4) for bound in self.mel_range],
            "source": entry.source.path,
            "picture": str(self.output / PICTURE_NAME),
            "sound": str(self.output / SOUND_NAME),
        }

    def to_text(self) -> str:
        """Return the report for people."""
        entry, record = self.entry, self.record
        low, high = self.mel_range
        symbols = " ".join(SPACE_MARK if symbol == " " else symbol for symbol in self.symbols)
        return join_lines(
            [
                f"{entry.id}: {entry.shard} record {entry.position}, split {entry.split}",
                f"source   {entry.source.path}, {entry.seconds:.3f} s",
                f"speaker  {entry.speaker} ({record.speaker}), language {entry.language} ({record.language})",
                f"raw text {entry.raw_text}",
                f"text     {entry.text}",
                f"tokens   {len(record.tokens)}: {symbols}",
                f"mel      {len(record.mel)} frames, {low:.2f} to {high:.2f} in natural log",
                f"picture  {self.output / PICTURE_NAME}",
                f"sound    {self.output / SOUND_NAME}",
            ]
        )


@click.command(cls=DocumentedCommand, example="xtts inspect --cache cache/ --id LJ001-0001")
@stored_cache_option
@click.option("--id", required=True, shell_complete=complete_id, help="Id of the utterance.")
@click.option(
    "--output",
    type=FOLDER,
    default=Path("inspect"),
    show_default=True,
    help=f"Folder for {PICTURE_NAME} and {SOUND_NAME}.",
)
@json_option
def inspect(cache: Path, id: str, output: Path, as_json: bool) -> None:
    """Show one record of a cache: its tokens, its mel, its sound."""
    with reaching_stores(cache):
        report = inspect_record(cache, id, output)
    print_report(report, as_json)


def inspect_record(cache: Path, id: str, output: Path) -> InspectReport:
    """Read one record and write its picture and its sound into the folder `output`.

    Raises CacheError if the cache has no such id or its record is damaged; OutputError if the folder cannot be written
    or lies in the cache.
    """
    check_apart(output, cache)
    manifest = load_manifest(cache)
    entry = _find(cache, id)
    buckets = {shard.name: shard.bucket for shard in manifest.shards}
    # The listing is not trusted: only shards of the manifest are opened.
    payload = (
        next(islice(read_records(cache / entry.shard), entry.position, None), None) if entry.shard in buckets else None
    )
    if payload is None:
        problem = f"has no record {entry.position}, which {UTTERANCES_NAME} lists"
        raise CacheError(f"{cache / entry.shard}: {problem}; run xtts verify-cache")
    record = without_padding(decode_example(payload, record_spec(manifest, buckets[entry.shard])))
    mel = record.mel.astype(np.float32)
    tokenizer = Tokenizer(manifest.symbols, manifest.text.blank)
    wave = GriffinLim.from_settings(manifest.audio, SynthesisConfig())(mel)
    with output_errors(output, "name a folder that is writable with --output"):
        output.mkdir(parents=True, exist_ok=True)
        save_speech_picture(output / PICTURE_NAME, mel, manifest.audio, f"{entry.id}: {entry.text}")
        write_wave(output / SOUND_NAME, wave, manifest.audio.sample_rate)
    return InspectReport(entry, record, tuple(tokenizer.name_of(int(token)) for token in record.tokens), output)


def _find(cache: Path, id: str) -> UtteranceEntry:
    known = []
    for entry in read_utterances(cache):
        if entry.id == id:
            return entry
        known.append(entry.id)
    left_out = f"{REJECTED_NAME} names the rows that were left out"
    raise CacheError(f"{cache}: no utterance {id!r} among {len(known)}; {left_out}; {did_you_mean(id, known)}")
