"""To be built."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader

__all__ = ["BrowseStream"]


class BrowseStream(DataSourceStreamReader):
    """To be built."""
