"""One reader a corpus layout, each to validated Utterance records."""
