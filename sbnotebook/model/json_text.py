r"""JSON documents as they were written: read, and written again with nothing changed but what an edit changed.

Written anew, 1.10 would become 1.1, a number of thirty digits another one, and ``\u00e9`` a letter. So an edit changes
the text of the document only where a value differs: digits, spaces, order and escapes of everything else stay.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final, NamedTuple, Self, cast

from sbnotebook.errors import DecisionError
from sbnotebook.model.budget import PARSED_CHARACTERS

Path = tuple[str | int, ...]
"""Names of an object's members and places in a list, from the outside to the inside."""

_PART: Final = re.compile(
    r"\.?(?P<name>[^\W\d][\w-]*)|\[(?P<place>\d{1,9})\]"
    r"""|\[(?P<quoted>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*")\]"""
)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHOWN: Final = 60
# Characters of a document that an edit changes: it is parsed at the user's request, and one at a time
_MOST_CHARACTERS: Final = 8 * PARSED_CHARACTERS
_MOST_DIGITS: Final = 4_300  # Digits of a whole number that Python reads: the time for more grows with their square
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


class JsonNumber(float):
    """A number of JSON that remembers how it was written, such as 1.10.

    It is a ``float`` in all that you do with it. Left as it is, sbnotebook writes it with the same digits.
    """

    __slots__ = ("literal",)

    literal: str

    def __new__(cls, literal: str) -> Self:
        self = super().__new__(cls, literal)
        self.literal = literal
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (JsonNumber, (self.literal,))


def without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one with a name twice, of which another reader may take the other value."""
    document = dict(members)
    if len(document) < len(members):
        raise ValueError("A name is in an object twice.")
    return document


def _whole(literal: str) -> int | JsonNumber:
    # Minus zero has no int.
    return JsonNumber(literal) if len(literal) > _MOST_DIGITS or literal == "-0" else int(literal)


_READER: Final = json.JSONDecoder(
    parse_int=_whole, parse_float=JsonNumber, parse_constant=JsonNumber, object_pairs_hook=without_repeats
)


def read_json(text: str | None) -> Any:
    """Return the value of a body that is JSON, whose numbers remember how they were written.

    ``NaN`` and ``Infinity``, which are not JSON, are read as numbers: many clients write them.
    """
    if text is None:
        raise DecisionError("The body is not text, and so not JSON.")
    if len(text) > _MOST_CHARACTERS:
        raise DecisionError(f"The body has more than {_MOST_CHARACTERS:,} characters, too many to be read as JSON.")
    try:
        return _READER.decode(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise DecisionError(f"The body cannot be read as JSON: {why}.") from None


def write_json(value: Any) -> str:
    """Return a value as JSON, in one line. Numbers that were read are written as they were."""
    try:
        return _written(value)
    except RecursionError:
        raise DecisionError("The JSON is nested too deep, or holds itself.") from None


def _written(value: Any, escaped: bool = False) -> str:
    if isinstance(value, JsonNumber):
        return value.literal
    if isinstance(value, str):
        if escaped or value.isascii():
            return encode_basestring_ascii(value)
        # Half a pair of surrogates is legal as an escape only.
        return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", encode_basestring(value))
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, (dict, Mapping)):
        members = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(f'{_name(name, escaped)}: {_written(each, escaped)}' for name, each in members)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_written(each, escaped) for each in cast('Sequence[Any]', value))}]"
    return _number(value)


def _name(name: object, escaped: bool) -> str:
    if not isinstance(name, str):
        raise DecisionError(f"A name in a JSON object is a text, not {name!r:.60}.")
    return _written(name, escaped)


def _number(value: Any) -> str:
    own = getattr(value, "item", None)  # a number of numpy or pandas
    plain: Any = own() if callable(own) else value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int):
        return int.__repr__(plain)
    if type(plain).__name__ == "Decimal" and plain.is_finite():
        return str(plain)
    if isinstance(plain, float) and math.isfinite(plain):
        return float.__repr__(plain)
    if isinstance(plain, float):
        raise DecisionError(f"{plain} is not JSON: write None, or a text.")
    raise DecisionError(f"JSON has nothing for {type(value).__name__}: write a text, a number, a list or a dict.")


# ------------------------------------------------------------ a whole document


def rewrite_json(text: str, value: Any) -> str:
    """Return a document with another value, in which everything that is equal stays as it was written."""
    before = read_json(text)
    start, escaped = _skip(text, 0), text.isascii() and "\\u" in text
    try:
        return text[:start] + _changed(text, start, before, value, escaped) + text[_end(text, start) :]
    except RecursionError:
        raise DecisionError("The JSON is nested too deep, or holds itself.") from None


def _changed(text: str, start: int, before: Any, after: Any, escaped: bool) -> str:
    """Return the text of a value: the same as at ``start`` where it is equal."""
    if _same(before, after):
        return text[start : _end(text, start)]
    if before and isinstance(before, dict) and isinstance(after, (dict, Mapping)):
        members, new = cast("dict[str, Any]", before), cast("Mapping[Any, Any]", after)
        place_of = {name: place for place, name in enumerate(members)}
        places = [place_of.get(name, -1) for name in new]
        return _joined(text, start, places, [*members.values()], [*new.values()], [*new], escaped)
    if before and isinstance(before, list) and isinstance(after, (list, tuple)):
        elements, others = cast("list[Any]", before), cast("Sequence[Any]", after)
        return _joined(text, start, places_before(elements, others), elements, others, (), escaped)
    return _written(after, escaped)


def _joined(
    text: str,
    start: int,
    places: list[int],
    old: Sequence[Any],
    new: Sequence[Any],
    names: Sequence[Any],
    escaped: bool,
) -> str:
    """Join members or elements with the separators of the document."""
    items = [*_walk(text, start)]
    close = text[items[-1].end : _end(text, start)]
    if not places:
        return text[start] + close.strip()
    usual = text[items[0].end : items[1].start] if len(items) > 1 else f",{text[start + 1 : items[0].start] or ' '}"
    colon = text[_end(text, items[0].start) : items[0].value]
    joined = text[start : items[0].start]
    for at, (place, value) in enumerate(zip(places, new, strict=True)):
        if at:
            follows = 0 < place == places[at - 1] + 1
            joined += text[items[place - 1].end : items[place].start] if follows else usual
        if place < 0:
            joined += _name(names[at], escaped) + colon if names else ""
            joined += _written(value, escaped)
        else:
            item = items[place]
            joined += text[item.start : item.value] + _changed(text, item.value, old[place], value, escaped)
    return joined + close


def _same(before: Any, after: Any) -> bool:
    """Return whether JSON writes both alike: 1, 1.0 and true differ."""
    if before is after:
        return True
    if type(before) is type(after) and isinstance(before, (str, int)):
        return before == after
    if isinstance(before, dict) and isinstance(after, (dict, Mapping)):
        values, theirs = cast("dict[str, Any]", before), cast("Mapping[Any, Any]", after)
        return [*values] == [*theirs] and all(_same(value, theirs[name]) for name, value in values.items())
    if isinstance(before, list) and isinstance(after, (list, tuple)):
        elements, others = cast("list[Any]", before), cast("Sequence[Any]", after)
        return len(elements) == len(others) and all(map(_same, elements, others))
    return _written(before) == _written(after)


def places_before(before: Sequence[Any], after: Sequence[Any]) -> list[int]:
    """Return for each element after an edit which element before it was; -1 for a new one."""
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if not _same(before[at], after[at])), shorter)
    tail = next((at for at in range(shorter - head) if not _same(before[-1 - at], after[-1 - at])), shorter - head)
    ends, new_ends = len(before) - tail, len(after) - tail
    found = [*range(head), *repeat(-1, new_ends - head), *range(ends, len(before))]
    known: defaultdict[str, list[int]] = defaultdict(list)
    for place in range(head, ends):
        known[_written(before[place])].append(place)
    # Find the elements that stayed in their order, and pair those that changed between them.
    stayed = [(head - 1, head - 1)]
    for at in range(head, new_ends):
        places = known[_written(after[at])]
        nth = bisect_right(places, stayed[-1][1])
        if nth < len(places):
            stayed.append((at, places[nth]))
            found[at] = places[nth]
    for (at, place), (next_at, next_place) in pairwise([*stayed, (new_ends, ends)]):
        for new, old in zip(range(at + 1, next_at), range(place + 1, next_place), strict=False):
            found[new] = old
    return found


# ------------------------------------------------------------ one place of a document


class _Item(NamedTuple):
    """The places of a member of an object, or of an element of a list, and of its value."""

    start: int
    value: int
    end: int


def parse_path(text: str) -> Path:
    rest = text.strip().removeprefix("$")
    parts = [*_PART.finditer(rest)]
    if not rest or "".join(part[0] for part in parts) != rest:
        raise DecisionError(
            f"{text[:_SHOWN]!r} is not a path in JSON: write one such as $.carrier.code or $.legs[0].to."
        )
    return tuple(
        int(part["place"]) if part["place"] else json.loads(part["quoted"]) if part["quoted"] else part["name"]
        for part in parts
    )


def json_text(text: str) -> str:
    """Return a typed text as JSON: unchanged if it is JSON, and otherwise as a string."""
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    return text.strip()


def set_at(text: str, path: Path, value: str | None) -> str:
    """Return a document with another value at a path, as JSON; None removes it."""
    document = held = read_json(text)
    for step, inner in pairwise(path):
        if not _has(held, step):
            if value is None:
                return text
            _put(held, step, {} if isinstance(inner, str) else [])
        held = held[step]
    if value is not None:
        _put(held, path[-1], read_json(value))
    elif _has(held, path[-1]):
        del held[path[-1]]
    return rewrite_json(text, document)


def _has(held: Any, step: Any) -> bool:
    is_member = isinstance(step, str)
    if type(held) is not (dict if is_member else list):
        what = "object" if is_member else "list"
        raise DecisionError(f"There is no {what} in the body that could have {step!r}: {write_json(held)[:_SHOWN]!r}.")
    return step in (held if is_member else range(len(cast("list[Any]", held))))


def _put(held: Any, step: Any, value: Any) -> None:
    if _has(held, step) or isinstance(held, dict):
        held[step] = value
    elif step == len(held):
        held.append(value)
    else:
        raise DecisionError(f"The list in the body has {len(held):,} elements, and so no place {step}.")


def _walk(text: str, start: int) -> Iterator[_Item]:
    closes = "}" if text[start] == "{" else "]"
    at = _skip(text, start + 1)
    while text[at] != closes:
        value = _skip(text, _skip(text, _end(text, at)) + 1) if closes == "}" else at
        end = _end(text, value)
        yield _Item(at, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]
