"""A key of one entity gives no power over another one, to which the entity could forward its messages."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from tests.emulator.service.conftest import token
from tests.emulator.service.management_client import described

KEY = "own", "its key"
HEADERS = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders"]) as emulator:
        rule = AuthorizationRule(*KEY, "", frozenset(Claim))
        emulator.create_queue("mine", QueueOptions(authorization_rules=(rule,)))
        yield emulator


def own_token(path: str) -> str:
    return token(path, key_name=KEY[0], key=KEY[1])


@pytest.mark.parametrize("option", HEADERS)
@pytest.mark.parametrize("target", ["orders", "sb://127.0.0.1/orders"])
def test_an_entitys_own_key_forwards_to_no_other(option: str, target: str, emulator: RunningEmulator) -> None:
    def ask(method: str, own: str, shown: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(emulator.http_url.removeprefix("http://"), timeout=20)
        headers = {"If-Match": "*", "Authorization": own} | ({HEADERS[option]: shown} if shown else {})
        body = described("QueueDescription", f"<{option}>{target}</{option}>")
        connection.request(method, "/mine?api-version=2021-05", body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    mine = own_token("mine")
    for shown in (None, mine, own_token("orders"), token("other"), "x"):
        status, text = ask("PUT", mine, shown)
        assert (status, "that may manage 'orders'" in text) == (401, True), shown
        assert option not in ask("GET", token())[1]
    assert ask("PUT", mine, token("orders"))[0] == 200
    assert option in ask("GET", token())[1]
