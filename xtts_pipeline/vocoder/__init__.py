"""Mel spectrograms to waveforms."""
