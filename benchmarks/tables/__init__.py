"""Tables beside RocksDB, LMDB and SQLite as stores of keys and values."""
