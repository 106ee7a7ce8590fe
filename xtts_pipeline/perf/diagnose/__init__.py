"""Find what is slow or wrong in a training run, measured on the real step and pipeline."""
