"""ATOM, the envelope of every description that goes over HTTP. Hostile documents are refused.

Source: Service Bus REST documentation, "Entities"; RFC 4287; what a namespace answered, as recorded for the tests of
Azure's SDKs (azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4
from xml.etree import ElementTree as ET

from sbnotebook.errors import ConfigurationError

ATOM: Final = "{http://www.w3.org/2005/Atom}"
SERVICE_BUS: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
SCHEMA_INSTANCE: Final = "{http://www.w3.org/2001/XMLSchema-instance}"


def read_description(body: bytes) -> ET.Element:
    if b"<!DOCTYPE" in body:
        raise ConfigurationError("The body must not have a document type (DOCTYPE): leave it out.")
    try:
        text = body.decode("utf-8-sig")
        content = ET.fromstring(text).find(f"{ATOM}content")  # noqa: S314 - no document type, no entities
    except (ET.ParseError, ValueError) as problem:
        raise ConfigurationError(f"The body is not an ATOM entry: {problem}.") from None
    if content is None or not len(content):
        raise ConfigurationError("The body is not an ATOM entry with a description as its content.")
    return content[0]


def entry(
    title: str,
    address: str,
    created_time: int | None,
    updated_time: int,
    description: ET.Element,
    author: str | None = None,
) -> ET.Element:
    """Return an entity or rule by its name and URL; the author is the namespace, None for subscriptions and rules."""
    root = ET.Element(f"{ATOM}entry")
    add_text(root, f"{ATOM}id", address)
    add_text(root, f"{ATOM}title", title).set("type", "text")
    if created_time is not None:
        add_text(root, f"{ATOM}published", atom_time(created_time, whole=True))
    add_text(root, f"{ATOM}updated", atom_time(updated_time, whole=True))
    if author is not None:
        add_text(ET.SubElement(root, f"{ATOM}author"), f"{ATOM}name", author)
    ET.SubElement(root, f"{ATOM}link", rel="self", href=address)
    ET.SubElement(root, f"{ATOM}content", type="application/xml").append(description)
    return root


def feed(title: str, address: str, now: int, entries: Iterable[ET.Element], next_page: str | None) -> ET.Element:
    root = ET.Element(f"{ATOM}feed")
    add_text(root, f"{ATOM}title", title).set("type", "text")
    add_text(root, f"{ATOM}id", address)
    add_text(root, f"{ATOM}updated", atom_time(now, whole=True))
    ET.SubElement(root, f"{ATOM}link", rel="self", href=address)
    if next_page is not None:
        # Clients look for the second link.
        ET.SubElement(root, f"{ATOM}link", rel="next", href=next_page)
    root.extend(entries)
    return root


def missing(now: int) -> ET.Element:
    """Return the feed that Service Bus answers with where no entity is; ``now`` is in ms.

    Source: azure-sdk-for-net, ThrowsIfEntityDoesNotExistAsync.json.
    """
    root = ET.Element(f"{ATOM}feed")
    add_text(root, f"{ATOM}title", "Publicly Listed Services").set("type", "text")
    about = "This is the list of publicly-listed services currently available."
    add_text(root, f"{ATOM}subtitle", about).set("type", "text")
    add_text(root, f"{ATOM}id", f"uuid:{uuid4()};id=1")
    add_text(root, f"{ATOM}updated", atom_time(now, whole=True))
    add_text(root, f"{ATOM}generator", "Service Bus 1.1")
    return root


def error(code: int, detail: str) -> bytes:
    root = ET.Element("Error")
    add_text(root, "Code", str(code))
    add_text(root, "Detail", detail)
    return document(root)


def document(root: ET.Element) -> bytes:
    """Return an element as a document, with the prefixes of Service Bus. The tags lose their namespaces.

    Some clients read names with their prefixes, not namespaces: @azure/service-bus for JavaScript looks for ``entry``.
    """
    _use_prefixes(root, "")
    return ET.tostring(root, encoding="utf-8")


def add_text(parent: ET.Element, tag: str, text: str) -> ET.Element:
    """Add an element with a text. Characters that XML does not allow are replaced."""
    element = ET.SubElement(parent, tag)
    element.text = "".join(char if _is_allowed(char) else "\ufffd" for char in text)
    return element


def atom_time(milliseconds: int, *, whole: bool = False) -> str:
    """Return a time (ms) as Service Bus writes it, in whole seconds or with the digits that it needs."""
    seconds, rest = divmod(milliseconds, 1000)
    digits = "" if whole or not rest else f".{rest:03}".rstrip("0")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{digits}Z"


def _is_allowed(char: str) -> bool:
    # XML 1.0, section 2.2.
    return char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff"


def _use_prefixes(element: ET.Element, default: str) -> None:
    namespace, brace, element.tag = element.tag.rpartition("}")
    if brace and namespace + brace != default:
        default = namespace + brace
        element.set("xmlns", default[1:-1])
        if default == SERVICE_BUS:
            element.set("xmlns:i", SCHEMA_INSTANCE[1:-1])
    kind = element.attrib.pop(f"{SCHEMA_INSTANCE}type", None)
    if kind is not None:
        element.set("i:type", kind)
    for child in element:
        _use_prefixes(child, default)
