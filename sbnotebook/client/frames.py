"""The old place of :mod:`sbnotebook.analysis.frames`; it warns."""

from __future__ import annotations

import warnings
from typing import Any

from sbnotebook.analysis import frames

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    """Return a name of the new module."""
    value = getattr(frames, name)
    warnings.warn(f"sbnotebook.client.frames.{name} is now in sbnotebook.analysis.frames.", FutureWarning, stacklevel=2)
    return value
