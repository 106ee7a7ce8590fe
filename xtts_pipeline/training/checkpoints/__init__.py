"""Checkpoints on disk: files, run state, the background saver, the run folder."""
