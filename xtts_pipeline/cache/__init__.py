"""Records, shards and manifest: everything that writes, proves or streams a cache."""
