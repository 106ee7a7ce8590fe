"""The compiled step and the loop around it."""
