"""Records, shards and manifest: everything that writes, proves or copies a cache."""
