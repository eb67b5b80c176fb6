"""To be built."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

__all__ = ["SettleStreamWriter", "SettleWriter"]


class SettleWriter(DataSourceArrowWriter):
    """To be built."""


class SettleStreamWriter(DataSourceStreamArrowWriter):
    """To be built."""
