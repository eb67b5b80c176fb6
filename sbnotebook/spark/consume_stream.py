"""To be built."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader

__all__ = ["ConsumeStream"]


class ConsumeStream(DataSourceStreamReader):
    """To be built."""
