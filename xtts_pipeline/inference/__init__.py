"""A checkpoint that speaks: the Python API and the SavedModel export."""
