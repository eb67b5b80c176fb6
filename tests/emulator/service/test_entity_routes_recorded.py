"""Answers in the form of those that a namespace gave to the tests of Azure's SDKs.

Sources: azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests: BasicQueueCrudOperations,
ThrowsIfEntityDoesNotExist, ThrowsIfEntityAlreadyExists, ThrowsWhenAttemptingToUseDeadLetterPath,
GetNamespaceProperties, BasicRuleCrudOperations. azure-sdk-for-python, tests/recordings:
test_async_mgmt_subscription_create_with_forward_to, test_async_mgmt_rule_update_invalid,
test_async_mgmt_rule_create_duplicate. azure-sdk-for-java, session-records: getSubscriptionDoesNotExist.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import RunningEmulator, Tier, running
from sbnotebook.emulator.service.descriptions import ATOM, SERVICE_BUS
from tests.emulator.service.conftest import token
from tests.emulator.service.management_client import described

HOST = "my-bus.servicebus.windows.net"
VERSION = "api-version=2021-05"
MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."


def rule(parameters: str) -> str:
    """A rule with a condition and these parameters."""
    types = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns:d="http://www.w3.org/2001/XMLSchema"'
    condition = f"<SqlExpression>a = 1</SqlExpression>{parameters}"
    return described("RuleDescription", f'<Filter {types} i:type="SqlFilter">{condition}</Filter>')


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    kind: str | None
    tag: str | None
    text: str

    @property
    def root(self) -> ET.Element:
        """The document in it."""
        return ET.fromstring(self.text)  # noqa: S314 - our own text

    @property
    def elements(self) -> dict[str, str | None]:
        """The elements of a description with their texts, in order."""
        (description,) = self.root.iter(f"{ATOM}content")
        return {each.tag.removeprefix(SERVICE_BUS): each.text for each in description[0]}


class Client(NamedTuple):
    """A client of the emulator that knows it by a name of Azure."""

    emulator: RunningEmulator

    def __call__(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.emulator.http_url.removeprefix("http://"), timeout=20)
        place = f"{path}{'&' if '?' in path else '?'}{VERSION}"
        connection.request(method, place, body, {"Host": HOST, "Authorization": token(), **headers})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, response.headers["Content-Type"], response.headers["ETag"], text)


@pytest.fixture
def ask() -> Iterator[Client]:
    with running(queues=["orders"], tier=Tier.STANDARD) as emulator:
        client = Client(emulator)
        client("PUT", "/t", described("TopicDescription"))
        client("PUT", "/t/subscriptions/s", described("SubscriptionDescription"))
        yield client


def test_a_created_queue_has_no_counts_yet(ask: Client) -> None:
    answer = ask("PUT", "/q", described("QueueDescription"))
    assert (answer.status, answer.kind, answer.tag) == (201, "application/atom+xml; type=entry; charset=utf-8", None)
    assert list(answer.elements) == [
        *("LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession"),
        *("DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow"),
        *("MaxDeliveryCount", "EnableBatchedOperations", "SizeInBytes", "MessageCount", "IsAnonymousAccessible"),
        *("AuthorizationRules", "Status", "CreatedAt", "UpdatedAt", "SupportOrdering", "AutoDeleteOnIdle"),
        *("EnablePartitioning", "EntityAvailabilityStatus", "EnableExpress", "MaxMessageSizeInKilobytes"),
    ]
    assert answer.elements["SupportOrdering"] == "true"
    assert answer.elements["MaxMessageSizeInKilobytes"] == "256"
    assert answer.root.findtext(f"{ATOM}id") == f"http://{HOST}/q?{VERSION}"
    assert answer.root.findtext(f"{ATOM}author/{ATOM}name") == "my-bus"
    assert answer.text.startswith("<entry xmlns=")


def test_a_queue_that_is_read_has_a_tag_and_counts(ask: Client) -> None:
    answer = ask("GET", "/orders")
    assert (answer.status, answer.kind) == (200, "application/atom+xml; type=entry; charset=utf-8")
    assert {"AccessedAt", "CountDetails"} <= answer.elements.keys()
    assert answer.tag is not None
    assert len(answer.tag) == 18  # in steps of 100 ns since the year 1
    changed = ask("PUT", "/orders", described("QueueDescription"), **{"If-Match": "*"})
    assert (changed.status, changed.tag) == (200, answer.tag)
    assert changed.root.find(f"{ATOM}published") is None
    assert not {"AccessedAt", "CountDetails"} & changed.elements.keys()


def test_the_longest_time_comes_back_as_it_was_sent(ask: Client) -> None:
    longest = "P10675199DT2H48M5.477539S"
    body = f"<DefaultMessageTimeToLive>{longest}</DefaultMessageTimeToLive>"
    for headers in ({}, {"If-Match": "*"}):
        answer = ask("PUT", "/q", described("QueueDescription", body), **headers)
        assert answer.elements["DefaultMessageTimeToLive"] == longest
        assert answer.elements["AutoDeleteOnIdle"] == "P10675199DT2H48M5.4775807S"


def test_an_entity_was_accessed_when_it_is_used(ask: Client) -> None:
    assert ask("GET", "/orders").elements["AccessedAt"] == "0001-01-01T00:00:00Z"
    ask("PUT", "/orders", described("QueueDescription"), **{"If-Match": "*"})
    assert ask("GET", "/orders").elements["AccessedAt"] == "0001-01-01T00:00:00Z"
    with (
        ServiceBusClient.from_connection_string(ask.emulator.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    assert str(ask("GET", "/orders").elements["AccessedAt"]).startswith("20")


def test_a_created_subscription_has_no_author_and_no_counts(ask: Client) -> None:
    target = f"sb://{HOST}/orders"
    body = f"<ForwardTo>{target}</ForwardTo><ForwardDeadLetteredMessagesTo>{target}</ForwardDeadLetteredMessagesTo>"
    shown = dict.fromkeys(("ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"), token())
    made = ask("PUT", "/t/subscriptions/on", described("SubscriptionDescription", body), **shown)
    assert made.root.find(f"{ATOM}author") is None
    assert (made.elements["ForwardTo"], made.elements["ForwardDeadLetteredMessagesTo"]) == (target, target)
    assert (made.elements["AccessedAt"], made.elements["IsClientAffine"]) == ("0001-01-01T00:00:00", "false")
    assert "CountDetails" not in made.elements
    # A name becomes an address.
    named = ask(
        "PUT", "/t/subscriptions/named", described("SubscriptionDescription", body.replace(target, "orders")), **shown
    )
    assert (named.elements["ForwardTo"], named.elements["ForwardDeadLetteredMessagesTo"]) == (target, target)
    read = ask("GET", "/t/subscriptions/on")
    assert read.root.findtext(f"{ATOM}id") == f"sb://{HOST}/t/subscriptions/on?{VERSION}"
    assert read.elements["AccessedAt"] == read.elements["CreatedAt"]
    assert (made.tag, read.tag) == (ask("GET", "/t").tag,) * 2  # that of the topic


def test_a_topic_counts_its_subscriptions_for_those_who_read_it(ask: Client) -> None:
    assert ask("GET", "/t").elements["SubscriptionCount"] == "1"
    changed = ask("PUT", "/t", described("TopicDescription"), **{"If-Match": "*"})
    assert not {"SubscriptionCount", "CountDetails", "AccessedAt"} & changed.elements.keys()


def test_lists_are_feeds_with_a_title(ask: Client) -> None:
    for path, title in (
        ("/$Resources/queues", "Queues"),
        ("/$Resources/topics", "Topics"),
        ("/t/subscriptions", "Subscriptions"),
        ("/t/subscriptions/s/rules", "Rules"),
    ):
        answer = ask("GET", path)
        assert answer.kind == "application/atom+xml; type=feed; charset=utf-8"
        assert answer.root.findtext(f"{ATOM}title") == title
        assert answer.root.findtext(f"{ATOM}updated")
    assert answer.root.findtext(f"{ATOM}entry/{ATOM}id") == f"http://{HOST}/t/subscriptions/s/rules/$Default?{VERSION}"


@pytest.mark.parametrize("path", ["/none", "/team/none", "/none/Subscriptions/s", "/none/subscriptions/s/rules/r"])
def test_what_is_missing_is_answered_with_a_public_feed(ask: Client, path: str) -> None:
    answer = ask("GET", path)
    assert (answer.status, answer.kind, answer.tag) == (200, "application/atom+xml; type=feed; charset=utf-8", None)
    assert answer.root.findtext(f"{ATOM}title") == "Publicly Listed Services"
    assert answer.root.findall(f"{ATOM}entry") == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("PUT", "/orders", "QueueDescription", 409, f"SubCode=40900. Conflict. .* current state. {MORE}"),
        ("PUT", "/t", "QueueDescription", 409, f"SubCode=40900. Conflict. .* current state. {MORE}"),
        (
            *("PUT", "/t/subscriptions/s", "SubscriptionDescription", 409),
            rf"The messaging entity 'my-bus:Topic:t\|s' already exists. {MORE}",
        ),
        (
            *("PUT", "/t/subscriptions/s/rules/$Default", "RuleDescription", 409),
            rf"The messaging entity 'my-bus:Topic:t\|s\|\$Default' already exists. {MORE}",
        ),
        ("If-Match", "/x", "QueueDescription", 404, f"SubCode=40400. Not Found. The Operation doesn't exist. {MORE}"),
        ("If-Match", "/x/Subscriptions/s", "SubscriptionDescription", 404, "The incoming request is not recognized as"),
        ("If-Match", "/t/subscriptions/x", "SubscriptionDescription", 404, r"Entity 'my-bus:Topic:t\|x' was not found"),
        ("If-Match", "/t/subscriptions/s/rules/x", "RuleDescription", 404, r"Entity 'my-bus:Topic:t\|s\|x' was not"),
        ("DELETE", "/x", None, 404, "No service is hosted at the specified address."),
        ("DELETE", "/x/subscriptions/s", None, 404, "No service is hosted at the specified address."),
        ("GET", "/t/subscriptions/x", None, 404, rf"Entity 'my-bus:Topic:t\|x' was not found. {MORE}"),
        ("GET", "/orders/$DeadLetterQueue", None, 400, rf"The specified HTTP verb \(GET\) is not valid. {MORE}"),
        ("GET", "/t/$DeadLetterQueue", None, 400, rf"The specified HTTP verb \(GET\) is not valid. {MORE}"),
        ("PUT", "/", "QueueDescription", 400, rf"The specified HTTP verb \(PUT\) is not valid. {MORE}"),
        ("PUT", "/t/subscriptions", "SubscriptionDescription", 400, r"The specified HTTP verb \(PUT\) is not valid."),
        ("PUT", "/t/subscriptions/s/rules", "RuleDescription", 400, r"The specified HTTP verb \(PUT\) is not valid."),
    ],
)
def test_refusals_are_in_the_words_of_the_service(
    ask: Client, method: str, path: str, body: str | None, status: int, detail: str
) -> None:
    headers = {"If-Match": "*"} if method == "If-Match" else {}
    answer = ask("PUT" if headers else method, path, described(body) if body else None, **headers)
    assert (answer.status, answer.kind) == (status, "application/xml; charset=utf-8")
    assert re.match(rf"{detail}.* TrackingId:[-0-9a-f]+, SystemTracker:{HOST}:", answer.root.findtext("Detail") or "")


@pytest.mark.parametrize(
    ("option", "detail"),
    [
        ("<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>", r"SubCode=40000\. Bad Request\."),
        (
            "<LockDuration>P25D</LockDuration>",
            r"SubCode=40000\. The supplied lock time exceeds the allowed maximum of '5' minutes",
        ),
    ],
)
def test_options_are_refused_in_the_words_of_the_service(ask: Client, option: str, detail: str) -> None:
    answer = ask("PUT", "/q", described("QueueDescription", option))
    assert answer.status == 400
    assert re.match(detail, answer.root.findtext("Detail") or "")


def test_the_namespace_is_the_first_label_of_the_host(ask: Client) -> None:
    answer = ask("GET", "/$namespaceinfo")
    assert list(answer.elements) == ["CreatedTime", "MessagingSKU", "ModifiedTime", "Name", "NamespaceType"]
    assert (answer.elements["Name"], answer.root.findtext(f"{ATOM}title")) == ("my-bus", "my-bus")
    assert answer.root.findtext(f"{ATOM}author/{ATOM}name") == "my-bus"
    assert answer.root.find(f"{ATOM}published") is None


@pytest.mark.parametrize(
    ("kind", "text", "namespace"),
    [
        ("int", "1", "http://www.w3.org/2001/XMLSchema"),
        ("duration", "P1D", "http://schemas.microsoft.com/2003/10/Serialization/"),
        ("dateTime", "2020-08-03T20:44:01.3987201Z", "http://www.w3.org/2001/XMLSchema"),
        ("dateTime", "2020-07-05T11:12:13", "http://www.w3.org/2001/XMLSchema"),
    ],
)
def test_a_parameter_of_a_rule_names_its_type(ask: Client, kind: str, text: str, namespace: str) -> None:
    value = f'<Value i:type="d:{kind}">{text}</Value>'
    pair = f"<KeyValueOfstringanyType><Key>@a</Key>{value}</KeyValueOfstringanyType>"
    ask("PUT", "/t/subscriptions/s/rules/r", rule(f"<Parameters>{pair}</Parameters>"))
    (found,) = re.findall(r"<Value ([^>]*)>([^<]*)</Value>", ask("GET", "/t/subscriptions/s/rules/r").text)
    assert found[1] == text
    assert set(found[0].split()) == {f'i:type="d6p1:{kind}"', f'xmlns:d6p1="{namespace}"'}


def test_a_rule_keeps_the_flag_of_its_filter(ask: Client) -> None:
    ask("PUT", "/t/subscriptions/s/rules/r", rule("<RequiresPreprocessing>true</RequiresPreprocessing>"))
    order = "</CompatibilityLevel><RequiresPreprocessing>true</RequiresPreprocessing><Parameters />"
    assert order in ask("GET", "/t/subscriptions/s/rules/r").text


def test_a_rule_without_parameters_says_so(ask: Client) -> None:
    ask("PUT", "/t/subscriptions/s/rules/plain", rule(""))
    answer = ask("GET", "/t/subscriptions/s/rules/plain")
    assert "<CompatibilityLevel>20</CompatibilityLevel><Parameters /></Filter>" in answer.text
    assert "Parameters" not in ask("GET", "/t/subscriptions/s/rules/$Default").text
