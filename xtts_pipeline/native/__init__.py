"""A corpus as batches without a cache: decoding, resampling, mels and augmentation in TensorFlow operations alone."""
