"""LIKE without backtracking: a hostile pattern costs as little as a harmless one."""

from __future__ import annotations

from typing import Final

from sbnotebook.emulator.entities.rules.operands import FilterError

MOST_PATTERN_CHARACTERS: Final = 1_024
"""Of a pattern that comes from a property; one in the expression cannot be longer than that."""


class LikePattern:
    r"""A pattern of LIKE, made ready for many texts.

    Each bit of an integer is one place in the pattern that may have been reached. A character of the
    text moves all of them at once, so the cost grows with the length of the text and not with what
    the pattern could be matched to in how many ways.

    Source: Service Bus documentation, "Subscription rule SQL filter syntax", "pattern" and "escape_char".
    """

    __slots__ = ("_by_character", "_end", "_loops", "_others", "_start")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        if len(pattern) > MOST_PATTERN_CHARACTERS:
            raise FilterError(
                f"A pattern of LIKE has at most {MOST_PATTERN_CHARACTERS} characters, not {len(pattern)}."
            )
        if escape is not None and len(escape) != 1:
            raise FilterError("The escape character of LIKE must be one character.")
        literals: list[tuple[str, int]] = []
        self._loops = self._others = 0
        place = 1
        characters = iter(pattern)
        for character in characters:
            escaped = character == escape
            if escaped:
                character = next(characters, "")  # noqa: PLW2901 - nothing follows the escape character
            if character == "%" and not escaped:
                self._loops |= place
                continue
            if character == "_" and not escaped:
                self._others |= place
            else:
                literals.append((character or (escape or ""), place))
            place <<= 1
        self._start, self._end = 1, place
        self._by_character: dict[str, int] = {}
        for character, bit in literals:
            self._by_character[character] = self._by_character.get(character, self._others) | bit

    def matches(self, text: str) -> bool:
        """Tell whether the whole text is one that the pattern describes; upper and lower case differ."""
        reached, loops, others, by_character = self._start, self._loops, self._others, self._by_character
        for character in text:
            reached = ((reached & by_character.get(character, others)) << 1) | (reached & loops)
            if not reached:
                return False
        return bool(reached & self._end)
