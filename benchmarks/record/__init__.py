"""The results of record: what the tables of README.md and docs/status.md are made of.

A command of benchmarks writes its file here with ``--record``: a header line with the
facts of the machine, then one row a line. `python -m benchmarks.record` brings the
tables up to date, and a test compares them. No figure is written by hand here.
"""
