"""Read a corpus into Utterances and Rejections; the layout is detected unless it is given."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from xtts_pipeline.corpus.layouts.common_voice import CommonVoice
from xtts_pipeline.corpus.layouts.coqui import Coqui
from xtts_pipeline.corpus.layouts.layout import FoundCorpus, Layout
from xtts_pipeline.corpus.layouts.libritts import LibriTts
from xtts_pipeline.corpus.layouts.ljspeech import LJSpeech
from xtts_pipeline.corpus.layouts.manifest import ManifestTable
from xtts_pipeline.corpus.layouts.vctk import Vctk
from xtts_pipeline.corpus.rows import RowCollector
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CorpusError, did_you_mean, nearest_name

# In the order of detection: the most specific layout first.
_READERS: tuple[Layout, ...] = (Vctk(), LibriTts(), CommonVoice(), LJSpeech(), Coqui(), ManifestTable())
LAYOUTS: tuple[str, ...] = tuple(reader.name for reader in _READERS)
# What tells a cache from a corpus.
CACHE_FILES = ("manifest.json", "utterances.jsonl")
MAX_LISTED = 8
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
    wanted = "; ".join(f"{reader.name}: {reader.looked_for}" for reader in readers)
    kind = "no known corpus layout" if len(readers) > 1 else f"not a {readers[0].name} corpus"
    raise CorpusError(f"{shown}: {kind}; {_nearest_miss(source, readers)}. Looked for {wanted}")


def _nearest_miss(source: Path, readers: Sequence[Layout]) -> str:
    """Return which layout the source resembles most, and which parts are missing."""
    if not source.is_dir():
        return f"{source.name} is a file of another kind"
    names = sorted(entry.name for entry in source.iterdir())
    if not names:
        return "the folder is empty"
    folders = [source / name for name in names if (source / name).is_dir()]
    for folder in folders[:MAX_FOLDERS_TRIED]:
        for reader in readers:
            if reader.find(folder) is not None:
                return f"but {folder.name}/ in it is a {reader.name} corpus, pass that folder"
    near = max(readers, key=lambda reader: _present(reader, names))
    if _present(near, names):
        there = [name for name in names if any(_matches(group, [name]) for group in near.parts)]
        lacking = [" or ".join(group) for group in near.parts if not _matches(group, names)]
        lacks = f"no {' and no '.join(lacking)}" if lacking else "not what belongs in it"
        return f"the nearest is {near.name}, found {', '.join(there[:MAX_LISTED])} but {lacks}{_similar(near, names)}"
    similar = "".join(dict.fromkeys(_similar(reader, names) for reader in readers))
    return f"it holds {', '.join(names[:MAX_LISTED])}{', ...' if len(names) > MAX_LISTED else ''}{similar}"


def _present(reader: Layout, names: Sequence[str]) -> int:
    return sum(_matches(group, names) for group in reader.parts)


def _matches(group: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in group for name in names)


def _similar(reader: Layout, names: Sequence[str]) -> str:
    """Return a hint if a name in the folder resembles a missing part, such as metadata.txt for metadata.csv."""
    for group in reader.parts:
        if not _matches(group, names):
            for wanted in group:
                near = nearest_name(wanted, names)
                if near is not None:
                    return f" (did you mean {wanted} by {near}?)"
    return ""
