"""Figures of how good synthesised speech is: NumPy and librosa, no TensorFlow, no file access but the page's."""
