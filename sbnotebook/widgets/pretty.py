"""Readable bodies: JSON and XML indented, bytes in hex, and invisible characters made visible.

Piece by piece: nothing is parsed into values and written again, so numbers keep all of their digits, names that come
twice stay, and how deep a body is nested does not matter. The time grows with the text and with nothing else.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

from sbnotebook.model.body import json_letters
from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.model.json_text import Path

_INDENT: Final = "  "
_DEEPEST: Final = 40
"""Levels that are indented; deeper ones have the same indentation."""
_MAX_LINES: Final = 20_000
_HEX_ROW: Final = 16
_CONTROLS: Final = {0x7F: "DEL"} | dict(enumerate((
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI",
    "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US",
)))  # fmt: skip
_MAX_CELL: Final = 400
"""Characters."""

# Every character belongs to some part, a string that does not end included, so that none is examined twice.
_JSON_PART: Final = re.compile(r'\s++|"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_XML_PART: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![A-Z][^<>]*+>"
    r"|<(?P<end>/?)(?P<name>[\w:.-]++)(?P<rest>(?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+)>"
    r"|(?P<text>[^<]++)",
    re.DOTALL,
)


class Layout(NamedTuple):
    text: str
    is_cut: bool = False
    fault: str = ""


def visible(text: str) -> str:
    """Make every character visible: control characters by their names, others by their numbers."""
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else _named(ord(one)) for one in text)


def _named(number: int) -> str:
    return f"⟨{_CONTROLS.get(number, f'U+{number:04X}')}⟩"


def cell(value: object, most: int = _MAX_CELL) -> str:
    """Return a value as a text of visible characters, cut at a length."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    text = str(value)
    return visible(text) if len(text) <= most else f"{visible(text[:most])}… ({len(text):,} characters)"


def weight(text: str) -> int:
    """Return the bytes that a text takes in a message to the browser."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def cut(text: str, most: int) -> tuple[str, bool]:
    """Return the beginning of a text that fits in so many bytes of a message, and whether the rest is missing."""
    head = text[:most]
    if len(head) == len(text) and weight(text) <= most:
        return text, False
    return head[: bisect_right(range(1, len(head) + 1), most, key=lambda end: weight(head[:end]))], True


def hex_lines(data: bytes) -> str:
    lines: list[str] = []
    for start in range(0, len(data), _HEX_ROW):
        row = data[start : start + _HEX_ROW]
        characters = "".join(one if one.isascii() and one.isprintable() else "." for one in row.decode("latin-1"))
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{characters}|")
    return "\n".join(lines)


def json_layout(text: str, most: int) -> Layout:
    """Lay out JSON with a line for each value, and letters in place of their escapes."""
    if len(text) <= PARSED_CHARACTERS:
        try:
            # Numbers stay text: one of a million digits would take hours.
            json.loads(text, parse_int=str, parse_float=str)
        except json.JSONDecodeError as error:
            return Layout("", fault=f"{error.msg} in line {error.lineno}, column {error.colno}")
        except RecursionError:
            pass  # it is nested deeper than Python's own parser goes
    return _laid_out(_json_pieces, text, most)


def json_places(text: str, most_lines: int) -> list[tuple[int, Path]]:
    """Return the line of the layout and the path of each text, number, boolean and null."""
    places: list[tuple[int, Path]] = []
    path: list[str | int] = []
    line = 0
    for before, part in pairwise(_json_parts(text[:PARSED_CHARACTERS])):
        line += _begins_line(part, before)
        if line >= most_lines:
            break
        if part in ("{", "["):
            path.append("" if part == "{" else 0)
        elif part in ("}", "]"):
            del path[-1:]
        elif part == "," and path:
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
        elif path and part != ":" and (isinstance(path[-1], int) or before == ":"):
            places.append((line, tuple(path)))
        elif path and part != ":":
            with suppress(ValueError):  # it does not end, in a text that nests too deep to be checked
                path[-1] = str(json.loads(part))
    return places


def xml_layout(text: str, most: int) -> Layout:
    """XML with a line for each element. Nothing is resolved: no entity, no address."""
    try:
        return _laid_out(_xml_pieces, text, most)
    except ValueError as error:
        return Layout("", fault=str(error))


# ------------------------------------------------------------ piece by piece


def _json_parts(text: str) -> Iterator[str]:
    """Yield the tokens of a text, behind an empty one."""
    yield ""
    for match in _JSON_PART.finditer(text):
        if not match[0].isspace():
            yield match[0]


def _json_pieces(text: str) -> Iterator[str]:
    depth = 0
    for before, part in pairwise(_json_parts(text)):
        depth -= part in ("}", "]")
        lead = _new_line(depth) if _begins_line(part, before) else ""
        yield f"{part} " if part == ":" else lead + json_letters(part)
        depth += part in ("{", "[")


def _begins_line(part: str, before: str) -> bool:
    return before not in ("{", "[") if part in ("}", "]") else before in ("{", "[", ",")


def _xml_pieces(text: str) -> Iterator[str]:
    open_names: list[str] = []
    position, begun, inline = 0, False, False
    while position < len(text):
        match = _XML_PART.match(text, position)
        if match is None:
            raise ValueError(f"Markup that does not end, or is none, at character {position + 1:,}")
        position = match.end()
        if match["text"] is not None:
            if not match["text"].isspace():
                inline = True
                yield match["text"]
            continue
        is_end = bool(match["end"])
        if is_end and (not open_names or open_names.pop() != match["name"]):
            raise ValueError(f"An end tag that ends nothing at character {match.start() + 1:,}")
        yield match[0] if not begun or (is_end and inline) else _new_line(len(open_names)) + match[0]
        begun, inline = True, match["name"] is not None and not is_end and not match["rest"].endswith("/")
        if inline:
            open_names.append(match["name"])
    if open_names:
        raise ValueError("It ends before all of its elements do")


def _new_line(depth: int) -> str:
    return "\n" + _INDENT * max(0, min(depth, _DEEPEST))


def _laid_out(pieces_of: Callable[[str], Iterable[str]], text: str, most: int) -> Layout:
    """Join the pieces up to a number of bytes and lines. The others are not made."""
    taken: list[str] = []
    size = lines = 0
    is_whole = len(text) <= PARSED_CHARACTERS
    for piece in pieces_of(text[:PARSED_CHARACTERS]):
        if size > most or lines >= _MAX_LINES:
            is_whole = False
            break
        taken.append(piece)
        size += len(piece)
        lines += piece.count("\n")
    shown, is_cut = cut(visible("".join(taken)), most)
    return Layout(shown, is_cut or not is_whole)
