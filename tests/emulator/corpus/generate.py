"""Writes the corpus of bad input: ``python -m tests.emulator.corpus.generate``.

Every file holds what one client sends. Its name begins with how it ends: the condition of the close
frame, ``stays`` if the connection stays open, ``silence`` if it ends without a word, or the status of
the answer over HTTP. A file that was found, and is not made here, is kept as it is: copy it into the
folder under such a name.
"""

from __future__ import annotations

import base64
import hmac
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from sbnotebook.amqp import Described, Symbol, ULong, encode
from sbnotebook.emulator.amqp.frames import SASL_FRAME, FrameWriter
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    encode_composite,
)

FOLDER = Path(__file__).parent
HEADER, SASL_HEADER = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
PLAIN = encode(Described(ULong(0x41), [Symbol("PLAIN"), b"\x00u\x00p", "h"]))
FRAMING, DECODE = "connection-framing-error", "decode-error"


def frame(body: Any, payload: bytes = b"", *, channel: int = 0, kind: int = 0) -> bytes:
    """One frame; the body is a performative, or bytes as they are."""
    writer = FrameWriter()
    writer.write(channel, body if isinstance(body, bytes) else encode_composite(body), payload, kind=kind)
    return writer.take()


def attach(handle: int, role: bool, address: str, name: str = "") -> bytes:
    """The frame that attaches a link."""
    return frame(
        Attach(
            name=name or f"link {handle}",
            handle=handle,
            role=role,
            source=Source(address),
            target=Target(address),
            initial_delivery_count=0,
        )
    )


def transfer(payload: bytes, handle: int = 0, **fields: Any) -> bytes:
    """The frame of a message."""
    given: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"0", "message_format": 0} | fields
    return frame(Transfer(handle=handle, **given), payload)


def flow(**fields: Any) -> bytes:
    """The frame of a flow."""
    given: dict[str, Any] = {"next_incoming_id": 0, "incoming_window": 100} | fields
    return frame(Flow(next_outgoing_id=0, outgoing_window=100, **given))


OPEN = HEADER + frame(Open(container_id="corpus"))
BEGUN = OPEN + frame(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
ASKING = BEGUN + attach(0, SENDER, "$cbs") + attach(1, RECEIVER, "$cbs") + flow(handle=1, link_credit=1)


def nested(levels: int) -> bytes:
    """A list in a list in a list, with sizes that fit."""
    value = b"\x45"
    for _ in range(levels):
        value = b"\xd0" + (len(value) + 4).to_bytes(4) + b"\x00\x00\x00\x01" + value
    return value


def opening(properties: bytes) -> bytes:
    """An open with nine fields of which the last, the properties, is as given."""
    content = encode("c") + b"\x40" * 8 + properties
    return b"\x00\x53\x10\xd0" + (len(content) + 4).to_bytes(4) + b"\x00\x00\x00\x0a" + content


def amqp() -> dict[str, bytes]:
    """What breaks AMQP, by the name of its file."""
    ends: dict[str, bytes] = {
        "silence other-version": b"AMQP\x00\x00\x09\x01",
        "silence cut-header": b"AMQP\x00\x01",
        "silence no-mechanism": SASL_HEADER + frame(PLAIN, kind=SASL_FRAME),
        "silence sasl-nonsense": SASL_HEADER + frame(b"\x00\x53\x41\xa1\x01x", kind=SASL_FRAME),
        f"{FRAMING} frame-of-2-GiB": HEADER + b"\x7f\xff\xff\xff\x02\x00\x00\x00",
        f"{FRAMING} frame-of-4-bytes": OPEN + b"\x00\x00\x00\x04\x02\x00\x00\x00",
        f"{FRAMING} body-behind-the-end": OPEN + b"\x00\x00\x00\x08\xff\x00\x00\x00",
        f"{FRAMING} sasl-frame-late": OPEN + frame(b"", kind=SASL_FRAME) + frame(b"\x45", kind=SASL_FRAME),
        f"{FRAMING} no-performative": BEGUN + frame(Accepted()),
        "not-allowed open-twice": OPEN + frame(Open(container_id="again")),
        "not-allowed begin-before-open": HEADER
        + frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
        "not-allowed channel-too-high": OPEN
        + frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=5000),
        "not-allowed begin-twice": BEGUN + frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
        "not-allowed transfer-of-the-other-direction": ASKING + transfer(b"x", handle=1),
        f"{FRAMING} handle-too-high": BEGUN + attach(5000, SENDER, "$cbs"),
        "session-handle-in-use attach-twice": ASKING + attach(0, SENDER, "$cbs", name="other"),
        f"{FRAMING} transfer-without-id": ASKING + transfer(b"x", delivery_id=None),
        f"{FRAMING} message-within-a-message": ASKING + transfer(b"x", more=True) + transfer(b"y", delivery_id=1),
        "invalid-field small-frames": HEADER + frame(Open(container_id="c", max_frame_size=100)),
        "not-found channel-that-never-began": OPEN + attach(0, SENDER, "$cbs"),
        "stays session-that-ended": BEGUN + frame(End()) + attach(0, SENDER, "$cbs"),
        "invalid-field tag-of-33-bytes": ASKING + transfer(b"x", delivery_tag=b"t" * 33),
        "stays unknown-handle": BEGUN + transfer(b"x", handle=77),
        "not-found unknown-channel": BEGUN
        + frame(Flow(incoming_window=0, next_outgoing_id=0, outgoing_window=0), channel=9),
        "stays empty-frames": BEGUN + frame(b"") * 1000,
        "stays every-delivery-at-once": ASKING
        + frame(Disposition(role=RECEIVER, first=0, last=2**32 - 1, settled=True, state=Accepted())),
        "stays flood-of-flows": ASKING + flow(handle=0, echo=True, delivery_count=0, link_credit=1) * 2000,
        "stays flood-of-refused-links": BEGUN + b"".join(attach(at, SENDER, "nowhere") for at in range(500)),
        "stays stolen-again-and-again": BEGUN
        + b"".join(attach(at, SENDER, "$cbs", name="one") for at in range(300)),
    }  # fmt: skip
    return ends | {f"stays message-{name}": ASKING + transfer(payload) for name, payload in messages().items()}


def values() -> dict[str, bytes]:
    """Values that cannot be read."""
    return {
        "cut-short": b"\xb1\x00\x00\x01\x00x",
        "too-deep": nested(100),
        "much-too-deep": nested(5000),
        "described-for-ever": b"\x00" * 3000,
        "list-of-4-billion": b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        "array-of-4-billion-nulls": b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        "array-in-array-of-nulls": b"\xf0\x00\x00\x00\x0f\x00\x00\x00\x01\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        "map-with-a-key-alone": b"\xc1\x04\x01\xa1\x01k",
        "map-with-a-list-as-key": b"\xc1\x03\x02\x45\x40",
        "size-behind-the-end": b"\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
        "size-too-small": b"\xc0\x02\x05\x40\x40",
        "no-utf-8": b"\xa1\x02\xff\xfe",
        "half-a-pair": b"\x73\x00\x00\xd8\x00",
        "unknown-type": b"\x3f",
        "boolean-of-2": b"\x56\x02",
    }


def messages() -> dict[str, bytes]:
    """Requests that cannot be read: they are rejected, and nothing ends."""
    found = {f"body-{name}": b"\x00\x53\x77" + value for name, value in values().items()}
    found |= {f"properties-{name}": b"\x00\x53\x73" + value for name, value in values().items()}
    return found | {"empty": b"", "out-of-order": b"\x00\x53\x77\x40\x00\x53\x73\x45", "no-section": b"\x40"}


def http() -> dict[str, bytes]:
    """What breaks HTTP, or the administration of entities."""
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">%s]><entry>&j;</entry>' % b"".join(
        b'<!ENTITY %c "%s">' % (after, b"&%c;" % before * 10)
        for before, after in zip(b"abcdefghi", b"bcdefghij", strict=True)
    )
    file = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><entry>&a;</entry>'
    deep_json = b"[" * 100_000
    return {
        "400 version-9": b"GET /health HTTP/9.9\r\n\r\n",
        "400 header-without-colon": b"GET /health HTTP/1.1\r\nnonsense\r\n\r\n",
        "400 negative-length": b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "400 two-lengths": (
            b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
        ),
        "400 line-too-long": b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "400 header-too-long": b"GET /health HTTP/1.1\r\nHost: " + b"x" * 9000 + b"\r\n\r\n",
        "silence length-that-never-comes": request(b"POST /faults", b"{", b"Content-Length: 999999999999\r\n"),
        "400 deep-json": request(b"POST /faults", deep_json),
        "400 no-json": request(b"POST /faults", b"\xff\xfe"),
        "401 no-key": request(b"PUT /new", b""),
        "400 bomb-in-xml": request(b"PUT /bomb", bomb, headers=signed()),
        "400 file-in-xml": request(b"PUT /file", file, headers=signed()),
        "400 deep-xml": request(b"PUT /deep", b"<entry>" * 35_000, headers=signed()),
        "413 long-xml": request(b"PUT /long", b"<entry>" * 50_000, headers=signed()),
        "400 odd-name": request(b"PUT /%00%ff%2e%2e/..", b"", headers=signed()),
        "400 http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    }


def request(line: bytes, body: bytes, length: bytes | None = None, headers: bytes = b"") -> bytes:
    """A request over HTTP/1.1 with a body."""
    length = b"Content-Length: %d\r\n" % len(body) if length is None else length
    head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return line + head + length + headers + b"\r\n" + body


def signed() -> bytes:
    """The header of one who may manage, with the emulator's well-known key, until the year 2100."""
    resource, expiry = quote_plus("http://localhost/"), 4_102_444_800
    signature = base64.b64encode(hmac.digest(b"SAS_KEY_VALUE", f"{resource}\n{expiry}".encode(), "sha256"))
    fields = f"sr={resource}&sig={quote_plus(signature)}&se={expiry}&skn=RootManageSharedAccessKey"
    return f"Authorization: SharedAccessSignature {fields}\r\n".encode()


def corpus() -> dict[str, bytes]:
    """All files that are made here, by name."""
    found = amqp() | http()
    found |= {f"{DECODE} open-{name}": HEADER + frame(opening(value)) for name, value in values().items()}
    found |= {f"{DECODE} frame-{name}": BEGUN + frame(value) for name, value in values().items()}
    found["stays orderly"] = ASKING
    found["closed orderly"] = ASKING + frame(Close())
    return {name.replace(" ", "--") + ".bin": data for name, data in found.items()}


if __name__ == "__main__":
    for name, data in corpus().items():
        (FOLDER / name).write_bytes(data)
