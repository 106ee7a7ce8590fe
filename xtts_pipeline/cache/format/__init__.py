"""The cache on disk: schema, records, shards, manifest, listings. Reads and writes single files."""
