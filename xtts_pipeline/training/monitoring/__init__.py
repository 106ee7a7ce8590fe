"""Metrics, warnings and profiles of a training run."""
