"""The old place of :mod:`sbnotebook.analysis.query`; it warns."""

from __future__ import annotations

import warnings
from typing import Any

from sbnotebook.analysis import query

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    """Return a name of the new module."""
    value = getattr(query, name)
    warnings.warn(f"sbnotebook.client.query.{name} is now in sbnotebook.analysis.query.", FutureWarning, stacklevel=2)
    return value
