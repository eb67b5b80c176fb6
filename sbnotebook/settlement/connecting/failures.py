"""The meaning of the SDK's exceptions: the outcome of a message, whether to try again, and a sentence.

A refusal of an entity is explained in one sentence that says what to do. The service answers ``put-token`` with the
status of the problem, or refuses the link. azure-servicebus turns the first into a ServiceBusAuthenticationError that
says only that there was an error, and retries all of it for fifteen seconds, although the answer stays the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
from azure.core.exceptions import AzureError
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

from sbnotebook.errors import near_match
from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, ReceivedMessage
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement.sdk import errors

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_NOT_FOUND: Final = 404
_REFUSED: Final = frozenset({400, 401, 403})
_NOT_ALLOWED, _NOT_IMPLEMENTED = "amqp:not-allowed", "amqp:not-implemented"
_ABOUT_SESSIONS: Final = (
    ("SessionId was not set", "requires sessions: give each message a session_id"),
    (
        "entity that requires sessions",
        "requires sessions: lock one with %sb_lock {} --next-session, or in Python with next_session()",
    ),
    ("sessionful message receiver cannot be created", "has no sessions: use it without naming one"),
)
# The operating systems' words for a name that is not in the DNS, not for a DNS that did not answer.
_NO_SUCH_HOST: Final = re.compile(
    r"Errno -2\]|Errno -5\]|nodename nor servname|Name or service not known|Errno 1100[14]\]"
)
_NOTHING_LISTENS: Final = re.compile(r"Errno (?:111|61|10061|1225)\]|Connect call failed|Connection refused")
# What the SDK puts before an answer of a management node, what Azure adds for its support, and a second mention of the
# status.
_NOISE: Final = re.compile(
    r"(?i)\AService request failed\. b[\"']| ?(?:tracking-?id|reference) ?:.*| ?Error condition: ?[\w:.-]++ ?$"
)
_LISTED_WITHIN: Final = 3.0
"""Seconds that a suggestion may take."""


def is_missing(error: ServiceBusError) -> bool:
    return _answer(error)[0] == _NOT_FOUND or isinstance(error, MessagingEntityNotFoundError)


def missing(address: EntityAddress, host: str, known: Collection[str] = ()) -> str:
    subscription = str(address).replace("/", "/subscriptions/", 1)  # of events/audit
    near = subscription if subscription in known else near_match(str(address), known)
    hint = f" (did you mean {near}?)" if near else ""
    return f"There is no {_kind(address)} {str(address)!r} in {host}{hint}: %sb_entities or entities() lists all."


def unreachable(host: str, words: str, *, is_emulator: bool) -> str | None:
    """Return why a host cannot be reached, and what to do; None for another reason, which may pass."""
    if _NO_SUCH_HOST.search(words):
        return f"There is no host {host}: check the namespace's name, and the network of this machine."
    if _NOTHING_LISTENS.search(words):
        advice = "start the emulator, or check its port" if is_emulator else "check the name, and the firewall"
        return f"Nothing listens at {host}: {advice}."
    return None


def refusal(error: ServiceBusError, address: EntityAddress, host: str) -> str | None:
    """Return why an entity refuses everything, and what to do; None for another error, which may pass."""
    status, words = _answer(error)
    place = f"{_kind(address)} {str(address)!r}"
    if status in _REFUSED or isinstance(error, ServiceBusAuthorizationError):
        return (
            f"{host} does not let this connection use the {place}: check that the key or token is right, has not "
            f"expired and has the right to do this{said(words)}."
        )
    if isinstance(error, MessagingEntityDisabledError):
        return f"The {place} is disabled: enable it, or wait until it is{said(words)}."
    condition = getattr(error, "_condition", None)
    if "get-message-sessions" in words:
        return f"The {place} has no sessions: look at its messages without naming one."
    if condition == _NOT_IMPLEMENTED or (condition == _NOT_ALLOWED and "from the topic" in words):
        return (
            f"The {place} cannot do this: the messages of a topic are in its subscriptions, so name one of these, "
            f"{address.name}/subscriptions/NAME."
        )
    if condition == _NOT_ALLOWED:
        return next((f"The {place} {what.format(address)}." for found, what in _ABOUT_SESSIONS if found in words), None)
    return None


def said(words: str) -> str:
    return f" (Service Bus says: {words.rstrip('.')})"


def _answer(error: ServiceBusError) -> tuple[int | None, str]:
    """Return the status of a refused token, and the service's own words."""
    inner: object = error.inner_exception
    status: object = getattr(inner, "status_code", None)
    words: object = getattr(inner, "status_description", None) if isinstance(status, int) else None
    return (status if isinstance(status, int) else None), service_words(words or error)


def service_words(description: object) -> str:
    text = description.decode(errors="replace") if isinstance(description, bytes) else str(description)
    return _NOISE.sub("", " ".join(text.split())).strip() or "nothing"


def _kind(address: EntityAddress) -> str:
    return "subscription" if address.subscription is not None else "queue or topic"


async def known_addresses(client: ServiceBusAdministrationClient, address: EntityAddress) -> list[str]:
    """Return addresses of a namespace that a misspelt address may mean, as far as the connection may list them."""
    found: list[str] = []
    # Without the right to list, or without a quick answer, there is only less to suggest.
    with anyio.move_on_after(_LISTED_WITHIN), contextlib.suppress(AzureError, OSError):
        async for queue in client.list_queues():
            found += (queue.name, f"{queue.name}/$dlq")
        topics = [topic.name async for topic in client.list_topics()]
        found += topics
        near = near_match(address.name.partition("/")[0], topics)
        if near is not None:
            async for each in client.list_subscriptions(near):
                found.append(str(EntityAddress(near, each.name, address.sub_queue)))
    return found


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
_CONTENT_CONDITIONS: Final = frozenset(
    {
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:precondition-failed",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    }
)
"""Conditions that reject a transfer for its content (AMQP 1.0 section 2.8.15, and Service Bus's own)."""
REFUSED_FOR_ONE: Final = (MessageNotFoundError, MessageLockLostError, MessageSizeExceededError)
"""Refusals of a request for several messages that Service Bus may grant for some of them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The meaning of an exception for the work that it ended. All judgements of the SDK's exceptions are here.

    Args:
        error: the exception.
        status: of the messages; UNCONFIRMED where it is unknown whether the work was done.
        condition: the AMQP condition; None where there is none.
        retryable: whether the SDK thinks that a retry can help.

    Example:
        >>> Failure.of(ServiceBusQuotaExceededError()).is_unanswered, Failure.of(MessageLockLostError()).is_for_one
        (False, True)
    """

    error: BaseException
    status: OutcomeStatus
    condition: str | None
    retryable: bool | None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return what an exception says."""
        condition, retryable = errors.condition_of(error)
        return cls(error, _status(error, condition), condition, retryable)

    @property
    def text(self) -> str:
        """Return the text of the exception in one line, without secrets."""
        return explained(self.error)

    @property
    def is_too_large(self) -> bool:
        """Return whether Service Bus refused the size of the whole."""
        return isinstance(self.error, MessageSizeExceededError)

    @property
    def is_for_content(self) -> bool:
        """Return whether Service Bus refused the content of a message."""
        return self.condition in _CONTENT_CONDITIONS

    @property
    def is_for_one(self) -> bool:
        """Return whether something of one message was refused, so that Service Bus may grant the same for others."""
        is_gone = isinstance(self.error, MessageLockLostError | MessageNotFoundError)
        is_for_good = type(self.error) is ServiceBusError and self.retryable is False
        return is_gone or self.is_for_content or is_for_good

    @property
    def is_unanswered(self) -> bool:
        """Return whether it is unknown if the work was done."""
        return self.status is OutcomeStatus.UNCONFIRMED

    @property
    def is_lock_lost(self) -> bool:
        """Return whether the lock of a message or of its session is lost."""
        return self.status is OutcomeStatus.LOCK_LOST

    @property
    def is_refusal(self) -> bool:
        """Return whether Service Bus refused the work for another reason than a lock, so that it did nothing."""
        return not (self.is_unanswered or self.is_lock_lost)

    @property
    def is_busy(self) -> bool:
        """Return whether Service Bus was too busy, and did nothing."""
        return isinstance(self.error, ServiceBusServerBusyError)

    @property
    def is_broken_off(self) -> bool:
        """Return whether Service Bus answered that it broke off the work: how far it came is unknown."""
        return self.condition in _BROKEN_OFF

    @property
    def may_pass(self) -> bool:
        """Return whether Service Bus answered, and another attempt may succeed."""
        return self.is_busy or self.is_broken_off

    @property
    def is_transient(self) -> bool:
        """Return whether it is about the connection or the load of Service Bus, and not about the request."""
        if isinstance(self.error, ServiceBusConnectionError) and self.retryable is False:
            return False  # explained: there is no such host, or nothing listens there
        return self.is_busy or self.is_unanswered

    @property
    def needs_session(self) -> bool:
        """Return whether the entity requires sessions: without one, no message can be locked."""
        return self.condition == "amqp:not-allowed" and "requires sessions" in str(self.error)

    def outcome(self, verb: str, of: EntityAddress | ReceivedMessage) -> Outcome:
        """Return the outcome of a message, or of one that is sent to an entity."""
        text = self.text
        tracking = _TRACKING_ID.search(text)
        is_sent = isinstance(of, EntityAddress)
        return Outcome(
            status=self.status,
            verb=verb,
            entity=of if is_sent else of.entity,
            sequence_number=None if is_sent else of.sequence_number,
            message_id=None if is_sent else of.message_id,
            condition=self.condition or type(self.error).__name__,
            description=text[:_MAX_DESCRIPTION],
            tracking_id=tracking[1] if tracking else None,
            retryable=self.retryable,
        )


def explained(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the text of an exception in one line, without secrets, at most 2,000 characters of it.

    When a token is refused, as for an entity that does not exist, azure-servicebus says only that there was an error.
    The service's own words are in the exception inside.

    Args:
        error: the exception.
        secrets: further texts to leave out.
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
