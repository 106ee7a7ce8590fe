"""Measures of the clips of a corpus or cache, and how unusual each clip is by each of them."""
