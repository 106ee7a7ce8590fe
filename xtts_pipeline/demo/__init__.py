"""A corpus of the project's own, spoken on the spot, for seeing the whole job at work without a download."""
