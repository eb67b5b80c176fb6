from __future__ import annotations

import time
from typing import Any

import pytest

from sbnotebook.analysis import shapes
from sbnotebook.analysis.groups import Group, group_by_cause
from sbnotebook.analysis.shapes import add_fault_headers
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_detail import detail_of

TRACE = "   at Acme.Orders.Pricing.FindAsync(String id) in C:\\src\\Pricing.cs:line 12\n   at System.Threading.Run()"
NSERVICEBUS = {
    "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
    "NServiceBus.ExceptionInfo.Message": "Order 17 has no price",
    "NServiceBus.ExceptionInfo.StackTrace": f"System.TimeoutException: Order 17 has no price\n{TRACE}",
    "NServiceBus.FailedQ": "orders",
    "NServiceBus.TimeOfFailure": "2026-11-11 02:26:58:000462 Z",
}
MASS_TRANSIT = {
    "MT-Reason": "fault",
    "MT-Fault-ExceptionType": "System.TimeoutException",
    "MT-Fault-Message": "Order 17 has no price",
    "MT-Fault-StackTrace": TRACE,
    "MT-Fault-InputAddress": "sb://contoso/orders",
    "MT-Fault-Timestamp": "2026-11-11T02:26:58Z",
}
REBUS = {
    "rbs2-error-details": f"System.TimeoutException: Order 17 has no price\n{TRACE}",
    "rbs2-source-queue": "orders",
}


def grouped(properties: dict[Any, Any]) -> list[Group]:
    messages = [PeekedMessage(entity=EntityAddress("error"), sequence_number=1, application_properties=properties)]
    return list(group_by_cause(messages))


@pytest.mark.parametrize("properties", [NSERVICEBUS, MASS_TRANSIT, REBUS], ids=["NServiceBus", "MassTransit", "Rebus"])
@pytest.mark.parametrize("reason", [None, "MaxDeliveryCountExceeded"])
def test_causes_are_those_that_the_framework_wrote(properties: dict[str, str], reason: str) -> None:
    own = properties | ({"DeadLetterReason": reason} if reason else {})
    (group,) = grouped(own)
    assert (group.reason, group.frame) == ("System.TimeoutException", "Acme.Orders.Pricing.FindAsync")
    assert "Order <n> has no price" in str(group.cause)
    assert "orders" in group.examples[0]


def test_details_of_a_message_show_the_fault() -> None:
    message = PeekedMessage(entity=EntityAddress("error"), sequence_number=1, application_properties=dict(NSERVICEBUS))
    assert "Acme.Orders.Pricing.FindAsync" in str(detail_of(message)["fault"])


def test_a_reason_of_its_own_counts() -> None:
    (group,) = grouped(NSERVICEBUS | {"DeadLetterReason": "Invalid", "DeadLetterErrorDescription": "No price"})
    assert (group.reason, group.cause) == ("Invalid", "No price")


def test_frameworks_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_FRAMEWORKS", {})
    add_fault_headers("Acme", exception_type="acme-error", message="acme-text")
    (group,) = grouped({"acme-error": "Late", "acme-text": "Truck 7 is late"})
    assert (group.reason, group.cause) == ("Late", "Late: Truck <n> is late")
    with pytest.raises(ConfigurationError, match="need the property of the exception's type, or of its message"):
        add_fault_headers("Acme", queue="acme-queue")


@pytest.mark.parametrize("value", ["x: " * 400_000, "at a.b(c)\n" * 100_000, b"\xff" * 1_000_000, 5, True, ""])
def test_hostile_headers_stay_within_the_budget(value: Any) -> None:
    started = time.thread_time()
    (group,) = grouped(dict.fromkeys(NSERVICEBUS, value))
    assert time.thread_time() - started < 2
    assert len(str(group.cause)) <= 300
