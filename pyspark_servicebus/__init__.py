"""Lets Spark find ``format("servicebus")`` by itself.

Spark imports every module named ``pyspark_*`` at the first look-up of a data source, whosever it is, and registers
the ``DefaultSource`` in it. So this must be quick, and must not fail.

Source: PySpark documentation, "Python Data Source API"; ``pyspark.sql.worker.lookup_data_sources``.
"""

from __future__ import annotations

from contextlib import suppress

__all__ = ["DefaultSource"]

# Who looks for another source must not fail for this one, whatever is wrong with it: sbnotebook.spark.register says it.
with suppress(Exception):
    import pyspark

    # There, what Spark has found by itself cannot be registered again, and so not be given a secret: it does not find
    # this one, and whoever uses it registers it.
    if not pyspark.__version__.startswith("4.0."):
        from sbnotebook.spark.source import ServiceBusDataSource as DefaultSource
