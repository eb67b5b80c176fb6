"""Outcomes of messages, from exceptions of the SDK."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.sdk import errors

_ANSWER: Final = re.compile(r"\AService request failed\. b([\"'])(.*)\1\. Error condition: \S++ Status Code: \d++\.?\Z")
"""The SDK's text for an answer of a management node: the bytes of the answer, between words of its own."""
_TRACKING_ID: Final = re.compile(r"(?i)tracking-?id\s*[:=]\s*([^,\s]+)")
_MAX_DESCRIPTION: Final = 500
_MAX_TEXT: Final = 2_000

# The first that fits wins. A request that timed out or lost its connection has no answer: its outcome is unknown.
_STATUSES: Final[tuple[tuple[type[BaseException], OutcomeStatus], ...]] = (
    (MessageLockLostError, OutcomeStatus.LOCK_LOST),
    (SessionLockLostError, OutcomeStatus.LOCK_LOST),
    (MessageAlreadySettled, OutcomeStatus.ALREADY_SETTLED),
    (MessageNotFoundError, OutcomeStatus.NOT_FOUND),
    (MessageSizeExceededError, OutcomeStatus.FAILED),
    (MessagingEntityNotFoundError, OutcomeStatus.FAILED),
    (MessagingEntityDisabledError, OutcomeStatus.FAILED),
    (ServiceBusAuthenticationError, OutcomeStatus.FAILED),
    (ServiceBusAuthorizationError, OutcomeStatus.FAILED),
    (ServiceBusQuotaExceededError, OutcomeStatus.FAILED),
    (ServiceBusServerBusyError, OutcomeStatus.FAILED),
    (OperationTimeoutError, OutcomeStatus.UNCONFIRMED),
    (ServiceBusConnectionError, OutcomeStatus.UNCONFIRMED),
    (ServiceBusCommunicationError, OutcomeStatus.UNCONFIRMED),
)
# Conditions about the way to the service or inside of it, not about the message. The SDK makes some of them up; others
# end a connection, session or link (AMQP 1.0 sections 2.8.16 to 2.8.18) while an answer may be on its way.
_BROKEN_OFF: Final = ("amqp:internal-error", "com.microsoft:operation-cancelled", "com.microsoft:container-close")
"""Service Bus aborted the operation, and does not tell its progress: an internal error, an abnormal end of a link (as
the SDK for Java explains OperationCancelledException), or an entity that moves to another node."""
_NO_ANSWER: Final = (
    "amqp:client-error",
    "amqp:unknown-error",
    "amqp:vendor-error",
    "amqp:socket-error",
    "amqp:connection:",
    "amqp:session:",
    "amqp:link:detach-forced",
    "amqp:link:redirect",
    "amqp:link:stolen",
    *_BROKEN_OFF,
)


def outcome_of_error(
    error: BaseException, *, verb: str, entity: EntityAddress, sequence_number: int | None, message_id: str | None
) -> Outcome:
    """Return the outcome that an exception stands for. An unknown outcome is UNCONFIRMED, never a success.

    Example:
        >>> orders = EntityAddress("orders")
        >>> outcome_of_error(MessageLockLostError(), verb="complete", entity=orders, sequence_number=7, message_id=None)
        ... # doctest: +ELLIPSIS
        <Outcome complete message 7 of orders: lock lost (...)>
    """
    condition, retryable = errors.condition_of(error)
    text = explained(error)
    tracking = _TRACKING_ID.search(text)
    return Outcome(
        status=_status(error, condition),
        verb=verb,
        entity=entity,
        sequence_number=sequence_number,
        message_id=message_id,
        condition=condition or type(error).__name__,
        description=text[:_MAX_DESCRIPTION],
        tracking_id=tracking[1] if tracking else None,
        retryable=retryable,
    )


def is_broken_off(error: BaseException) -> bool:
    """Return whether Service Bus answered that it broke off an operation: how far it came is unknown."""
    return errors.condition_of(error)[0] in _BROKEN_OFF


def is_refusal(error: BaseException) -> bool:
    """Return whether Service Bus refused an operation, so that it did nothing; False where the outcome is unknown.

    Example:
        >>> is_refusal(ServiceBusQuotaExceededError()), is_refusal(ServiceBusConnectionError())
        (True, False)
    """
    return _status(error, errors.condition_of(error)[0]) is not OutcomeStatus.UNCONFIRMED


def explained(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the text of an exception in one line, without secrets, at most 2,000 characters of it.

    When a token is refused, as for an entity that does not exist, azure-servicebus says only that there was an error.
    The service's own words are in the exception inside.
    """
    inner = getattr(error, "inner_exception", None)
    text = f"{error} {inner}" if isinstance(error, ServiceBusAuthenticationError) and inner else str(error)
    for secret in secrets:  # while they are whole: half a secret is not found
        text = text.replace(secret, "***")
    text = " ".join(text.split())
    answer = _ANSWER.match(text)
    return scrub(answer[2] if answer else text, _MAX_TEXT)


def _status(error: BaseException, condition: str | None) -> OutcomeStatus:
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    answered = isinstance(error, ServiceBusError) and condition is not None and not condition.startswith(_NO_ANSWER)
    return OutcomeStatus.FAILED if answered else OutcomeStatus.UNCONFIRMED
