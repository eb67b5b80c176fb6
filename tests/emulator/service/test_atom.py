from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from sbnotebook.emulator.entities import Queue, QueueOptions
from sbnotebook.emulator.service import atom
from sbnotebook.errors import ConfigurationError

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def entry(description: str) -> bytes:
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        f'xmlns="{SERVICE_BUS}">{description}</QueueDescription></content></entry>'
    ).encode()


def test_what_is_not_described_stays() -> None:
    known = QueueOptions(5_000, 7)
    assert atom.read_queue_options(b" ", known) == known
    assert atom.read_queue_options(entry("<EnableExpress>false</EnableExpress>"), known) == known
    assert atom.read_queue_options(entry("<LockDuration>PT30S</LockDuration>"), known) == QueueOptions(30_000, 7)
    assert atom.read_queue_options(entry("<MaxDeliveryCount>3</MaxDeliveryCount>"), known) == QueueOptions(5_000, 3)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"<entry", "not an ATOM entry"),
        (b"<entry/>", "queues only"),
        (entry("<RequiresSession>true</RequiresSession>"), "RequiresSession"),
        (entry("<ForwardTo>x</ForwardTo>"), "ForwardTo"),
        (entry("<LockDuration>PT6M</LockDuration>"), "LockDuration"),
        (entry("<LockDuration>soon</LockDuration>"), "is not a duration"),
        (entry(f"<MaxDeliveryCount>{'9' * 5_000}</MaxDeliveryCount>"), "MaxDeliveryCount"),
        (entry("<MaxDeliveryCount>-1</MaxDeliveryCount>"), "MaxDeliveryCount"),
    ],
)
def test_what_cannot_be_is_refused_by_name(body: bytes, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        atom.read_queue_options(body, QueueOptions())


def test_a_queue_is_read_as_it_was_written() -> None:
    queue = Queue("orders", QueueOptions(45_000, 4), [])
    assert atom.read_queue_options(atom.queue_entry(queue), QueueOptions()) == queue.options


@pytest.mark.parametrize(("next_page", "links"), [(None, 1), ("http://h/x?$skip=1&$top=1", 2)])
def test_the_next_page_is_the_second_link(next_page: str | None, links: int) -> None:
    root = ET.fromstring(atom.feed("/$Resources/queues", [], next_page))  # noqa: S314 - our own text
    found = root.findall("{http://www.w3.org/2005/Atom}link")
    assert len(found) == links
    assert found[-1].get("href") == (next_page or "/$Resources/queues")


def test_names_are_escaped() -> None:
    assert b"<b>" not in atom.error(404, "<b>")
