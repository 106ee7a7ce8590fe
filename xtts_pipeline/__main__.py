"""`python -m xtts_pipeline` is `xtts`, and this is where both begin: before anything that takes time to import."""

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def _leave(_signal_number: int, _frame: FrameType | None) -> None:
    # Nothing is open yet, and an exception in the middle of an import would be a traceback.
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run the command line; an interruption ends it with 130 and without a traceback, from the first moment on."""
    # A shell that starts a job in the background has Ctrl-C ignored, and so it stays.
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, _leave)
    from xtts_pipeline.cli.main import main as run

    try:
        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
