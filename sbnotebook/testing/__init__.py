"""Tools for tests, ours and yours: pytest fixtures, Hypothesis strategies, and the SDK's administration client.

The fixtures of :mod:`sbnotebook.testing.plugin` are there wherever sbnotebook is installed. Every other name is loaded
when it is first used; :mod:`sbnotebook.testing.strategies` needs hypothesis, which sbnotebook does not install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.lazy import lazy_names

if TYPE_CHECKING:
    from sbnotebook.settlement import administration_client, async_administration_client

__all__ = ["administration_client", "async_administration_client"]

# Loaded when it is first used: pytest loads this package in every run.
if not TYPE_CHECKING:  # a checker refuses names that are not imported above
    __getattr__, __dir__, _ = lazy_names(__name__)
