"""Read Hugging Face's parquet files, whose sounds lie in the tables: they are written out beside them first."""

from pathlib import Path
from typing import Any

from xtts_pipeline.corpus.columns import find_columns
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.placement import place_names
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector, SoundFiles
from xtts_pipeline.corpus.tables import split_in_name
from xtts_pipeline.errors import ConfigError, CorpusError, Reason, output_errors
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.regular_files import identity_of

SOUND_FOLDER = "parquet-sounds"
BATCH_ROWS = 64
_SUFFIXES = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


class Parquet:
    """The columns are those of a manifest; `audio` holds the file, or its path. The files' names give the split."""

    name = "parquet"
    looked_for = "*.parquet with audio and text, in the folder or in data/"
    parts = (("*.parquet", "data"),)

    def find(self, source: Path, _options: ReadOptions) -> FoundCorpus | None:
        """Return the files in the folder, or in its folder data/; `source` may be one of them."""
        if source.is_file():
            return FoundCorpus(source.parent, (source,)) if source.suffix.lower() == ".parquet" else None
        tables = sorted(source.glob("*.parquet")) or sorted(source.glob("data/*.parquet"))
        return FoundCorpus(source, tables) if tables else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of each file."""
        try:
            from pyarrow import ArrowException, parquet  # the extra `parquet`
        except ImportError:
            message = f"{found.root}: holds parquet files, and pyarrow is not installed; {install_command('parquet')}"
            raise ConfigError(message) from None
        for path in found.tables:
            try:
                with parquet.ParquetFile(path) as table:
                    rows.text_files.append((path, identity_of(path)))
                    _read_table(path, table, rows)
            except (OSError, ArrowException) as error:
                problem = " ".join(str(error).split())
                raise CorpusError(f"{path}: cannot be read ({problem}); expected a parquet file") from None


def _read_table(path: Path, table: Any, rows: RowCollector) -> None:
    names = {name.lower(): name for name in table.schema_arrow.names}
    columns = find_columns(list(names), rows.options.columns)
    if not {"audio", "text"} <= columns.keys() or not set(columns.values()) <= names.keys():
        header = ", ".join(names)
        raise CorpusError(f"{path}: has the columns {header}; name two of them by --columns audio=NAME,text=NAME")
    if any(role != column for role, column in columns.items()):
        rows.found = ReadOptions(columns=columns)
    split, read = split_in_name(path), list[dict[str, Any]]()
    chosen = [names[column] for column in dict.fromkeys(columns.values())]
    for batch in table.iter_batches(BATCH_ROWS, columns=chosen):
        for row in batch.to_pylist():
            fields = {role: row[names[column]] for role, column in columns.items()}
            fields["audio"] = _sound_of(fields["audio"], path, len(read) + 1, rows)
            read.append(fields)
    # Folders are listed once, so all sounds are written before the first is looked up.
    folder = rows.options.audio_dir
    place = place_names([fields["audio"] for fields in read], rows.sounds, "", folder, is_fixed=bool(folder))
    for number, fields in enumerate(read, 1):
        where = f"{path.relative_to(rows.root).as_posix()}:{number}"
        texts = {role: str(value) for role, value in fields.items() if value is not None}
        row_id = texts.get("id", "") if columns.get("id") != columns["audio"] else ""
        if not fields["audio"] or not isinstance(fields["text"], str):
            rows.reject(where, Reason.BAD_ROW, "no sound or no text; expected both", row_id)
            continue
        audio = place.name_of(fields["audio"])
        row_id = row_id or f"{path.stem}/{number:06d}"
        speaker, language = texts.get("speaker", ""), texts.get("language", "")
        row_split = texts.get("split", "") or split
        rows.add(CorpusRow(where, row_id, audio, fields["text"], speaker, language, row_split), place.find)


def _sound_of(value: object, path: Path, number: int, rows: RowCollector) -> str:
    """Return a row's path of its sound, after writing it below the root if the row has its bytes; empty if it has none.

    Raises OutputError if it cannot be written.
    """
    content = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(content, bytes):
        name = value.get("path") if isinstance(value, dict) else value
        return name if isinstance(name, str) else ""
    suffix = _SUFFIXES.get(content[:4], ".mp3")
    remedy = "copy the dataset to a folder that can be written: its sounds are written beside it"
    if rows.sound_folder is not None:
        remedy = "set TMPDIR to a folder with room for the sounds of the dataset"
        if rows.sounds.root != rows.sound_folder:
            rows.sounds = SoundFiles(rows.sound_folder)
    target = (rows.sound_folder or path.parent / SOUND_FOLDER) / path.stem / f"{number:06d}{suffix}"
    if not target.is_file() or target.stat().st_size != len(content):
        with output_errors(target, remedy):
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            partial.write_bytes(content)
            partial.replace(target)
    return target.relative_to(rows.sounds.root).as_posix()
