"""Write to tables of a lake with Spark, each record once, without a connector's jars.

Formats ``braidlog_delta`` and ``braidlog_iceberg``, for batch jobs and streaming
queries: tasks write Parquet files, and the driver's commit makes one commit of the
table, which also says which batch of which query it was.
"""
