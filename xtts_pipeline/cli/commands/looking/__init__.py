"""Commands that show a corpus, a cache or a run."""
