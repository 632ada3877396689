"""The state in SQLite: one database for each virtual partition.

Transactions, changed rows, rules for SQL, views that only look, and what a disk does to
all of it. What is executed, and when, is decided in `execution`.
"""
