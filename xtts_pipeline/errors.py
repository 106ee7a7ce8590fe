"""Every error that this package raises on purpose, and its exit code.

A message is one line: where, what was found, what was expected, what to do.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

# 1: the command failed, or the thing it checks is not true. 2: options, settings or input cannot be used.
EXIT_UNTRUE, EXIT_UNUSABLE, EXIT_INTERRUPTED = 1, 2, 130

# The machine lacks a resource or its disk fails: no fault of one row, and the next row would fail as well.
MACHINE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
_OPEN_FILES = frozenset({errno.EMFILE, errno.ENFILE})

MOST_NAMES_SHOWN = 20

TOO_LONG_REMEDY = "raise the limit, or split the clip"


def nearest_name(wanted: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the name that is spelled most like `wanted`, whatever its case, or None if none resembles it.

    likeness: the least ratio of `difflib`, between 0 and 1.
    """
    # Here alone: only errors need it, and every start of `xtts` would pay for it.
    import difflib

    by_spelling = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(wanted.casefold(), by_spelling, n=1, cutoff=likeness)
    return by_spelling[near[0]] if near else None


def did_you_mean(wanted: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return `did you mean NAME?`, or the known names if none resembles `wanted`: the remedy for an unknown name.

    prefix: what precedes the name in the question, such as its section.
    """
    names = list(known)
    near = nearest_name(wanted, names)
    if near is not None:
        return f"did you mean {prefix}{near}?"
    return f"known are {listed(names)}"


def first_line_of(message: object) -> str:
    """Return the first line of a library's message; the rest of TensorFlow's says where the graph was built."""
    return str(message).partition("\n")[0]


def listed(names: Sequence[str], most: int = MOST_NAMES_SHOWN) -> str:
    """Return the names in one line, the first `most` of them and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class Reason(StrEnum):
    """Why a row was rejected: the fixed vocabulary of `rejected.jsonl`."""

    BAD_ROW = "bad_row"  # the metadata row cannot be read: fields missing, not UTF-8, NUL bytes
    UNSAFE_ID = "unsafe_id"  # an id or path outside the corpus or the output folder
    DUPLICATE_ID = "duplicate_id"  # an earlier kept row has this id
    EXCLUDED = "excluded"  # the user's list of --exclude has this id
    EMPTY_TEXT = "empty_text"  # nothing is left after normalising
    UNKNOWN_SYMBOL = "unknown_symbol"  # a character outside the fixed symbol set
    PHONEMIZER_FAILED = "phonemizer_failed"  # no phonemes for this text; letters are never used instead
    TEXT_TOO_LONG = "text_too_long"  # more tokens than limits.max_text_length
    AUDIO_MISSING = "audio_missing"  # no such file
    AUDIO_UNREADABLE = "audio_unreadable"  # not a sound file, truncated, or a format or codec that is not read
    AUDIO_EMPTY = "audio_empty"  # a header with no samples
    AUDIO_NOT_FINITE = "audio_not_finite"  # NaN or infinite samples
    AUDIO_OUT_OF_RANGE = "audio_out_of_range"  # a sample far over full scale
    AUDIO_CONSTANT = "audio_constant"  # a constant offset (DC) and nothing else
    AUDIO_TOO_SHORT = "audio_too_short"  # under limits.min_seconds
    AUDIO_TOO_LONG = "audio_too_long"  # over limits.max_seconds
    MEL_TOO_LONG = "mel_too_long"  # more frames than limits.max_mel_frames
    AUDIO_SILENT = "audio_silent"  # peak under limits.min_peak_db
    AUDIO_CLIPPED = "audio_clipped"  # over limits.max_clipped_share of the samples at full scale
    DECODER_CRASHED = "decoder_crashed"  # the worker died on this clip, twice
    CHANGED_WHILE_READ = "changed_while_read"  # the file changed between its reading and the end of the run, twice
    TIMEOUT = "timeout"  # the clip took longer than the worker's time limit, twice


class XttsError(Exception):
    """Base of all errors that a user can cause and fix; never shown as a traceback."""

    exit_code = EXIT_UNUSABLE


class ConfigError(XttsError):
    """Settings are unknown, malformed or contradict each other; `problems` has one line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class CorpusError(XttsError):
    """A corpus folder or metadata file cannot be used at all."""


class LayoutError(CorpusError):
    """The files of a corpus fit no layout: the first line says what was found, the second what would make it work."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}\n{remedy}")


class RowError(XttsError):
    """One row or clip cannot be used; preprocessing records it and continues."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type, tuple[Reason, str]]:
        # Workers send exceptions by pickling, which would call __init__ with the message alone.
        return type(self), (self.reason, self.detail)


class AudioError(RowError):
    """A sound file cannot be decoded or holds no usable sound."""


class TextError(RowError):
    """A text cannot be normalised or turned into tokens."""


class CacheError(XttsError):
    """A cache is missing, locked, outdated, or not what its manifest says."""


class OtherCacheVersionError(CacheError):
    """A cache is of another version of the format than this program writes and reads."""


class CheckpointError(XttsError):
    """A run or checkpoint is missing, damaged, or belongs to something else."""


class DamagedCheckpointError(CheckpointError):
    """The bytes of a checkpoint have changed since it was written; another one of the run may be whole."""


class DamagedVoiceError(CheckpointError):
    """A file of a voice folder is not what its manifest says."""

    exit_code = EXIT_UNTRUE


class OutputError(XttsError):
    """A result cannot be written to its output path."""


@contextmanager
def output_errors(path: Path, remedy: str, *, names_file: bool = False) -> Iterator[None]:
    """Turn an OSError of the block into an OutputError that names the remedy and `path`.

    remedy: another place to name; a full disk is also told to free space.
    With `names_file`, `path` is a folder of several files, and the file of the OSError is named if it is known.
    A BrokenPipeError passes: the reader of a pipe has ended.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = (error.filename if names_file else None) or path
        raise OutputError(f"{where}: cannot be written ({error.strerror}); {disk_remedy(error, remedy)}") from None


def disk_remedy(error: OSError, remedy: str) -> str:
    """Return the remedy for a file that cannot be written: another place, room on a full disk, or more open files."""
    if error.errno in _OPEN_FILES:
        return "allow more open files, by ulimit -n"
    return f"free space, or {remedy}" if error.errno in _FULL_DISK else remedy


class WorkerError(XttsError):
    """A worker process was killed."""


class TrainingError(XttsError):
    """Training started and cannot continue: it diverged, or the step was traced again."""

    exit_code = EXIT_UNTRUE


class InterruptedRunError(XttsError):
    """A run was asked to stop, and what it has saved goes on with the same command."""

    exit_code = EXIT_INTERRUPTED


class StepError(XttsError):
    """A command that ran as a part of another one failed; its exit code is passed on."""

    def __init__(self, command: str, exit_code: int) -> None:
        super().__init__(f"{command}: ended with exit code {exit_code}; its own message is above")
        # The code of a child that was killed by a signal is negative.
        self.exit_code = exit_code if exit_code > 0 else EXIT_UNTRUE
