"""`python -m xtts_pipeline` is `xtts`; both begin here, before any slow import."""

import os
import signal
import sys
from types import FrameType

from xtts_pipeline.errors import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _exit_at_once(_signal_number: int, _frame: FrameType | None) -> None:
    # Nothing is open, and an exception in the middle of an import or at the interpreter's end would print a traceback.
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run the command line; an interruption ends it with 130 and without a traceback, even during the first imports."""
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
        for number in handled:
            signal.signal(number, _exit_at_once)


if __name__ == "__main__":
    main()
