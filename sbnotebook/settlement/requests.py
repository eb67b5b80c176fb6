"""Requests: several at the same time, together and by halves if refused, and repeated while there is no answer.

Service Bus is back seconds after a restart, and a request that may safely be repeated waits for that long. Peeks are
repeated here only: the SDK repeats none of them.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar, cast

import anyio
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.failures import Failure

T = TypeVar("T")

OUTAGE_PATIENCE: Final = 60.0
"""Seconds."""
_BRIEFLY: Final = 5.0
"""Seconds in which a request is repeated after any error that may pass, as the SDK would repeat it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOGGER: Final = logging.getLogger(__name__)


async def patiently(
    attempt: Callable[..., Awaitable[T]],
    *arguments: object,
    address: EntityAddress,
    patience: float = OUTAGE_PATIENCE,
    only_busy: bool = False,
) -> T:
    """Call a function, and call it again when there is no answer, for ``patience`` seconds, at least 5.

    With ``only_busy``, it is called for longer than these only while Service Bus is busy.
    """
    began, pause = anyio.current_time(), _FIRST_PAUSE
    while True:
        try:
            return await attempt(*arguments)
        except (ServiceBusError, OSError) as error:
            failure = Failure.of(error)
            is_outage = failure.is_busy or (failure.is_transient and not only_busy)
            within = max(patience, _BRIEFLY) if is_outage else _BRIEFLY
            is_of_token = isinstance(error, ServiceBusAuthenticationError) and failure.retryable  # a refusal is not
            if not (failure.is_transient or is_of_token) or anyio.current_time() + pause > began + within:
                raise
            _LOGGER.info("%s does not answer, and is asked again in %.1f s: %s", address, pause, failure.text)
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


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
