"""Synthesis with a checkpoint: the Python API, its exports, and the mels that a vocoder is matched to."""
