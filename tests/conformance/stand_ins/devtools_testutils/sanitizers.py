"""A replacement of the functions that keep secrets out of recordings; nothing is recorded here."""

from __future__ import annotations

from typing import Any

__all__ = ["add_general_regex_sanitizer", "add_oauth_response_sanitizer", "add_remove_header_sanitizer"]


def add_general_regex_sanitizer(**_: Any) -> None:
    """Replace a text."""


def add_oauth_response_sanitizer(**_: Any) -> None:
    """Replace tokens."""


def add_remove_header_sanitizer(**_: Any) -> None:
    """Leave a header out."""
