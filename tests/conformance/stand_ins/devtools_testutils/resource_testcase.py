"""Stands in for the names of arguments that preparers agree on."""

from __future__ import annotations

from typing import Final

__all__ = ["RESOURCE_GROUP_PARAM"]

RESOURCE_GROUP_PARAM: Final = "resource_group"
