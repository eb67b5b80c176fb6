"""Compressed bodies: which marks of a message say so, and the bytes unpacked and packed again.

The AMQP field content-encoding is the standard's mark. The message class of .NET does not have that field, so its users
mark a message by a property or by the content type, or not at all.

Sources: AMQP 1.0 part 3, section 3.2.4; RFC 1950 to 1952; ServiceBusExplorer pull request 622 (property
``Content-Encoding``); the compression plug-in of azure-service-bus-dotnet-plugins (property ``compression-method``).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sbnotebook.model.budget import UNPACKED_BYTES, UNPACKED_BYTES_OF_TABLE, UNPACKED_TIMES, Allowance

GZIP, DEFLATE, RAW_DEFLATE = "gzip", "deflate", "deflate without its envelope"
_WINDOWS: Final = {GZIP: zlib.MAX_WBITS | 16, DEFLATE: zlib.MAX_WBITS, RAW_DEFLATE: -zlib.MAX_WBITS}
_MAGIC: Final = b"\x1f\x8b\x08"
_ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_NAMES: Final = {
    **dict.fromkeys(("gzip", "x-gzip", "gz"), GZIP),
    **dict.fromkeys(("deflate", "zlib", "x-deflate"), DEFLATE),
}
_NOTHING: Final = frozenset({"", "identity", "none", "binary", "7bit", "8bit", "false", "no"})
UNKNOWN: Final = frozenset(
    {"br", "brotli", "zstd", "compress", "x-compress", "lz4", "snappy", "bzip2", "bz2", "x-bzip2", "lzma", "xz", "zip"}
)
"""Compressions that sbnotebook cannot undo."""
PACKING_PROPERTIES: Final = frozenset(
    {"content-encoding", "content_encoding", "contentencoding", "compression-method", "compression_method",
     "compressionmethod", "compression", "compression-type", "x-content-encoding"}
)  # fmt: skip
"""Names of application properties that say how a body is packed, in lower case."""
_TYPES: Final = {
    **dict.fromkeys(("application/gzip", "application/x-gzip", "application/x-gunzip", "application/gzipped"), GZIP),
    "application/zlib": DEFLATE,
}
_LONGEST: Final = 200


class Unpacked(NamedTuple):
    data: bytes
    packing: str  # its name, for :func:`pack`
    note: str  # what the text says at its end where it is cut; "" for a whole one
    is_damaged: bool  # whether bytes are missing, or others follow


def mark_names(properties: Mapping[str, Any] | None) -> list[str]:
    return [name for name in properties if name.lower() in PACKING_PROPERTIES] if properties else []


def packings(content_type: str | None, content_encoding: str | None, properties: Mapping[str, Any] | None) -> list[str]:
    """Return how a body is packed as its message says: gzip, deflate, or a name that sbnotebook does not know."""
    if content_encoding is None and not mark_names(properties):
        return [*_packing_of_type(content_type)]
    names = _split(content_encoding or "")
    for name in mark_names(properties):
        # Others use the same names for something else, so only compressions count.
        value: Any = (properties or {})[name]
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        names += [each for each in _split(text) if each in _NAMES or each in UNKNOWN]
    names += _packing_of_type(content_type)
    known = (_NAMES.get(name, name) for name in names if name not in _NOTHING)
    return [*dict.fromkeys(known)]


@lru_cache(maxsize=256)
def _packing_of_type(content_type: str | None) -> tuple[str, ...]:
    kind = (content_type or "")[:_LONGEST].partition(";")[0].strip().lower()
    packing = _TYPES.get(kind, GZIP if kind.endswith("+gzip") else "")
    return (packing,) if packing else ()


def _split(text: str) -> list[str]:
    return [name.strip().lower() for name in text[:_LONGEST].split(",")]


def unpacked(
    body: bytes, names: list[str], unpacking: Allowance | None, *, is_for_edit: bool = False
) -> Unpacked | None:
    """Unpack a body; None for one that is not packed in a way that is known."""
    free = min(UNPACKED_TIMES * len(body), UNPACKED_BYTES_OF_TABLE)
    most = UNPACKED_BYTES_OF_TABLE if is_for_edit else max(UNPACKED_BYTES, free)
    if unpacking is not None:
        most = min(most, free + unpacking.left)
    for packing, must_be_whole in _candidates(body, names):
        found = _inflated(body, packing, most)
        if found is None or (must_be_whole and found.is_damaged and len(found.data) < most):
            continue
        if unpacking is not None:
            unpacking.take(max(0, len(found.data) - free))
        return found
    return None


def _candidates(body: bytes, names: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the packings to try, and whether only a whole body counts: any text may begin like such bytes."""
    if body[:3] == _MAGIC:
        yield GZIP, False
    if DEFLATE in names:
        # With its envelope, as the standard says, or without, as some senders do.
        yield DEFLATE, False
        yield RAW_DEFLATE, True
    elif body[:2] in _ZLIB_STARTS and not names:
        yield DEFLATE, True


def _inflated(body: bytes, packing: str, most: int) -> Unpacked | None:
    parts, rest, size, is_whole = list[bytes](), body, 0, False
    while rest and size < most:
        unpacker = zlib.decompressobj(_WINDOWS[packing])
        try:
            part = unpacker.decompress(rest, most - size)
        except zlib.error:
            if not parts:
                return None
            is_whole = False
            break
        parts.append(part)
        size, is_whole, rest = size + len(part), unpacker.eof, unpacker.unused_data
        # A gzip file may have several members, one behind the other.
        if not is_whole or rest[:3] != _MAGIC or packing != GZIP:
            break
    is_cut = not is_whole or rest[:3] == _MAGIC
    return Unpacked(
        b"".join(parts), packing, f"… (cut at {size:,} bytes)" if is_cut else "", is_damaged=is_cut or bool(rest)
    )


def pack(data: bytes, packing: str) -> bytes:
    """Pack bytes as a body was packed; the same bytes at any time."""
    if packing == GZIP:
        return gzip.compress(data, mtime=0)
    packer = zlib.compressobj(wbits=_WINDOWS[packing])
    return packer.compress(data) + packer.flush()
