"""Repeating requests that have no answer, for a limited time: Service Bus is back seconds after a restart.

The SDK repeats requests, too, for a few seconds. A request that may safely be repeated can wait longer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.failures import Failure

T = TypeVar("T")

OUTAGE_PATIENCE: Final = 60.0
"""Seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOGGER: Final = logging.getLogger(__name__)


async def patiently(
    attempt: Callable[..., Awaitable[T]],
    *arguments: object,
    address: EntityAddress,
    patience: float = OUTAGE_PATIENCE,
    only_busy: bool = False,
) -> T:
    """Call a function, and call it again when there is no answer.

    Args:
        attempt: the function.
        arguments: of each call.
        address: the entity that is asked, for the log.
        patience: seconds to try again; 0 to call once.
        only_busy: whether to try again only where Service Bus is busy.
    """
    until, pause = anyio.current_time() + patience, _FIRST_PAUSE
    while True:
        try:
            return await attempt(*arguments)
        except (ServiceBusError, OSError) as error:
            failure = Failure.of(error)
            passes = failure.is_busy or (not only_busy and failure.is_transient)
            if not passes or anyio.current_time() + pause > until:
                raise
            _LOGGER.info("%s does not answer, and is asked again in %.1f s: %s", address, pause, failure.text)
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
