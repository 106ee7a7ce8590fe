"""XTTS-style text-to-speech training with TensorFlow: precompute once, then stream into one compiled step."""

__version__ = "0.1.0"
