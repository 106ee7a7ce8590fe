"""What is slow or wrong in a training run, and why: measured on the real step and the real pipeline, with a verdict."""
