"""Read Hugging Face's parquet files, whose sounds lie in the tables: they are written into a folder of files first."""

import hashlib
import secrets
from pathlib import Path
from typing import Any

from xtts_pipeline.corpus.columns import find_columns
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.placement import place_names
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector
from xtts_pipeline.corpus.sounds import SoundFiles
from xtts_pipeline.corpus.tables import split_in_name
from xtts_pipeline.errors import ConfigError, CorpusError, Reason, output_errors
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.regular_files import identity_of
from xtts_pipeline.system.storage import user_cache

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
        folder = rows.sound_folder or rows.sound_root or rows.root / rows.options.audio_dir
        if folder == rows.root:
            folder = _stored_sounds(found)
        readings = []
        for path in found.tables:
            try:
                with parquet.ParquetFile(path) as table:
                    rows.text_files.append((path, identity_of(path)))
                    readings.append(_read_table(path, table, rows, folder))
            except (OSError, ArrowException) as error:
                problem = " ".join(str(error).split())
                raise CorpusError(f"{path}: cannot be read ({problem}); expected a parquet file") from None
        rows.keep_reading(readings)


def _stored_sounds(found: FoundCorpus) -> Path:
    """Return the folder of the sounds of these very files: others have another one."""
    stats = [(str(path), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in found.tables]
    cache = user_cache()
    if cache is None:
        raise ConfigError(f"{found.root}: there is no home folder to write the sounds under; name one by --audio-dir")
    return cache / f"{found.root.name}-{hashlib.sha256(repr(stats).encode()).hexdigest()[:12]}"


def _read_table(path: Path, table: Any, rows: RowCollector, sound_folder: Path) -> ReadOptions:
    """Add the rows of a file; return what was found out about it."""
    names = {name.lower(): name for name in table.schema_arrow.names}
    columns = find_columns(list(names), rows.options.columns)
    if not {"audio", "text"} <= columns.keys() or not set(columns.values()) <= names.keys():
        header = ", ".join(names)
        raise CorpusError(f"{path}: has the columns {header}; name two of them by --columns audio=NAME,text=NAME")
    split, read = split_in_name(path), list[dict[str, Any]]()
    chosen = [names[column] for column in dict.fromkeys(columns.values())]
    for batch in table.iter_batches(BATCH_ROWS, columns=chosen):
        for row in batch.to_pylist():
            fields = {role: row[names[column]] for role, column in columns.items()}
            fields["audio"] = _sound_of(fields["audio"], f"{path.stem}/{len(read) + 1:06d}", sound_folder, rows)
            read.append(fields)
    # Folders are listed once, so all sounds are written before the first is looked up.
    is_elsewhere = rows.sounds.root != rows.root
    folder = "" if is_elsewhere else rows.options.audio_dir
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
    is_plain = all(role == column for role, column in columns.items())
    return ReadOptions(columns={} if is_plain else columns, audio_dir=rows.options.audio_dir)


def _sound_of(value: object, name: str, folder: Path, rows: RowCollector) -> str:
    """Return a row's path of its sound, after writing it into the folder if the row has its bytes; empty if none.

    Raises OutputError if it cannot be written, CorpusError if the folder holds another sound of this name.
    """
    content = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(content, bytes):
        found = value.get("path") if isinstance(value, dict) else value
        return found if isinstance(found, str) else ""
    if rows.sounds.root != folder:
        rows.sounds = SoundFiles(folder)
    name += _SUFFIXES.get(content[:4], ".mp3")
    target = folder / name
    if target.is_file() and target.read_bytes() != content:
        raise CorpusError(f"{target}: holds the sound of another row or data set; name an empty folder by --audio-dir")
    if not target.is_file():
        with output_errors(target, "name a folder with room for the sounds of the dataset by --audio-dir or TMPDIR"):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Of its own: another process may read the same data set.
            partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            try:
                partial.write_bytes(content)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
    return name
