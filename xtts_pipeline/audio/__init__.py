"""Sound files to waves, waves to log-mel frames, and back. NumPy only."""
