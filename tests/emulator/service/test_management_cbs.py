from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES
from tests.emulator.service.conftest import Connect, token
from tests.emulator.service.test_management_requests import reply


def put(connect: Connect, body: AmqpValue, name: AmqpValue = None) -> tuple[int, str]:
    """Put a token, and return the status and the description."""
    client = connect(text=None)
    client.sender("$cbs")
    client.receiver("$cbs")
    client.flow(1, 1)
    properties = encode({"operation": "put-token", "name": name})
    client.transfer(b"\x00\x53\x74" + properties + b"\x00\x53\x77" + encode(body))
    found: Any = reply(client)[1][APPLICATION_PROPERTIES]
    return found["status-code"], found["status-description"]


@pytest.mark.parametrize("name", [None, "", "sb://localhost:1/", "nobody", 5])
def test_a_good_token_is_taken(connect: Connect, name: AmqpValue) -> None:
    assert put(connect, token(), name) == (202, "Accepted")


@pytest.mark.parametrize(
    ("status", "reason", "body", "name"),
    [
        (404, "/nobody' could not be found", token(), "sb://localhost:1/nobody"),
        (404, "/nobody/$management' could not be found", token(), "amqp://other/nobody/$management"),
        (401, "InvalidSignature", token(key="another"), None),
        (401, "InvalidAudience", token("orders"), "sb://host/bills"),
        (401, "MalformedToken: The emulator accepts only shared access signatures", "eyJhbGciOiJIUzI1NiJ9.e30.x", None),
        (400, "must be the token", b"SharedAccessSignature", None),
        (400, "must be the token", None, None),
    ],
)
def test_a_bad_token_is_refused_with_its_reason(
    connect: Connect, status: int, reason: str, body: AmqpValue, name: AmqpValue
) -> None:
    answered, description = put(connect, body, name)
    assert answered == status
    assert reason in description
    assert "another" not in description, "a key is named"
