"""The functions of the SDK that sbnotebook replaces, for the whole process.

Everything else that sbnotebook changes belongs to one sender or receiver, which it made itself.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus import __version__

from sbnotebook.errors import render_traceback
from sbnotebook.settlement.sdk import check_version
from sbnotebook.settlement.sdk.protocol import TransferFrame, sender_module, session_module, transport_module
from sbnotebook.settlement.sdk.sharing import LAST_WAIT, frame_come, share_connections
from sbnotebook.settlement.sdk.tokens import refresh_beside_work

__all__ = ["Encoded", "EncodedFrames", "prepare_sdk"]

_MESSAGE_FORMAT, _BATCH_FORMAT = 0, 0x80013700
"""Formats of a single message and of a batch (the SDK's ``Message`` and ``BatchMessage``)."""
_WAITED: Final = 0.001
"""Seconds from which on a frame had not come when it was to be read."""
# A transfer frame begins with its size and the size of the head with the type; the SDK writes the channel behind them.
# The list of fields has a descriptor, its size, and their number (AMQP 1.0 sections 2.3.1 and 2.7.5).
_HEAD, _TRANSFER = struct.Struct(">I2s"), struct.Struct(">4sBBBIBIBB4sBIBB")
_CODE, _TRUE, _FALSE, _UINT, _BINARY = b"\x00\x53\x14\xc0", 0x41, 0x42, 0x70, 0xA0
_TAG: Final = 4
"""Bytes of the tag that the SDK gives to a delivery."""
_USUAL, _UNUSED = 6, (None,) * 5
"""The number of fields that each transfer has, and the others, which few have."""
_FRAME_ROOM: Final = bytes(64)
"""The most bytes that a transfer frame of the SDK takes beside its payload (AMQP 1.0 section 2.7.5)."""

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


def prepare_sdk(installed: str = __version__) -> None:
    """Check the SDK's version, and replace slow functions and those that lose types or locks. Repeating it is safe.

    In a notebook, the SDK's errors show the user's own frames only, as sbnotebook's errors do.

    Args:
        installed: the version of azure-servicebus, by default the one that is imported.

    Raises:
        ConfigurationError: sbnotebook does not work with this version.
    """
    check_version(installed)
    sender_module.encode_payload = _encode_payload
    session_module.encode_frame = _measure_frame
    transport_module.AsyncTransportMixin.receive_frame = _receive_frame
    transport_module.encode_frame = _encode_frame
    transport_module.decode_frame = _decode_frame
    refresh_beside_work()
    share_connections()
    AzureError._render_traceback_ = render_traceback  # pyright: ignore[reportAttributeAccessIssue]


class Encoded:
    """AMQP bytes that a sender transfers as they are, in place of one of the SDK's messages.

    Args:
        payload: a message, or a batch of messages.
        is_batch: whether the payload is a batch.
    """

    def __init__(self, payload: bytes, *, is_batch: bool) -> None:
        self.payload = payload
        self._code = _BATCH_FORMAT if is_batch else _MESSAGE_FORMAT


class EncodedFrames:
    """Whole frames that a connection writes as they are, in place of one frame of the SDK's.

    Args:
        frames: one after the other.
    """

    def __init__(self, frames: bytes) -> None:
        self.frames = frames


_encode_sdk_message: Final[Any] = sender_module.encode_payload


def _encode_payload(output: bytearray, message: Any) -> Any:
    # The SDK's link encodes each message at the last moment, here. If a later version encodes elsewhere, an Encoded
    # raises there, and is not sent as something else.
    if not isinstance(message, Encoded):
        return _encode_sdk_message(output, message)
    output += message.payload
    return output


_encode_sdk_frame: Final[Any] = transport_module.encode_frame


def _encode_frame(frame: Any, *options: Any, **more: Any) -> tuple[bytes, bytes | None]:
    if isinstance(frame, EncodedFrames):
        return frame.frames, None  # the SDK writes the first part alone where there is no second
    if isinstance(frame, TransferFrame) and frame[_USUAL:-1] == _UNUSED and len(frame.delivery_tag or b"") == _TAG:
        return _encode_transfer(frame)
    return _encode_sdk_frame(frame, *options, **more)


def _encode_transfer(frame: Any) -> tuple[bytes, bytes]:
    # The SDK encodes field by field, which takes a tenth of the time of sending a small message.
    fields = _TRANSFER.pack(
        *(_CODE, _TRANSFER.size - len(_CODE) - 1, _USUAL),
        *(_UINT, frame.handle, _UINT, frame.delivery_id, _BINARY, _TAG, frame.delivery_tag),
        *(_UINT, frame.message_format, _TRUE if frame.settled else _FALSE, _TRUE if frame.more else _FALSE),
    )
    return _HEAD.pack(8 + len(fields) + len(frame.payload), b"\x02\x00"), fields + frame.payload


def _measure_frame(frame: Any) -> tuple[None, bytes]:  # noqa: ARG001 (each frame gets the same room)
    # The SDK's session encodes each transfer twice, the first time only to learn its length.
    return None, _FRAME_ROOM


_decode_sdk_frame: Final[Any] = transport_module.decode_frame


def _decode_frame(body: memoryview) -> tuple[int, list[Any]]:
    # Transfers differ from each other in two fields only, the delivery's number and its tag. Dispositions differ in the
    # first and the last number. The SDK, which takes five times as long, decodes the first frame of each form.
    if len(body) < _SHORTEST:
        return _decode_sdk_frame(body)
    kind, shape, length, count, first = body[2:_SHORTEST]
    layout, end, at = _LAYOUTS.get(kind), 5 + length, _SECOND_AT.get(first, len(body))
    if layout is None or shape != _LIST or not at + layout.size <= end <= len(body):
        return _decode_sdk_frame(body)
    uint, number, form, value = layout.unpack_from(body, at)
    key = body[:at].tobytes(), uint, form, body[at + layout.size : end].tobytes()
    known = _forms.get(key)
    if known is None:
        _, fields = _decode_sdk_frame(body)
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


async def _receive_frame(transport: Any, timeout: float | None = None, **options: Any) -> tuple[Any, Any]:  # noqa: ASYNC109 (the SDK's)
    # The SDK waits by asyncio.wait_for, which up to Python 3.11 starts a task for each frame. That takes longer than
    # reading the frame.
    if frame := await frame_come(transport):
        return frame
    try:
        began = time.monotonic()
        async with asyncio.timeout(timeout):
            header, channel, payload = await transport.read(**options)
        if (now := time.monotonic()) - began > _WAITED:
            setattr(transport, LAST_WAIT, now)
    except (TimeoutError, asyncio.IncompleteReadError):
        return None, None
    if payload:
        return channel, transport_module.decode_frame(payload)
    return channel, transport_module.decode_empty_frame(header)
