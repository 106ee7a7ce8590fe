"""Settings: schema, loading, migration. Knows no TensorFlow."""
