from __future__ import annotations

import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.probe.probe import kind_of_host, without_names, words_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "it succeeded"),
        (ValueError("one\nand more"), "ValueError  one"),
        (
            ServiceBusError("No.", condition="amqp:not-allowed"),
            "ServiceBusError (amqp:not-allowed) No. Error condition: amqp:not-allowed.",
        ),
        (ExceptionGroup("both", [ValueError("one"), KeyError("two")]), "ValueError  one"),
        (ValueError("x" * 1_000), f"ValueError  {'x' * 228}"),
    ],
    ids=repr,
)
def test_an_error_is_told_in_a_line(error: Exception | None, words: str) -> None:
    assert words_of(error) == words


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("shop.servicebus.windows.net", "NAMESPACE.servicebus.windows.net"),
        ("Shop.servicebus.chinacloudapi.cn.", "NAMESPACE.servicebus.chinacloudapi.cn"),
        ("localhost", "an address"),
        ("10.0.0.4", "an address"),
        ("10.0.0.14:5300", "an address"),
    ],
)
def test_only_the_public_part_of_a_host_is_told(host: str, kind: str) -> None:
    assert kind_of_host(host) == kind


def test_a_host_with_a_port_is_not_named() -> None:
    assert (
        without_names("5300 of LOCALHOST at localhost:5300", "localhost:5300") == "5300 of NAMESPACE at NAMESPACE:5300"
    )
    assert without_names("127.0.0.1:5300 is busy", "127.0.0.1:5300") == "ADDRESS is busy"
