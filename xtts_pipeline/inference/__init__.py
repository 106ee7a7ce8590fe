"""Synthesis with a checkpoint: the Python API and the SavedModel export."""
