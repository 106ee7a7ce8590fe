"""Measurements of speed: diagnosis, tuning and benchmarks of the real step and the real pipeline."""
