from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from azure.servicebus import exceptions
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

from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, PeekedMessage
from sbnotebook.settlement.connecting.failures import Failure, explained

ORDERS = EntityAddress("orders")

FAILED = OutcomeStatus.FAILED
UNCONFIRMED = OutcomeStatus.UNCONFIRMED
ERRORS: dict[Callable[[], Exception], tuple[OutcomeStatus, bool | None]] = {
    MessageLockLostError: (OutcomeStatus.LOCK_LOST, False),
    SessionLockLostError: (OutcomeStatus.LOCK_LOST, False),
    MessageAlreadySettled: (OutcomeStatus.ALREADY_SETTLED, False),
    MessageNotFoundError: (OutcomeStatus.NOT_FOUND, False),
    MessageSizeExceededError: (FAILED, False),
    MessagingEntityNotFoundError: (FAILED, False),
    MessagingEntityDisabledError: (FAILED, True),
    ServiceBusAuthenticationError: (FAILED, True),
    ServiceBusAuthorizationError: (FAILED, True),
    ServiceBusQuotaExceededError: (FAILED, False),
    ServiceBusServerBusyError: (FAILED, True),
    OperationTimeoutError: (UNCONFIRMED, True),
    ServiceBusConnectionError: (UNCONFIRMED, True),
    ServiceBusCommunicationError: (UNCONFIRMED, True),
    lambda: ServiceBusError("a reason", condition=b"amqp:not-allowed"): (FAILED, False),
    lambda: ConnectionResetError("gone"): (UNCONFIRMED, None),
    lambda: KeyError("a bug"): (UNCONFIRMED, None),
}


def outcome_of(error: BaseException) -> Outcome:
    return Failure.of(error).outcome("complete", PeekedMessage(entity=ORDERS, sequence_number=7, message_id="m"))


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
def test_each_error_has_its_status(make: Callable[[], Exception]) -> None:
    status, retryable = ERRORS[make]
    assert Failure.of(make()).is_unanswered == (status is UNCONFIRMED)
    outcome = outcome_of(make())
    assert (outcome.status, outcome.retryable) == (status, retryable)
    assert (outcome.verb, outcome.entity, outcome.sequence_number, outcome.message_id) == ("complete", ORDERS, 7, "m")
    assert outcome.condition in (type(make()).__name__, "amqp:not-allowed")
    assert outcome.description


@pytest.mark.parametrize(
    "condition",
    [
        None,
        "amqp:client-error",
        "amqp:socket-error",
        "amqp:connection:forced",
        "amqp:link:detach-forced",
        "amqp:internal-error",
        "com.microsoft:operation-cancelled",
        "com.microsoft:container-close",
    ],
)
def test_error_without_an_answer_is_unconfirmed(condition: str | None) -> None:
    assert outcome_of(ServiceBusError("Handler failed.", condition=condition)).status is UNCONFIRMED


@pytest.mark.parametrize("condition", ["amqp:not-allowed", "amqp:illegal-state", "com.microsoft:argument-error"])
def test_an_error_with_a_condition_is_the_services_refusal(condition: str) -> None:
    assert outcome_of(ServiceBusError("No.", condition=condition)).status is FAILED


def test_no_error_of_the_sdk_is_a_success() -> None:
    kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, ServiceBusError)]
    assert len(kinds) > 15
    for kind in kinds:
        error = kind("a reason") if kind is ServiceBusError else kind(message="a reason")
        assert outcome_of(error).status is not OutcomeStatus.SETTLED


def test_the_services_words_are_kept() -> None:
    error = ServiceBusError(
        "The lock supplied is invalid.\n Reference:abc,  TrackingId:4a9f_G1_B2, SystemTracker:x", condition=b"amqp:x"
    )
    outcome = outcome_of(error)
    assert outcome.condition == "amqp:x"
    assert outcome.tracking_id == "4a9f_G1_B2"
    assert outcome.description is not None
    assert outcome.description.startswith("The lock supplied is invalid. Reference:abc, TrackingId:4a9f_G1_B2,")


@pytest.mark.parametrize("text", ["trackingid: t-1", "tracking-id=t-1 ", "(TrackingId:t-1, at 5)", "TRACKINGID : t-1"])
def test_tracking_ids_are_found_as_they_are_written(text: str) -> None:
    assert outcome_of(ServiceBusError(text)).tracking_id == "t-1"


def test_no_secret_is_kept() -> None:
    outcome = outcome_of(ServiceBusError("cannot use Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"))
    assert "c2VjcmV0" not in repr(outcome)
    # Cut after it was scrubbed, not before: half a key is one too many.
    padded = outcome_of(ServiceBusError("x" * 480 + " SharedAccessKey=c2VjcmV0c2VjcmV0"))
    assert "c2V" not in repr(padded)


def test_the_error_inside_is_told_of_refused_tokens_alone() -> None:
    inside = OSError("The token has expired: c2VjcmV0.")
    refused = ServiceBusAuthenticationError(message="An error.", error=inside)
    assert "The token has expired: ***." in explained(refused, ["c2VjcmV0"])
    lost = ServiceBusError("An error.", error=inside)
    assert explained(lost) == str(lost)


def test_what_was_broken_off_is_told_from_what_was_refused() -> None:
    assert Failure.of(ServiceBusError("No.", condition="amqp:internal-error")).is_broken_off
    assert not Failure.of(ServiceBusError("No.", condition="amqp:not-allowed")).is_broken_off
    assert not Failure.of(MessageLockLostError()).is_broken_off


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (MessageNotFoundError(), {"is_for_one"}),
        (SessionLockLostError(), set[str]()),
        (MessageSizeExceededError(), {"is_too_large"}),
        (ServiceBusError("No.", condition="amqp:precondition-failed"), {"is_for_one", "is_for_content"}),
        (ServiceBusError("No.", condition="com.microsoft:other"), {"is_for_one"}),
        (ServiceBusServerBusyError(), set[str]()),
        (ConnectionResetError("gone"), set[str]()),
    ],
    ids=["message", "session", "size", "content", "request", "busy", "connection"],
)
def test_a_refusal_says_what_it_is_about(error: Exception, about: set[str]) -> None:
    failure = Failure.of(error)
    assert {name for name in ("is_for_one", "is_for_content", "is_too_large") if getattr(failure, name)} == about


@pytest.mark.parametrize("quote", ["'", '"'])
def test_an_answer_is_told_without_the_sdks_frame_around_it(quote: str) -> None:
    said = "The lock supplied is invalid. TrackingId:1, Timestamp:2026-11-22T21:00:07"
    error = ServiceBusError(
        f"Service request failed. b{quote}{said}{quote}. Error condition: com.x:y. Status Code: 410."
    )
    assert explained(error) == said
