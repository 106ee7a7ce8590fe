"""`python -m xtts_pipeline` is `xtts`."""

from xtts_pipeline.cli import main

if __name__ == "__main__":
    main()
