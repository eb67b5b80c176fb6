"""Texts that are secrets, or that may hold one: hide them, and take secrets out of texts that are shown."""

from __future__ import annotations

import re
import string
from typing import Final, Never, overload

from sbnotebook.errors import ConfigurationError

# A secret's name, the separator (as text, JSON, HTML or in a URL), and the secret. All in
# lower case: to ignore case takes the engine three times as long.
_QUOTES: Final = r"(?:\\*[\"']|&quot;|&#x27;|&#39;|%(?:25)*2[27])*"
_SECRET: Final = re.compile(
    r"(?:s(?:hared[-_ ]?access[-_ ]?(?:key|signature)|(?<![a-z]s)ig)|account[-_ ]?key|client[-_ ]?secret|password)"
    rf"{_QUOTES}\s*(?:=|:|%(?:25)*3[ad])\s*{_QUOTES}([^;&\s'\"\\]+)"
)
_BEARER: Final = re.compile(r"bearer\s+([\w.~+/=-]{16,})")
# Skip any text that begins like a web token, so that each part of a text is examined once.
_TOKEN: Final = re.compile(r"[eE](?<!\w[eE])[yY][jJ][\w-]++(\.[\w-]++\.[\w-]*+)?")
_IN_TOKENS: Final = f"{string.ascii_letters}{string.digits}-_.~+/="


class Hidden:
    """A text that no repr, no pickle and no variable of a traceback shows. Only :meth:`reveal` returns it.

    A function that gets a secret hides it in its first line, and hands it on like that.

    Args:
        text: the secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Keep it in no variable of a function that may raise."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> Never:
        raise ConfigurationError(
            "A connection to Service Bus is not pickled, because its key would be in the bytes: "
            "connect anew in each process, for example with env:VARIABLE."
        )


@overload
def hidden(text: str | Hidden) -> Hidden: ...
@overload
def hidden(text: str | Hidden | None) -> Hidden | None: ...
def hidden(text: str | Hidden | None) -> Hidden | None:
    """Return a hidden text. Hidden values and None are returned unchanged. Bytes count as an empty text.

    Args:
        text: that may be a secret.
    """
    if text is None or isinstance(text, Hidden):
        return text
    return Hidden(text if isinstance(text, str) else "")  # pyright: ignore[reportUnnecessaryIsInstance]


def scrub(text: str, most: int | None = None) -> str:
    """Return a text without the secrets of connection strings and tokens.

    Args:
        text: that may hold a secret.
        most: characters to return; None for all.

    Example:
        >>> scrub("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abc=")
        'Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=***'
        >>> scrub("It said: Bearer c2VjcmV0c2VjcmV0", most=22)
        'It said: Bearer '
    """
    if most is not None and len(text) > most:
        text = _without_half_a_token(text[:most])
    shown = _hide(_BEARER, _hide(_SECRET, text))
    return _TOKEN.sub(lambda match: "***" if match[1] else match[0], shown)[:most]


def _without_half_a_token(text: str) -> str:
    """Cut a text where its end may be the beginning of a token, too short for the patterns to tell."""
    begun = text.rstrip(_IN_TOKENS)
    if begun.rstrip().lower().endswith("bearer"):
        return begun
    place = text[len(begun) :].lower().find("eyj")
    return text if place < 0 else text[: len(begun) + place]


def _hide(pattern: re.Pattern[str], text: str) -> str:
    """Hide the first group of each match, with which it ends."""
    # The one letter whose lower case is longer, or places would differ.
    lowered = text.replace("\u0130", "i").lower()
    shown, end = list[str](), 0
    for match in pattern.finditer(lowered):
        shown += text[end : match.start(1)], "***"
        end = match.end()
    return "".join([*shown, text[end:]])
