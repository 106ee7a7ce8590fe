"""Settings: schema, loading, errors, migration. Knows no TensorFlow."""
