"""The training of the vocoder: its step, its validation and its part of a run."""
