"""Read a log as a streaming query: offsets, admission of batches, and the reader.

Tasks and columns are those of batch queries, in `braidlog.spark.source`.
"""
