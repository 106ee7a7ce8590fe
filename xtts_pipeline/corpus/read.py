"""Read a corpus of any known layout, detected by itself, into Utterances and Rejections."""

import difflib
from pathlib import Path

from xtts_pipeline.corpus.layout import Found, Layout
from xtts_pipeline.corpus.ljspeech import LJSpeech
from xtts_pipeline.corpus.rows import RowCollector
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CorpusError

# In the order of detection: what is most particular first.
_LAYOUTS: tuple[Layout, ...] = (LJSpeech(),)
LAYOUTS: tuple[str, ...] = tuple(layout.name for layout in _LAYOUTS)
_KNOWN_NAMES = ("metadata.csv", "wavs", "wav")
MAX_LISTED = 8


def read_corpus(root: Path, layout: str = "auto", language: str = "en") -> Corpus:
    """Return every row of the corpus under `root`, kept or rejected, in the order in which it is read.

    `root` is a folder, or the table itself for layouts that are one table. `layout` is one of LAYOUTS, or `auto`. `language` is for
    rows that name none. Raises CorpusError if nothing of the layout is there, or not a single row; a bad row is a Rejection.
    """
    if not root.exists():
        raise CorpusError(f"{root}: no such file or folder; expected a corpus")
    source = root.resolve()
    chosen, found = _detect(source, root, layout)
    rows = RowCollector(found.root, chosen.name, language)
    chosen.read(found, rows)
    corpus = rows.to_corpus()
    if corpus.rows == 0:
        raise CorpusError(f"{root}: a {chosen.name} corpus without a single row; expected {chosen.looked_for}")
    return corpus


def _detect(source: Path, shown: Path, name: str) -> tuple[Layout, Found]:
    if name != "auto" and name not in LAYOUTS:
        raise CorpusError(f"--layout {name}: unknown; expected auto or one of {', '.join(LAYOUTS)}")
    tried = [layout for layout in _LAYOUTS if name in ("auto", layout.name)]
    for layout in tried:
        found = layout.find(source)
        if found is not None:
            return layout, found
    wanted = "; ".join(f"{layout.name}: {layout.looked_for}" for layout in tried)
    raise CorpusError(f"{shown}: no known corpus layout{_nearest_miss(source)}. Looked for {wanted}")


def _nearest_miss(source: Path) -> str:
    """Return what is there that comes nearest to what was looked for."""
    if not source.is_dir():
        return f"; {source.name} is a file"
    names = sorted(entry.name for entry in source.iterdir())
    if not names:
        return "; the folder is empty"
    misses = []
    for known in _KNOWN_NAMES:
        near = difflib.get_close_matches(known, names, n=1, cutoff=0.75)
        if near and near[0] not in _KNOWN_NAMES:
            misses.append(f"found {near[0]}, did you mean {known}?")
    listed = ", ".join(names[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")
    return f"; {' '.join(misses)}" if misses else f"; it holds {listed}"
