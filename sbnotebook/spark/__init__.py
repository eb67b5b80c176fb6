"""Service Bus in Spark: read an entity by peeking, send the rows of a frame.

Spark finds the format by itself, on the driver and on the workers, wherever sbnotebook is installed::

    letters = spark.read.format("servicebus").option("entity", "orders/$dlq").option("connectionString", text).load()
    summary.write.format("servicebus").mode("append").option("entity", "summary").option(…).save()
"""

from __future__ import annotations

from importlib.util import find_spec

from sbnotebook.errors import MissingExtraError
from sbnotebook.spark.session import load, register, session

__all__ = ["load", "register", "session"]

if find_spec("pyspark") is None:
    raise MissingExtraError("sbnotebook.spark", "spark")
