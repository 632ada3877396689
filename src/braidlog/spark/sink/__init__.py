"""Write to a log with Spark: ``df.write.format("braidlog")`` and ``df.writeStream``.

Tasks stage what they get as Arrow files; the driver's commit decides in the ledger of
the log which files a batch consists of, and appends them. The ledger and its protocol
are pure, in `braidlog.spark.sink.ledger`, which says why each record is stored once,
whatever Spark repeats.
"""
