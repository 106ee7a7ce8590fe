"""`python -m xtts_pipeline` is `xtts`; both begin here, before any slow import."""

import os
import sys

# `python -m` looks for modules in the current folder first. It may hold a corpus, and a corpus is data: nothing in it
# is imported, here or in a child process. Only a clone that is not installed has this package there.
if __name__ == "__main__" and not sys.flags.safe_path and not __file__.startswith(f"{sys.path[0]}{os.sep}"):
    del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"

import signal
from types import FrameType

from xtts_pipeline.errors import EXIT_INTERRUPTED
from xtts_pipeline.system.stderr import open_stderr

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _exit_at_once(_signal_number: int, _frame: FrameType | None) -> None:
    # Nothing is open, and an exception in the middle of an import or at the interpreter's end would print a traceback.
    os._exit(EXIT_INTERRUPTED)


def _open_streams() -> None:
    """Open the null device for each standard stream that the caller has closed, and a stderr that raises no errors.

    Otherwise the next file that is opened, such as one of a cache, would be the standard output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    sys.stderr = open_stderr(2, encoding, closefd=False)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]  # the command's own stderr, and none of a caller's


def main() -> None:
    """Run the command line; an interruption ends it with 130 and without a traceback, even during the first imports."""
    # The first folder may be one of PYTHONPATH: with `-P`, and where the current one was removed above.
    if sys.flags.safe_path or not __file__.startswith(f"{sys.path[0]}{os.sep}"):
        os.environ["PYTHONSAFEPATH"] = "1"
    # Looking for plugins of pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _open_streams()
    # A shell ignores Ctrl-C for a job in the background, and the handler must not undo that.
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, _exit_at_once)
    # Here, and not at the top: the handler must be in place before this import begins.
    from xtts_pipeline.cli.main import main as run

    try:
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        # The job is over and TensorFlow's end takes seconds: a scheduler gets the exit code, Ctrl-C ends at once.
        for number in handled:
            signal.signal(number, _exit_at_once if number == signal.SIGINT else signal.SIG_IGN)


if __name__ == "__main__":
    main()
