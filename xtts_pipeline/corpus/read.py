"""Read a corpus into Utterances and Rejections; the layout is detected unless it is given."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xtts_pipeline.corpus.explain import explain_no_layout, folders_of
from xtts_pipeline.corpus.layouts.layout import FoundCorpus, Layout
from xtts_pipeline.corpus.layouts.lhotse import Lhotse
from xtts_pipeline.corpus.layouts.libritts import LibriTts
from xtts_pipeline.corpus.layouts.pairs import Pairs
from xtts_pipeline.corpus.layouts.parquet import Parquet
from xtts_pipeline.corpus.layouts.table import TABLE_LAYOUTS, TableLayout
from xtts_pipeline.corpus.layouts.vctk import Vctk
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.corpus.rows import RowCollector
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CorpusError, did_you_mean, listed
from xtts_pipeline.system.storage import real_path
from xtts_pipeline.system.terminal import printable

# In the order of detection: the most specific layout first.
_READERS: tuple[Layout, ...] = (
    Vctk(),
    LibriTts(),
    *TABLE_LAYOUTS[:-1],
    Lhotse(),
    TABLE_LAYOUTS[-1],
    Parquet(),
    Pairs(),
)
LAYOUTS: tuple[str, ...] = tuple(reader.name for reader in _READERS)
# These files tell a cache from a corpus.
CACHE_FILES = ("manifest.json", "utterances.jsonl")


def read_corpus(
    root: Path, options: ReadOptions = AUTO, language: str = "en", sound_folder: Path | None = None
) -> Corpus:
    """Return every row of the corpus under `root`, kept or rejected, in the order in which it is read.

    `root` is a folder, or the table itself for layouts that have one. `language` applies to rows without one. Sounds
    within tables are written into `sound_folder`, else that of `--audio-dir`, else one in the user's cache. A bad row
    becomes a Rejection; raises CorpusError if no corpus of the layout or no row is found, or if it has no use for an
    option.
    """
    layout = options.layout
    if layout != "auto" and layout not in LAYOUTS:
        raise CorpusError(f"--layout {layout}: unknown; {did_you_mean(layout, ['auto', *LAYOUTS])}")
    try:
        # Path.resolve raises RuntimeError for a link to itself, up to Python 3.12.
        source = Path(os.path.realpath(root, strict=True))
        audio_dir, sound_root = _sound_folder(source, options.audio_dir)
        options = replace(options, audio_dir=audio_dir)
        readers = [reader for reader in _READERS if layout in ("auto", reader.name)]
        reader, found = _detect(source, root, readers, options)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise CorpusError(f"{root}: {problem}; expected a corpus folder or a manifest") from None
    _check_options(reader, root, options)
    rows = RowCollector(found.root, reader.name, language, options, sound_root, sound_folder)
    reader.read(found, rows)
    corpus = rows.to_corpus()
    if corpus.rows == 0:
        raise CorpusError(f"{root}: a {reader.name} corpus without a single row; expected {reader.looked_for}")
    return corpus


def _sound_folder(source: Path, audio_dir: str) -> tuple[str, Path | None]:
    """Return `audio_dir` as seen from the corpus, and its path if it does not lie below the corpus.

    It is looked for there first, then from the current folder, which a later reading may not share. Raises CorpusError
    if it lies elsewhere and is missing.
    """
    root = source if source.is_dir() else source.parent
    if not audio_dir:
        return audio_dir, None
    is_named_from_here = not (root / audio_dir).is_dir() and Path(audio_dir).is_dir()
    folder = real_path(Path(audio_dir) if is_named_from_here else root / audio_dir)
    if folder.is_relative_to(root):
        return folder.relative_to(root).as_posix() if is_named_from_here else audio_dir, None
    if not folder.is_dir():
        raise CorpusError(f"--audio-dir {audio_dir}: no such folder in {root} or here; name the folder of the sounds")
    return os.path.relpath(folder, root) if is_named_from_here else audio_dir, folder


def _check_options(reader: Layout, shown: Path, options: ReadOptions) -> None:
    """Raise CorpusError for an option that the layout has no use for."""
    if isinstance(reader, TableLayout):
        return
    used = ReadOptions(
        options.layout,
        columns=options.columns if isinstance(reader, Parquet) else {},
        audio_dir=options.audio_dir if isinstance(reader, Parquet | Lhotse) else "",
        encoding=options.encoding if not isinstance(reader, Parquet | Lhotse) else "",
    )
    if options != used:
        raise CorpusError(f"{shown}: a {reader.name} corpus has no use for {options.to_words()}; leave it out")


def _detect(source: Path, shown: Path, readers: Sequence[Layout], options: ReadOptions) -> tuple[Layout, FoundCorpus]:
    if all((source / name).is_file() for name in CACHE_FILES):
        raise CorpusError(f"{shown}: is a cache, expected a corpus; name a cache with --cache, a corpus with --data")
    for reader in readers:
        found = reader.find(source, options)
        if found is not None:
            return reader, found
    layouts, problems = dict[str, str](), []
    for folder in folders_of(source):
        try:
            layouts[folder.name] = _layout_of(folder, readers, options)
        except OSError:  # a folder of others, such as lost+found
            continue
        except CorpusError as problem:
            problems.append(problem)
    inner = [printable(name) for name, layout in layouts.items() if layout]
    if len(inner) == 1:
        (layout,) = filter(None, layouts.values())
        raise CorpusError(f"{shown}: found a {layout} corpus in its folder {inner[0]}/; pass that folder")
    if inner:
        named = listed([f"{name}/" for name in inner], 3)
        # Ids are paths: two folders may both have a clip 001, and their caches then do not merge.
        one = f"write one table for all, with paths such as {inner[0]}/001.wav"
        remedy = f"{one}; or preprocess each, then join them by xtts cache merge if their ids differ"
        raise CorpusError(f"{shown}: found a corpus in each of its folders {named}; {remedy}")
    raise problems[0] if problems else explain_no_layout(source, shown, readers, options)


def _layout_of(folder: Path, readers: Sequence[Layout], options: ReadOptions) -> str:
    return next((reader.name for reader in readers if reader.find(folder, options) is not None), "")
