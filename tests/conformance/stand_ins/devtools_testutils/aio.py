"""A replacement of the coroutines of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from devtools_testutils import accepted, presented

__all__ = ["recorded_by_proxy_async"]


def recorded_by_proxy_async(test: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a test whose HTTP requests could be recorded; they never are."""

    async def unrecorded(*arguments: Any, **named: Any) -> Any:
        return await test(*arguments, **accepted(test, named))

    return presented(unrecorded, test)
