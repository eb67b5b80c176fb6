"""A replacement of the names of arguments that preparers share."""

from __future__ import annotations

from typing import Final

__all__ = ["RESOURCE_GROUP_PARAM"]

RESOURCE_GROUP_PARAM: Final = "resource_group"
