"""The training of the acoustic model: its step, its validation and its part of a run."""
