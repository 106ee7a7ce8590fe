"""tf.data pipelines: from a cache (cached) or from the corpus itself (online)."""
