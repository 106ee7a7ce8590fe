"""Read a corpus into Utterances and Rejections; the layout is detected unless it is given."""

import fnmatch
import itertools
from collections.abc import Sequence
from pathlib import Path

from xtts_pipeline.corpus.layouts.common_voice import CommonVoice
from xtts_pipeline.corpus.layouts.coqui import Coqui
from xtts_pipeline.corpus.layouts.layout import FoundCorpus, Layout
from xtts_pipeline.corpus.layouts.libritts import LibriTts
from xtts_pipeline.corpus.layouts.ljspeech import LJSpeech
from xtts_pipeline.corpus.layouts.manifest import JSON_SUFFIXES, ManifestTable
from xtts_pipeline.corpus.layouts.vctk import Vctk
from xtts_pipeline.corpus.rows import SOUND_SUFFIXES, RowCollector, printable
from xtts_pipeline.corpus.tables import SUFFIXES, read_header
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CorpusError, did_you_mean

# In the order of detection: the most specific layout first.
_READERS: tuple[Layout, ...] = (Vctk(), LibriTts(), CommonVoice(), LJSpeech(), Coqui(), ManifestTable())
LAYOUTS: tuple[str, ...] = tuple(reader.name for reader in _READERS)
# What tells a cache from a corpus.
CACHE_FILES = ("manifest.json", "utterances.jsonl")
MAX_FOLDERS_TRIED = 20


def read_corpus(root: Path, layout: str = "auto", language: str = "en") -> Corpus:
    """Return every row of the corpus under `root`, kept or rejected, in the order in which it is read.

    `root` is a folder, or the table itself for layouts that have one. `layout` is one of LAYOUTS, or `auto`. `language`
    applies to rows without one. A bad row becomes a Rejection; raises CorpusError if no corpus of the layout or no row
    is found.
    """
    if layout != "auto" and layout not in LAYOUTS:
        raise CorpusError(f"--layout {layout}: unknown; {did_you_mean(layout, ['auto', *LAYOUTS])}")
    try:
        source = root.resolve(strict=True)
        readers = [reader for reader in _READERS if layout in ("auto", reader.name)]
        reader, found = _detect(source, root, readers)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise CorpusError(f"{root}: {problem}; expected a corpus folder or a manifest") from None
    rows = RowCollector(found.root, reader.name, language)
    reader.read(found, rows)
    corpus = rows.to_corpus()
    if corpus.rows == 0:
        raise CorpusError(f"{root}: a {reader.name} corpus without a single row; expected {reader.looked_for}")
    return corpus


def _detect(source: Path, shown: Path, readers: Sequence[Layout]) -> tuple[Layout, FoundCorpus]:
    for reader in readers:
        found = reader.find(source)
        if found is not None:
            return reader, found
    if all((source / name).is_file() for name in CACHE_FILES):
        raise CorpusError(f"{shown}: is a cache, expected a corpus; name a cache with --cache, a corpus with --data")
    folders = _folders_of(source)
    for folder, reader in itertools.product(folders, readers):
        if reader.find(folder) is not None:
            raise CorpusError(f"{shown}: found a {reader.name} corpus in its folder {folder.name}/; pass that folder")
    described, hint = _describe(source, folders), _rename_hint(source, readers)
    if len(readers) > 1:
        kind, expected = "no known corpus layout", "metadata.csv with the header audio,text"
    else:
        kind, expected = f"not a {readers[0].name} corpus", readers[0].looked_for
    raise CorpusError(
        f"{shown}: {kind}: found {described}, expected {expected}; {hint}docs/corpora.md lists all layouts"
    )


def _folders_of(source: Path) -> list[Path]:
    return sorted(path for path in source.iterdir() if path.is_dir())[:MAX_FOLDERS_TRIED] if source.is_dir() else []


def _describe(source: Path, folders: Sequence[Path]) -> str:
    """Return what a source without a corpus holds: its table with the first line, and how many sounds."""
    if not source.is_dir():
        return f"a file{_first_line(source)}"
    entries = sorted(source.iterdir())
    if not entries:
        return "an empty folder"
    tables = [entry for entry in entries if entry.suffix.lower() in (*SUFFIXES, *JSON_SUFFIXES) and entry.is_file()]
    # A text file may be a README.
    tables.sort(key=lambda table: table.suffix.lower() == ".txt")
    table = f"the table {printable(tables[0].name)}{_first_line(tables[0])}" if tables else "no table"
    sounds = sum(path.suffix.lower() in SOUND_SUFFIXES for folder in (source, *folders) for path in folder.iterdir())
    return f"{table} and {sounds or 'no'} sound{'s' * (sounds != 1)}"


def _first_line(table: Path) -> str:
    header = read_header(table)
    line = printable(header.delimiter.join(header.columns))
    return f" (first line {line})" if line else " (no first line in UTF-8)"


def _rename_hint(source: Path, readers: Sequence[Layout]) -> str:
    """Return a remedy if a part of a layout is there, and another has only the wrong suffix or case."""
    names = [path.name for path in source.iterdir()] if source.is_dir() else []
    for reader in readers:
        missing = [group for group in reader.parts if not _matches(group, names)]
        if len(missing) < len(reader.parts):
            for wanted, name in itertools.product(itertools.chain(*missing), names):
                if Path(wanted).stem == Path(name).stem.lower():
                    return f"for {reader.name} rename {printable(name)} to {wanted}; "
    return ""


def _matches(group: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in group for name in names)
