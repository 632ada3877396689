"""Appends to a log of a cluster: rows, their batches, and the producer of each stream.

`StreamProducer` decides what is sent and sent again, and is pure; the appenders have
the tasks. Nothing here reads records.
"""
