"""Walk corpora that are folders of sounds and transcripts, without following symlinks, and read the transcripts."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from xtts_pipeline.corpus.encodings import decode_text, likely_encoding
from xtts_pipeline.corpus.rows import DEFAULT_SPEAKER, CorpusRow, RowCollector
from xtts_pipeline.corpus.sounds import APPLE_DOUBLE
from xtts_pipeline.errors import MACHINE_ERRORS, CorpusError, Reason
from xtts_pipeline.system.regular_files import identity_of
from xtts_pipeline.system.terminal import printable

MAX_TRANSCRIPT_BYTES = 65_536
# Start, end or number, and a word: of Audacity, HTK or Festival. Further numbers may be a transcript of numbers.
_LABEL = re.compile(r"\s*\d+(?:[.,]\d+)?\s+\d+(?:[.,]\d+)?(?:\t|\s+(?!\d))\S.*")
HOLDS_TIMES = "holds times, as a label file does; expected the words alone"


class FolderNames(NamedTuple):
    """The names in a folder, sorted."""

    files: list[str]
    folders: list[str]


def list_folder(folder: str, rows: RowCollector) -> FolderNames:
    """Return the names in a folder under the root; subfolders that are symlinks are rejected: they may lead anywhere.

    Raises CorpusError if the folder cannot be listed.
    """
    names = FolderNames([], [])
    try:
        with os.scandir(rows.root / folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith(APPLE_DOUBLE):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.folders.append(entry.name)
                elif os.path.isdir(entry):  # noqa: PTH112 -- False for a link that cannot be followed
                    detail = "the folder is a symlink; copy it into the corpus"
                    rows.reject(f"{folder}/{entry.name}".lstrip("/"), Reason.UNSAFE_ID, detail)
                else:
                    names.files.append(entry.name)
    except OSError as error:
        found = f"{rows.root / folder}: cannot be listed ({error.strerror})"
        raise CorpusError(f"{found}; expected a readable folder") from None
    return names


def holds_times(text: str) -> bool:
    """Return whether each line of a transcript begins with times. One line may be a sentence, unless it has tabs."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and (len(lines) > 1 or "\t" in lines[0]) and all(map(_LABEL.fullmatch, lines))


def _read_transcript(path: str, row_id: str, rows: RowCollector) -> str | None:
    """Return a transcript as one line, or reject the row and return None."""
    file: Path = rows.root / path
    reason, detail = Reason.BAD_ROW, ""
    try:
        if file.is_symlink():
            reason, detail = Reason.UNSAFE_ID, "the transcript is a symlink; copy the file in"
        elif not file.is_file():
            # Opening a pipe would block.
            detail = "the transcript is not a regular file; expected a text file"
        else:
            with file.open("rb") as opened:
                rows.text_files.append((file, identity_of(opened.fileno())))
                content = opened.read(MAX_TRANSCRIPT_BYTES + 1)
            if len(content) > MAX_TRANSCRIPT_BYTES:
                detail = f"the transcript is over {MAX_TRANSCRIPT_BYTES} bytes; expected one sentence"
            elif holds_times(text := decode_text(content, rows.options.encoding)):
                detail = f"the transcript {HOLDS_TIMES}"
            else:
                return " ".join(text.split())
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise CorpusError(f"{file}: cannot be read ({error.strerror}); mend that and run again") from None
        detail = f"the transcript cannot be read ({error.strerror})"
    except UnicodeDecodeError as error:
        expected = (rows.options.encoding or "UTF-8").upper()
        likely = likely_encoding(content, rows.language)
        detail = f"byte {error.start} of the transcript is not {expected}; give its --encoding, such as {likely}"
    rows.reject(f"{path}:1", reason, detail, printable(row_id))
    return None


def id_of_speaker(speaker: str, stem: str) -> str:
    """Return the stem, behind the speaker if it does not begin with it: two speakers may both have a clip 001."""
    return stem if speaker == DEFAULT_SPEAKER or stem.startswith(speaker) else f"{speaker}/{stem}"


def add_clip(
    rows: RowCollector, speaker: str, row_id: str, audio: str, transcript: str | None, expected: str, split: str = ""
) -> None:
    """Add the row of a clip, or reject it without a transcript: `expected` is the path where one was looked for."""
    if transcript is None:
        rows.reject(audio, Reason.BAD_ROW, f"the sound has no transcript; expected {expected}", row_id)
        return
    text = _read_transcript(transcript, row_id, rows)
    if text is not None:
        rows.add(CorpusRow(f"{transcript}:1", row_id, audio, text, speaker, split=split))
