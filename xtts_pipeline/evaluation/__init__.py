"""Figures of how good synthesised speech is, and the page that shows them. NumPy and librosa: no TensorFlow, no file access."""
