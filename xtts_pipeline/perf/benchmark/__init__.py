"""Benchmarks that users repeat on their own machine, each beside a baseline."""
