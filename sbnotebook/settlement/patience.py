"""Repeating requests that have no answer, for a limited time: Service Bus is back seconds after a restart.

A request that may safely be repeated waits for that long. Peeks are repeated here only: the SDK repeats none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

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
