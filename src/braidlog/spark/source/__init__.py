"""Read a log with Spark: ``spark.read.format("braidlog")``.

Here are the data source, its options and columns, and the reader of batch queries,
which plans tasks on the driver and reads in workers. What is particular to streaming
queries is in `braidlog.spark.streaming`; where logs are, in `braidlog.sources`.
"""
