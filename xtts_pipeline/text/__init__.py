"""Transcripts to token ids and back. NumPy only."""
