"""One reader for each corpus layout."""
