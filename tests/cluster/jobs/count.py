"""Counts the messages of an entity on a cluster; prints the number, or the last line of the error."""

from __future__ import annotations

import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sbnotebook as sb
from sbnotebook.errors import SbNotebookError
from sbnotebook.spark import load

with sb.connect("env:SERVICEBUS") as namespace:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        said = str(load(namespace, "orders", spark=spark).count())
    except (PySparkException, SbNotebookError) as error:
        said = str(error).rstrip().splitlines()[-1]
    sys.stdout.write(f"{os.linesep}{said}{os.linesep}")
    spark.stop()
