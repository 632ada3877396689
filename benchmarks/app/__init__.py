"""Applications beside the same procedures unlogged, and beside plain SQLite."""
