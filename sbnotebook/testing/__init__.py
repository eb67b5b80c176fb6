"""Tools for tests, ours and yours: pytest fixtures, Hypothesis strategies, and the SDK's administration client.

The fixtures of :mod:`sbnotebook.testing.plugin` are there wherever sbnotebook is installed. Every other name is loaded
when it is first used; :mod:`sbnotebook.testing.strategies` needs hypothesis, which sbnotebook does not install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbnotebook.settlement import administration_client, async_administration_client

__all__ = ["administration_client", "async_administration_client"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562): pytest loads this package in every run."""
    if name not in __all__:
        raise AttributeError(f"module 'sbnotebook.testing' has no attribute {name!r}")
    value = getattr(import_module("sbnotebook.settlement.connecting.administration_clients"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
