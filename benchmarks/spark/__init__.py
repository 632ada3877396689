"""Sources, sinks and pipelines on Spark, beside Parquet, DuckDB and Polars."""
