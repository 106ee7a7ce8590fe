"""Normalise transcripts and turn them into token ids. NumPy only."""
