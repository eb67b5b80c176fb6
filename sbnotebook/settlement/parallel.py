"""Ask for several things at the same time, a limited number of them at once; or together, and by halves if refused."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar, cast

import anyio

T = TypeVar("T")
R = TypeVar("R")


async def in_parallel(function: Callable[[T], Awaitable[R]], items: Iterable[T], at_once: int) -> list[R]:
    """Call an asynchronous function for each item, and return the results in the order of the items.

    Args:
        function: called with one item.
        items: each is one call.
        at_once: calls in progress at the same time, at most.

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

    error: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            for place, item in enumerate(items):
                tasks.start_soon(call, place, item)
    except BaseExceptionGroup as group:
        error = _first(group)
    if error is not None:
        # Not in the block above: of an error whose context is a group, IPython shows every frame.
        raise error
    return [results[place] for place in sorted(results)]


def alike(items: Iterable[T], key: Callable[[T], object], size: int = sys.maxsize) -> list[Sequence[T]]:
    """Cut items into parts of at most so many, each with one key; the parts and their items are in order."""
    by_key: dict[object, list[T]] = {}
    for item in items:
        by_key.setdefault(key(item), []).append(item)
    return [some[start : start + size] for some in by_key.values() for start in range(0, len(some), size)]


def halves(items: Sequence[T]) -> list[Sequence[T]]:
    """Return the halves of items that were refused together; none of one item, which is to blame itself."""
    middle = len(items) // 2
    return [items[:middle], items[middle:]] if middle else []


async def by_halves(ask: Callable[[Sequence[T]], Awaitable[list[Sequence[T]]]], items: Sequence[T]) -> None:
    """Ask for items together, and then for the parts that ``ask`` returns, such as halves; larger ones first."""
    parts = deque([items])
    while parts:
        if part := parts.popleft():
            parts += await ask(part)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", error)) if isinstance(error, BaseExceptionGroup) else error
