"""The tables of the pipeline: what the log says, and what is in stock by it."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table(comment="The records of the log, each once, however often the pipeline runs")
def orders() -> DataFrame:
    source = spark.readStream.format("braidlog")
    source = source.options(path=os.environ["BRAIDLOG_DATA"], log="orders")
    typed = source.options(keyFormat="utf8", valueFormat="json")
    return typed.options(valueSchema="pieces bigint").load()


@dp.materialized_view(comment="Pieces by article")
def stock() -> DataFrame:
    pieces = f.sum("value.pieces").alias("pieces")
    return spark.table("orders").groupBy("key").agg(pieces)
