from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from sbnotebook.emulator.service import descriptions
from sbnotebook.errors import ConfigurationError

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "lol"}">' for n in range(10))
BOMB = f"<?xml version='1.0'?><!DOCTYPE entry [{LAUGHS}]>" + "<entry>&l9;</entry>"
FILE = '<!DOCTYPE entry [<!ENTITY file SYSTEM "file:///etc/passwd">]><entry>&file;</entry>'


def parsed(body: bytes) -> ET.Element:
    return ET.fromstring(body)  # noqa: S314 - our own text


def test_a_description_is_read_as_it_was_written() -> None:
    metadata = descriptions.node("UserMetadata", "<b> & ü \x00 \ud800")
    description = descriptions.node("QueueDescription", metadata, xmlns=descriptions.SERVICE_BUS[1:-1])
    body = descriptions.document(descriptions.entry("orders", "http://h/orders", 1_500, 2_500, description))
    (metadata,) = descriptions.read_description(body)
    assert metadata.text == "<b> & ü \ufffd \ufffd"
    root = parsed(body)
    assert root.findtext(f"{descriptions.ATOM}title") == "orders"
    assert root.findtext(f"{descriptions.ATOM}published") == "1970-01-01T00:00:01Z"


@pytest.mark.parametrize("body", [BOMB.encode(), FILE.encode(), b"\xef\xbb\xbf" + BOMB.encode()])
def test_document_types_are_refused(body: bytes) -> None:
    with pytest.raises(ConfigurationError, match="DOCTYPE"):
        descriptions.read_description(body)


@pytest.mark.parametrize(
    "body",
    [
        BOMB.encode("utf-16"),
        BOMB.encode("utf-16-be"),
        BOMB.encode("cp037"),
        b"<entry",
        b"<entry/>",
        b"\xff",
        b"<entry>&l9;</entry>",
        b"<?xml version='1.0' encoding='utf-7'?>+ADwAIQ-DOCTYPE+AD4-",
        b"<a>" * 300_000,
        b"<a>" * 100_000 + b"</a>" * 100_000,
        b"<entry xmlns='http://www.w3.org/2005/Atom'><content/></entry>",
    ],
)
def test_a_document_that_is_not_an_entry_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigurationError, match="not an ATOM entry"):
        descriptions.read_description(body)


def test_names_are_escaped() -> None:
    assert b"<b>" not in descriptions.error(404, "<b>")
    assert parsed(descriptions.error(404, "<b>\x01")).findtext("Detail") == "<b>\ufffd"
