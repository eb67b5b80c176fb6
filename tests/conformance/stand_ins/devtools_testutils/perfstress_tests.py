"""A replacement of the tools of the SDK's measurements; the tests take random bytes from there."""

from __future__ import annotations

import secrets

__all__ = ["get_random_bytes"]


def get_random_bytes(length: int) -> bytes:
    """So many bytes."""
    return secrets.token_bytes(length)
