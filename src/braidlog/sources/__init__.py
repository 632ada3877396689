"""A log, wherever it is: a data directory, a cluster, or directories of dead nodes.

Spark, the pipelines and replay read logs through `LogSource` in
`braidlog.sources.source`. What was trimmed comes from the archive of the log, which
`braidlog.sources.archived` puts in front of any source. Nothing here writes to a log.
"""
