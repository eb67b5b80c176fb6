from __future__ import annotations

import pytest

from sbnotebook.amqp import AmqpValue, Int
from sbnotebook.emulator import ManualClock
from sbnotebook.emulator.entities import Registry
from sbnotebook.emulator.service.access import ConnectionAccess, NamespaceAccess
from sbnotebook.emulator.service.cbs import CbsNode
from sbnotebook.emulator.service.requests import Reply, Request
from tests.emulator.service.conftest import token


def answer(body: AmqpValue, operation: str = "put-token", name: AmqpValue = None) -> Reply:
    access = ConnectionAccess(NamespaceAccess(Registry(), ManualClock()), lambda: None)
    try:
        return CbsNode("$cbs", access).answer(Request(operation, body, application_properties={"name": name}))
    finally:
        access.close()


@pytest.mark.anyio
@pytest.mark.parametrize("name", [None, "", "sb://localhost:1/", "nobody", 5])
async def test_a_good_token_is_taken(name: AmqpValue) -> None:
    reply = answer(token(), name=name)
    assert reply.application_properties == {"status-code": 202, "status-description": "Accepted"}
    assert type(reply.application_properties["status-code"]) is Int


@pytest.mark.parametrize("name", ["sb://localhost:1/nobody", "amqp://other/nobody/$management"])
def test_a_token_for_an_unknown_entity_is_refused(name: str) -> None:
    properties = answer(token(), name=name).application_properties
    assert properties["status-code"] == 404
    assert "/nobody" in str(properties["status-description"])


@pytest.mark.parametrize(
    ("status", "reason", "body", "name"),
    [
        (401, "InvalidSignature", token(key="another"), None),
        (401, "InvalidAudience", token("orders"), "sb://host/bills"),
        (401, "MalformedToken: The emulator accepts only shared access signatures", "eyJhbGciOiJIUzI1NiJ9.e30.x", None),
        (400, "must be the token", b"SharedAccessSignature", None),
        (400, "must be the token", None, None),
    ],
)
def test_a_bad_token_is_refused_with_its_reason(status: int, reason: str, body: AmqpValue, name: AmqpValue) -> None:
    properties = answer(body, name=name).application_properties
    assert properties["status-code"] == status
    assert reason in str(properties["status-description"])
    assert "another" not in str(properties["status-description"]), "a key is named"


def test_an_unknown_operation_is_refused() -> None:
    assert answer(None, "fly").application_properties["status-code"] == 501
