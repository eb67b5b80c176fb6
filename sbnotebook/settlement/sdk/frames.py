"""Frames of sbnotebook's own connections, written and read in fewer steps than the SDK takes."""

from __future__ import annotations

import struct
from typing import Any, Final

from sbnotebook.settlement.sdk.private import TransferFrame, decode_frame_of_sdk, encode_frame_of_sdk

_MESSAGE_FORMAT, _BATCH_FORMAT = 0, 0x80013700
"""Formats of a single message and of a batch (the SDK's ``Message`` and ``BatchMessage``)."""
# A transfer frame begins with its size and the size of the head with the type; the SDK writes the channel behind them.
# The list of fields has a descriptor, its size, and their number (AMQP 1.0 sections 2.3.1 and 2.7.5).
_HEAD, _TRANSFER = struct.Struct(">I2s"), struct.Struct(">4sBBBIBIBB4sBIBB")
_CODE, _TRUE, _FALSE, _UINT, _BINARY = b"\x00\x53\x14\xc0", 0x41, 0x42, 0x70, 0xA0
_TAG: Final = 4
"""Bytes of the tag that the SDK gives to a delivery."""
_USUAL, _UNUSED = 6, (None,) * 5
"""The number of fields that each transfer has, and the others, which few have."""
FRAME_ROOM: Final = 72
"""The most bytes that a transfer frame takes beside its payload (AMQP 1.0 sections 2.3.1 and 2.7.5)."""

# Behind the head, from the third byte on: the kind of the frame, the form, the length and the count of a list, and the
# form of its first field, a handle or a role.
_LIST, _TRANSFER_KIND, _DISPOSITION_KIND, _SHORTEST = 0xC0, 0x14, 0x15, 7
_SECOND_AT: Final = {_TRUE: 7, _FALSE: 7, 0x43: 7, 0x52: 8, _UINT: 11}
"""The place of the second field, by the form of the first."""
_LAYOUTS: Final = {_TRANSFER_KIND: struct.Struct(">BI2s16s"), _DISPOSITION_KIND: struct.Struct(">BIcI")}
_VARIES: Final = slice(1, 3)
_VARYING: Final = (b"\xa0\x10", b"\x70")
"""The forms of the third field: a tag of 16 bytes, or a number."""
_MOST_FORMS: Final = 64
_forms: Final[dict[tuple[bytes, int, bytes, bytes], list[Any]]] = {}
"""The fields of one frame of each form."""


class Encoded:
    """AMQP bytes that a sender transfers as they are, in place of one of the SDK's messages."""

    def __init__(self, payload: bytes, *, is_batch: bool) -> None:
        self.payload = payload
        self.format = _BATCH_FORMAT if is_batch else _MESSAGE_FORMAT


def encode_frame(frame: Any, **options: Any) -> tuple[bytes, bytes | None]:
    """Return the head and the rest of a frame, between which the channel is written; no rest of bytes, whole frames."""
    if isinstance(frame, bytes):
        return frame, None
    if isinstance(frame, TransferFrame) and frame[_USUAL:-1] == _UNUSED and len(frame.delivery_tag or b"") == _TAG:
        return _encode_transfer(frame)
    return encode_frame_of_sdk(frame, **options)


def _encode_transfer(frame: Any) -> tuple[bytes, bytes]:
    # The SDK encodes field by field, which takes a tenth of the time of sending a small message.
    fields = _TRANSFER.pack(
        *(_CODE, _TRANSFER.size - len(_CODE) - 1, _USUAL),
        *(_UINT, frame.handle, _UINT, frame.delivery_id, _BINARY, _TAG, frame.delivery_tag),
        *(_UINT, frame.message_format, _TRUE if frame.settled else _FALSE, _TRUE if frame.more else _FALSE),
    )
    return _HEAD.pack(8 + len(fields) + len(frame.payload), b"\x02\x00"), fields + frame.payload


def decode_frame(body: memoryview) -> tuple[int, list[Any]]:
    """Return the kind and the fields of a frame, and the payload of a transfer at their end."""
    # Transfers differ from each other in two fields only, the delivery's number and its tag. Dispositions differ in the
    # first and the last number. The SDK, which takes five times as long, decodes the first frame of each form.
    if len(body) < _SHORTEST:
        return decode_frame_of_sdk(body)
    kind, shape, length, count, first = body[2:_SHORTEST]
    layout, end, at = _LAYOUTS.get(kind), 5 + length, _SECOND_AT.get(first, len(body))
    if layout is None or shape != _LIST or not at + layout.size <= end <= len(body):
        return decode_frame_of_sdk(body)
    uint, number, form, value = layout.unpack_from(body, at)
    key = body[:at].tobytes(), uint, form, body[at + layout.size : end].tobytes()
    known = _forms.get(key)
    if known is None:
        _, fields = decode_frame_of_sdk(body)
        if uint == _UINT and form in _VARYING and count >= _VARIES.stop:
            if len(_forms) >= _MOST_FORMS:
                _forms.clear()
            _forms[key] = fields[:-1] if kind == _TRANSFER_KIND else fields
        return kind, fields
    fields = known.copy()
    fields[_VARIES] = number, value
    if kind == _TRANSFER_KIND:
        fields.append(body[end:])
    return kind, fields
