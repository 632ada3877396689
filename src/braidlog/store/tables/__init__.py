"""Tables: the latest value of each key of a log, with indexes.

A table follows its log. The log is the truth and the write-ahead log: a table adds no
write to an append, and can be made again from the records as long as they are there.

| module | what lives there |
|---|---|
| `entry` | what the catalog stores of a table, and how it is described |
| `opened` | what the native core gives, in terms of the catalog and of the log |
| `change` | changes of the catalog, gathered for one entry |
| `upkeep` | when to flush, to merge and to build: decisions without effects |
| `host` | the tables of an open store, and the thread that works for them |
| `table` | a table, its indexes and its snapshots, as users call them |
| `async_table` | the same for asyncio |
"""
