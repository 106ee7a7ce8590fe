"""The machine and the process: TensorFlow's environment, GPU sampling, storage paths, durable files."""
