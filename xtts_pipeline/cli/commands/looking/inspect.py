"""`xtts inspect`: one record of a cache as text, picture and sound, or a list of utterances."""

import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click
import numpy as np

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import REJECTED_NAME, UTTERANCES_NAME, load_manifest
from xtts_pipeline.cache.format.problems import verify_command
from xtts_pipeline.cache.format.schema import Example, without_padding
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cli.completion import complete_id
from xtts_pipeline.cli.echo import echo, echo_rows
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import COUNT, FOLDER, json_option, print_report, stored_cache_option
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.errors import CacheError, ConfigError, did_you_mean, output_errors
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


@dataclass(frozen=True)
class ListReport:
    """Utterances as rows of a table without a header: id, seconds, characters per second, and text."""

    entries: Sequence[UtteranceEntry]

    def to_json(self) -> list[dict[str, object]]:
        """Return the report for programs."""
        return [
            {
                "id": entry.id,
                "split": entry.split,
                "speaker": entry.speaker,
                "language": entry.language,
                "seconds": entry.seconds,
                "characters_per_second": round(characters_per_second(entry), 2),
                "tokens_per_second": round(entry.tokens / entry.seconds, 2) if entry.seconds else 0.0,
                "text": entry.text,
            }
            for entry in self.entries
        ]

    def rows(self) -> list[tuple[str, ...]]:
        """Return the fields of each utterance, the id first, so that `cut -f1` returns ids."""
        return [
            (entry.id, f"{entry.seconds:.3f}", f"{characters_per_second(entry):.2f}", entry.text)
            for entry in self.entries
        ]


@click.command(cls=DocumentedCommand, example="xtts inspect --cache cache/ --id LJ001-0001")
@stored_cache_option
@click.option("--id", shell_complete=complete_id, help="Id of the utterance to show.")
@click.option("--list", "lists_all", is_flag=True, help="List all utterances: id, seconds, characters a second, text.")
@click.option("--sample", type=COUNT, help="List this many utterances, always the same ones.")
@click.option("--slowest", type=COUNT, help="List this many utterances with the fewest characters a second.")
@click.option("--fastest", type=COUNT, help="List this many utterances with the most characters a second.")
@click.option(
    "--output",
    type=FOLDER,
    default=Path("inspect"),
    show_default=True,
    help=f"Folder for {PICTURE_NAME} and {SOUND_NAME}.",
)
@json_option
def inspect(
    cache: Path,
    id: str | None,
    lists_all: bool,
    sample: int | None,
    slowest: int | None,
    fastest: int | None,
    output: Path,
    as_json: bool,
) -> None:
    """Show one record of a cache, or list its utterances.

    A record is shown as its tokens, its mel and its sound.
    """
    given = sum(map(bool, (id, lists_all, sample, slowest, fastest)))
    if given != 1:
        raise ConfigError(f"found {given} of --id, --list, --sample, --slowest and --fastest; give one")
    with reaching_stores(cache):
        if id is not None:
            print_report(inspect_record(cache, id, output), as_json)
            return
        report = ListReport(choose_utterances(cache, sample=sample, slowest=slowest, fastest=fastest))
    if as_json:
        echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        echo_rows(*report.rows())


def choose_utterances(
    cache: Path, *, sample: int | None = None, slowest: int | None = None, fastest: int | None = None
) -> list[UtteranceEntry]:
    """Return some utterances of a cache, or all of them, in the order of their ids or of their rates.

    A larger sample contains a smaller one. Raises CacheError if the cache cannot be read.
    """
    load_manifest(cache)
    entries = read_utterances(cache)
    if slowest is not None:
        return heapq.nsmallest(slowest, entries, key=lambda entry: (characters_per_second(entry), entry.id))
    if fastest is not None:
        return heapq.nsmallest(fastest, entries, key=lambda entry: (-characters_per_second(entry), entry.id))
    if sample is not None:
        entries = iter(heapq.nsmallest(sample, entries, key=lambda entry: hashlib.sha256(entry.id.encode()).digest()))
    return sorted(entries, key=lambda entry: entry.id)


def characters_per_second(entry: UtteranceEntry) -> float:
    """Return how fast a text is spoken: the length of the tokenized text over that of the sound before trimming."""
    return len(entry.text) / entry.seconds if entry.seconds else 0.0


def inspect_record(cache: Path, id: str, output: Path) -> InspectReport:
    """Read one record and write its picture and its sound into the folder `output`.

    Raises CacheError if the cache has no such id or its record is damaged; OutputError if the folder cannot be written
    or lies in the cache.
    """
    check_apart(output, cache)
    manifest = load_manifest(cache)
    entry = _find(cache, id)
    # The listing is not trusted: only shards of the manifest are opened.
    spec = manifest.spec_of_shard.get(entry.shard)
    payload = None if spec is None else next(islice(read_records(cache / entry.shard), entry.position, None), None)
    if spec is None or payload is None:
        problem = f"has no record {entry.position}, which {UTTERANCES_NAME} lists"
        raise CacheError(f"{cache / entry.shard}: {problem}; run {verify_command(cache)}")
    record = without_padding(decode_example(payload, spec))
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
