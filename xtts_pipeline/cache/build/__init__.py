"""Build a cache from a corpus, or bring one up to date."""
