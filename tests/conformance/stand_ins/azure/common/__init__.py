"""A replacement of azure-common, of which the tests import two names and use none."""

from __future__ import annotations

__all__ = ["AzureConflictHttpError", "AzureHttpError"]


class AzureHttpError(Exception):
    """A request failed."""


class AzureConflictHttpError(AzureHttpError):
    """There is one already."""
