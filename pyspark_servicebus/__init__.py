"""The entry point by which Spark finds ``format("servicebus")``.

At the first look-up of any data source, Spark imports every module named ``pyspark_*`` and registers its
``DefaultSource``. So this module must be quick to import, and must not fail.

Source: PySpark documentation, "Python Data Source API"; ``pyspark.sql.worker.lookup_data_sources``.
"""

from __future__ import annotations

from contextlib import suppress

__all__ = ["DefaultSource"]

# A look-up of another source must not fail because of this one. sbnotebook.spark.register reports the error.
with suppress(Exception):
    import pyspark

    # In Spark 4.0, a source that was found in this way cannot be registered again, and so cannot be given a secret. So
    # it is not found there, and users register it themselves.
    if not pyspark.__version__.startswith("4.0."):
        from sbnotebook.spark.source import ServiceBusDataSource as DefaultSource
