"""Queues as ATOM entries: the language of Service Bus's administration over HTTP.

Source: Service Bus REST documentation, "Entities" and "Queue description".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from sbnotebook.emulator.entities import Queue, QueueOptions
from sbnotebook.emulator.entities.durations import format_duration, parse_duration
from sbnotebook.errors import ConfigurationError

__all__ = ["error", "feed", "namespace_entry", "queue_entry", "read_queue_options"]

_ATOM: Final = "{http://www.w3.org/2005/Atom}"
_SERVICE_BUS: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
_COUNTS: Final = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"
_FOREVER: Final = "P10675199DT2H48M5.4775807S"
_MAX_DIGITS: Final = 9
_UNSUPPORTED: Final = ("RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning")


def queue_entry(queue: Queue) -> bytes:
    """The description of a queue, with its counts."""
    return _document(_queue_entry(queue))


def feed(title: str, queues: Iterable[Queue], next_page: str | None) -> bytes:
    """A page of queues; ``next_page`` is the address of the page behind it, if there is one."""
    root = ET.Element(f"{_ATOM}feed")
    _text(root, f"{_ATOM}title", title)
    ET.SubElement(root, f"{_ATOM}link", rel="self", href=title)
    if next_page is not None:
        # Clients look for the second link.
        ET.SubElement(root, f"{_ATOM}link", rel="next", href=next_page)
    root.extend(_queue_entry(queue) for queue in queues)
    return _document(root)


def namespace_entry(name: str, created: int) -> bytes:
    """The description of the namespace; ``created`` is in ms."""
    entry, content = _entry(name)
    info = ET.SubElement(content, f"{_SERVICE_BUS}NamespaceInfo")
    for key, value in (
        ("Alias", ""),
        ("CreatedTime", _time(created)),
        ("MessagingSKU", "Premium"),
        ("MessagingUnits", "1"),
        ("ModifiedTime", _time(created)),
        ("Name", name),
        ("NamespaceType", "Messaging"),
    ):
        _text(info, _SERVICE_BUS + key, value)
    return _document(entry)


def error(code: int, detail: str) -> bytes:
    """Why a request was refused."""
    root = ET.Element("Error")
    _text(root, "Code", str(code))
    _text(root, "Detail", detail)
    return _document(root)


def read_queue_options(body: bytes, known: QueueOptions) -> QueueOptions:
    """Read a queue description.

    Args:
        body: an ATOM entry; nothing at all means ``known`` as it is.
        known: what is not described stays like this.

    Raises:
        ConfigurationError: the entry cannot be read, or asks for what the emulator does not have.
    """
    if not body.strip():
        return known
    try:
        description = ET.fromstring(body).find(f"{_ATOM}content/{_SERVICE_BUS}QueueDescription")  # noqa: S314
    except ET.ParseError as problem:
        raise ConfigurationError(f"The body is not an ATOM entry: {problem}.") from None
    if description is None:
        raise ConfigurationError("The body has no QueueDescription; the emulator has queues only.")
    fields = {element.tag.removeprefix(_SERVICE_BUS): (element.text or "").strip() for element in description}
    _refuse_unsupported(fields)
    options = known
    if fields.get("LockDuration"):
        options = replace(options, lock_duration=parse_duration(fields["LockDuration"]))
    if fields.get("MaxDeliveryCount"):
        options = replace(options, max_delivery_count=_number(fields["MaxDeliveryCount"]))
    return options


def _refuse_unsupported(fields: dict[str, str]) -> None:
    asked = [name for name in _UNSUPPORTED if fields.get(name, "").lower() == "true"]
    asked += [name for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo") if fields.get(name)]
    if asked:
        raise ConfigurationError(f"The emulator does not have {', '.join(asked)} yet: leave it out.")


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise ConfigurationError(f"MaxDeliveryCount must be a number of at most {_MAX_DIGITS} digits.")
    return int(text)


def _queue_entry(queue: Queue) -> ET.Element:
    entry, content = _entry(queue.path)
    description = ET.SubElement(content, f"{_SERVICE_BUS}QueueDescription")
    for key, value in _fields(queue):
        _text(description, _SERVICE_BUS + key, value)
    counts = queue.counts
    details = ET.SubElement(description, f"{_SERVICE_BUS}CountDetails")
    for key, number in (
        # Deferred messages are counted as active ones.
        ("ActiveMessageCount", counts.active + counts.deferred),
        ("DeadLetterMessageCount", counts.dead_letter),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", 0),
        ("TransferDeadLetterMessageCount", 0),
    ):
        _text(details, _COUNTS + key, str(number))
    return entry


def _fields(queue: Queue) -> Sequence[tuple[str, str]]:
    created = _time(queue.created_time)
    return (
        ("LockDuration", format_duration(queue.options.lock_duration)),
        ("MaxSizeInMegabytes", "81920"),
        ("RequiresDuplicateDetection", "false"),
        ("RequiresSession", "false"),
        ("DefaultMessageTimeToLive", _FOREVER),
        ("DeadLetteringOnMessageExpiration", "false"),
        ("DuplicateDetectionHistoryTimeWindow", "PT10M"),
        ("MaxDeliveryCount", str(queue.options.max_delivery_count)),
        ("EnableBatchedOperations", "true"),
        ("SizeInBytes", str(queue.size_bytes + queue.dead_letter.size_bytes)),
        ("MessageCount", str(len(queue) + len(queue.dead_letter))),
        ("Status", "Active"),
        ("CreatedAt", created),
        ("UpdatedAt", created),
        ("AccessedAt", created),
        ("AutoDeleteOnIdle", _FOREVER),
        ("EnablePartitioning", "false"),
        ("EntityAvailabilityStatus", "Available"),
        ("EnableExpress", "false"),
        ("MaxMessageSizeInKilobytes", "1024"),
    )


def _entry(title: str) -> tuple[ET.Element, ET.Element]:
    entry = ET.Element(f"{_ATOM}entry")
    _text(entry, f"{_ATOM}title", title).set("type", "text")
    return entry, ET.SubElement(entry, f"{_ATOM}content", type="application/xml")


def _text(parent: ET.Element, tag: str, text: str) -> ET.Element:
    element = ET.SubElement(parent, tag)
    element.text = text
    return element


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _document(root: ET.Element) -> bytes:
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)
