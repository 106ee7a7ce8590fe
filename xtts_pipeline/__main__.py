"""`python -m xtts_pipeline` is `xtts`; both begin here, before any slow import."""

import os
import signal
import sys
from types import FrameType

from xtts_pipeline.errors import EXIT_INTERRUPTED


def _exit_at_once(_signal_number: int, _frame: FrameType | None) -> None:
    # Nothing is open yet, and an exception in the middle of an import would print a traceback.
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run the command line; an interruption ends it with 130 and without a traceback, even during the first imports."""
    # A shell ignores Ctrl-C for a job in the background, and the handler must not undo that.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, _exit_at_once)
    # Here, and not at the top: the handler must be in place before this import begins.
    from xtts_pipeline.cli.main import main as run

    try:
        if is_interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
