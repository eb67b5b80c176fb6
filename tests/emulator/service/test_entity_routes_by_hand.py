"""Entities by HTTP that the SDK does not send."""

from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.management_client import ask, described

SQL_WITHOUT_END = (
    '<Filter xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="SqlFilter">'
    "<SqlExpression>a =</SqlExpression></Filter>"
)
KEYS = "<AuthorizationRules>{}</AuthorizationRules>"
KEY = "<AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k</KeyName></AuthorizationRule>"


def test_newer_properties_are_left_out_for_older_versions(emulator: RunningEmulator) -> None:
    large = "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>"
    assert ask(emulator, "PUT", "/t?api-version=2021-05", described("TopicDescription", large))[0] == 201
    for version, has_size, has_counts in (("2017-04", False, False), ("2021-05", True, False), ("2024-05", True, True)):
        _, answer = ask(emulator, "GET", f"/t?api-version={version}")
        assert ("MaxMessageSizeInKilobytes>2048<" in answer, "SqlFilterCount>0<" in answer) == (has_size, has_counts)
    status, answer = ask(emulator, "PUT", "/q?api-version=2017-04", described("QueueDescription", large))
    assert (status, "api-version 2021-05 or later" in answer) == (400, True)


def test_a_missing_property_has_its_default(emulator: RunningEmulator) -> None:
    assert (
        ask(emulator, "PUT", "/bills", described("QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>"))[0]
        == 201
    )
    status, answer = ask(emulator, "PUT", "/bills", described("QueueDescription"), **{"If-Match": "*"})
    assert (status, "<MaxDeliveryCount>10<" in answer) == (200, True)
    assert ask(emulator, "PUT", "/plain")[0] == 201
    assert ask(emulator, "DELETE", "/bills") == (200, "")
    status, answer = ask(emulator, "GET", "/bills")
    assert (status, "Publicly Listed Services" in answer) == (200, True)


def test_other_sdks_write_the_words_in_other_cases(emulator: RunningEmulator) -> None:
    assert ask(emulator, "PUT", "/t", described("TopicDescription"))[0] == 201
    first = "<DefaultRuleDescription><Name>mine</Name></DefaultRuleDescription>"
    assert ask(emulator, "PUT", "/t/Subscriptions/s", described("SubscriptionDescription", first))[0] == 201
    assert ask(emulator, "GET", "/t/SUBSCRIPTIONS/s/Rules/mine")[0] == 200


def test_the_sdk_for_javascript_reads_prefixes_and_addresses(emulator: RunningEmulator) -> None:
    ask(emulator, "PUT", "/t", described("TopicDescription"))
    ask(emulator, "PUT", "/q", described("QueueDescription"))
    _, queue = ask(emulator, "GET", "/q")
    _, subscription = ask(emulator, "PUT", "/t/Subscriptions/s", described("SubscriptionDescription"))
    assert '<entry xmlns="http://www.w3.org/2005/Atom"><id>' in queue
    assert '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"' in queue
    counts = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
    assert f'<CountDetails xmlns:d2p1="{counts}"><d2p1:ActiveMessageCount>0<' in queue
    assert "/t/Subscriptions/s</id>" in subscription
    status, subscriptions = ask(emulator, "GET", "/t/Subscriptions/")
    assert (status, "/t/Subscriptions/s</id>" in subscriptions) == (200, True)
    status, rules = ask(emulator, "GET", "/t/subscriptions/s/rules/")
    assert (status, "/t/subscriptions/s/rules/$Default</id>" in rules) == (200, True)
    assert '<Filter i:type="TrueFilter"><SqlExpression>1=1<' in rules


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/t/subscriptions/s/$DeadLetterQueue", None, 400),
        ("PUT", "/a%20b", described("QueueDescription"), 400),
        ("PUT", "/x", described("RuleDescription"), 400),
        ("PUT", "/x", described("QueueDescription", KEYS.format(KEY * 13)), 400),
        ("PUT", "/x", described("QueueDescription", KEYS.format(KEY.replace("k", "k" * 300))), 400),
        ("PUT", "/x", described("QueueDescription", KEYS.format(KEY.replace("Send", "Fly"))), 400),
        ("PUT", "/x", described("TopicDescription", KEYS.format("<AuthorizationRule/>")), 400),
        ("PUT", "/t/subscriptions/s2", described("QueueDescription"), 400),
        ("PUT", "/t/subscriptions/s/rules/r", described("QueueDescription"), 400),
        ("PUT", "/t/subscriptions/s/rules/r", None, 400),
        ("PUT", "/t/subscriptions/s/rules/r", described("RuleDescription", SQL_WITHOUT_END), 400),
        ("GET", "/$Resources/queues?$top=0", None, 400),
        ("GET", "/$Resources/queues?$top=x", None, 400),
        ("GET", f"/$Resources/queues?$skip={'9' * 5_000}", None, 400),
        ("GET", "/$Resources/hubs", None, 404),
        ("GET", "/t/subscriptions/s/rules/nobody", None, 404),
        ("GET", "/?api-version=2024-05", None, 400),
        ("POST", "/orders", "x", 405),
    ],
)
def test_an_invalid_request_is_refused_as_an_xml_error(
    emulator: RunningEmulator, method: str, path: str, body: str | None, status: int
) -> None:
    ask(emulator, "PUT", "/t", described("TopicDescription"))
    ask(emulator, "PUT", "/t/subscriptions/s", described("SubscriptionDescription"))
    answer = ask(emulator, method, path, body)
    assert answer[0] == status
    assert f"<Error><Code>{status}</Code><Detail>" in answer[1]
    assert len(answer[1]) < 600
