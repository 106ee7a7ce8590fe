"""Read lhotse's manifests: *recordings*.jsonl and *supervisions*.jsonl, plain or with gzip (.jsonl.gz)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.placement import place_names
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector, read_lines
from xtts_pipeline.corpus.tables import split_in_name
from xtts_pipeline.errors import Reason
from xtts_pipeline.system.terminal import printable

RECORDINGS, SUPERVISIONS = "recordings", "supervisions"
# A supervision that leaves out more than this of its recording is a part of it.
TOLERANCE_SECONDS = 0.1


class Lhotse:
    """The id is that of the supervision; the manifests' names may give the split."""

    name = "lhotse"
    looked_for = "recordings.jsonl.gz and supervisions.jsonl.gz (names may have more words; .gz is optional)"
    parts = (("*recordings*.jsonl*",), ("*supervisions*.jsonl*",))

    def find(self, source: Path, _options: ReadOptions) -> FoundCorpus | None:
        """Return the pairs of manifests in the folder: each of supervisions behind its recordings."""
        if not source.is_dir():
            return None
        found = [path for path in sorted(source.iterdir()) if _kind_of(path) == SUPERVISIONS]
        pairs = [(_recordings_of(path), path) for path in found]
        tables = [table for recordings, path in pairs if recordings is not None for table in (recordings, path)]
        return FoundCorpus(source, tables) if tables else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add a row for each supervision of a whole recording."""
        for recordings_path, path in zip(found.tables[::2], found.tables[1::2], strict=True):
            recordings = {str(value.get("id")): value for _, value in _objects(recordings_path, rows)}
            names = [_sound_of(value) for value in recordings.values()]
            folder = rows.options.audio_dir
            place = place_names(names, rows.sounds, "", folder, is_fixed=bool(folder))
            split = split_in_name(path.with_suffix(""))
            for where, supervision in _objects(path, rows):
                row_id, text = str(supervision.get("id") or ""), supervision.get("text")
                recording = recordings.get(str(supervision.get("recording_id")))
                problem = _problem(supervision, recording, recordings_path)
                if problem or recording is None or not isinstance(text, str):
                    rows.reject(where, Reason.BAD_ROW, problem or "text is no string; expected a string", row_id)
                    continue
                audio = place.name_of(_sound_of(recording))
                speaker, language = (str(supervision.get(key) or "") for key in ("speaker", "language"))
                rows.add(CorpusRow(where, row_id, audio, text, speaker, language, split), place.find)


def _kind_of(path: Path) -> str:
    name = path.name.lower()
    if not name.endswith((".jsonl", ".jsonl.gz")) or path.is_symlink() or not path.is_file():
        return ""
    return next((kind for kind in (RECORDINGS, SUPERVISIONS) if kind in name), "")


def _recordings_of(supervisions: Path) -> Path | None:
    """Return the recordings of the same name, or None; of a plain and a compressed one, that which is written alike."""
    name = supervisions.name.lower().replace(SUPERVISIONS, RECORDINGS)
    by_name = {path.name.lower(): path for path in supervisions.parent.iterdir()}
    plain = name.removesuffix(".gz")
    return next((by_name[other] for other in (name, plain, f"{plain}.gz") if other in by_name), None)


def _sound_of(recording: dict[str, Any]) -> str:
    """Return the path of the recording's only file, or an empty text."""
    sources = recording.get("sources")
    files = [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []
    return str(files[0].get("source") or "") if len(files) == 1 and files[0].get("type") == "file" else ""


def _problem(supervision: dict[str, Any], recording: dict[str, Any] | None, recordings: Path) -> str:
    if recording is None:
        found = printable(str(supervision.get("recording_id")))
        return f"recording {found} is not in {recordings.name}; expected an id there"
    if not _sound_of(recording):
        return "the recording has no single source of type file; expected the path of one sound"
    start, seconds, whole = (
        value if isinstance(value, int | float) else 0.0
        for value in (supervision.get("start"), supervision.get("duration"), recording.get("duration"))
    )
    if start > TOLERANCE_SECONDS or seconds < whole - TOLERANCE_SECONDS:
        return f"{start} to {start + seconds} s is a part of the recording; cut it into clips (lhotse cut save-audios)"
    return ""


def _objects(path: Path, rows: RowCollector) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and each object; other lines are rejected. Raises CorpusError if the file cannot be read."""
    for where, line in read_lines(path, rows.root, rows, is_delimited=False):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield where, value
        else:
            rows.reject(where, Reason.BAD_ROW, "not JSON; expected one object a line")
