"""Measurements that a user repeats on their own machine: preprocessing, the input pipeline and the step, each beside its rivals."""
