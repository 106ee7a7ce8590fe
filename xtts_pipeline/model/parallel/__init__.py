"""The parallel decoder: durations of tokens first, then all frames at once."""
