"""A key-value store with fail-over; its write-ahead log is a shard."""
