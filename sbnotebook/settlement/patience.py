"""Trying again what has no answer, for a limited time: a service that restarts is back after some seconds.

The SDK tries again, too, for a few seconds. What may be done twice without harm can wait longer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from sbnotebook.model import EntityAddress, OutcomeStatus
from sbnotebook.settlement.connecting.failures import explained, outcome_of_error

__all__ = ["PATIENCE", "is_transient", "patiently"]

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOGGER: Final = logging.getLogger(__name__)


async def patiently(
    attempt: Callable[..., Awaitable[T]],
    *arguments: object,
    address: EntityAddress,
    patience: float = PATIENCE,
    only_busy: bool = False,
) -> T:
    """Do something, and do it again when nobody answered.

    Args:
        attempt: what does no harm when it is done twice.
        arguments: of it.
        address: the entity that it is about.
        patience: seconds after which the error is raised.
        only_busy: whether it is done again only where the service answers that it is busy.

    Raises:
        ServiceBusError: the service refused it, or there was no answer for so long.
    """
    until, pause = anyio.current_time() + patience, _FIRST_PAUSE
    while True:
        try:
            return await attempt(*arguments)
        except (ServiceBusError, OSError) as error:
            passes = isinstance(error, ServiceBusServerBusyError) or (not only_busy and is_transient(error, address))
            if not passes or anyio.current_time() + pause > until:
                raise
            _LOGGER.info("%s does not answer, and is asked again in %.1f s: %s", address, pause, explained(error))
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def is_transient(error: Exception, address: EntityAddress) -> bool:
    """Whether an error tells of the way to the service, or of its load, and not of what was asked for."""
    if isinstance(error, ServiceBusServerBusyError):
        return True
    outcome = outcome_of_error(error, verb="ask", entity=address, sequence_number=None, message_id=None)
    return outcome.status is OutcomeStatus.UNCONFIRMED
