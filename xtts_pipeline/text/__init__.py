"""Normalise transcripts and turn them into token ids and back. NumPy only."""
