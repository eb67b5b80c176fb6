"""Ask for several things at the same time, a limited number of them at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

import anyio

T = TypeVar("T")
R = TypeVar("R")


async def in_parallel(function: Callable[[T], Awaitable[R]], items: Iterable[T], at_once: int) -> list[R]:
    """Call an asynchronous function for each item, and return the results in the order of the items.

    Example:
        >>> async def double(number: int) -> int:
        ...     return 2 * number
        >>> anyio.run(in_parallel, double, [1, 2, 3], 2)
        [2, 4, 6]
    """
    results: dict[int, R] = {}
    limiter = anyio.CapacityLimiter(at_once)

    async def call(place: int, item: T) -> None:
        async with limiter:
            results[place] = await function(item)

    try:
        async with anyio.create_task_group() as tasks:
            for place, item in enumerate(items):
                tasks.start_soon(call, place, item)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return [results[place] for place in sorted(results)]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", error)) if isinstance(error, BaseExceptionGroup) else error
