"""Texts with what differs from message to message masked, so that the same fault reads the same.

One expression is run over a text once. Each of its parts is bounded, or cannot be entered twice at the same place, so
the time grows with the text and with nothing else, whoever wrote it.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["masked", "masked_reason"]

_MOST: Final = 8_000
"""Characters that are looked at: what a cause begins with tells it."""

# Words with digits in them that are no ids.
_WORDS: Final = frozenset({
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "base64", "utf8",
    "utf16", "utf32", "md5", "sha1", "sha256", "sha384", "sha512", "oauth2", "x509", "ipv4", "ipv6", "http2", "http3",
    "s3", "ec2", "k8s", "win32", "x64", "x86", "amd64", "arm64", "es6", "net6", "net7", "net8", "net9", "log4j",
    "slf4j", "h2", "db2", "oauth1", "iso8601", "rs256", "hs256",
})  # fmt: skip

_TIME: Final = r"\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?(?:\s?[AP]M\b)?"
_ZONE: Final = r"(?:\s?(?:Z|UTC|GMT)\b|\s?[+-]\d\d:?\d\d\b)?"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_GUID: Final = r"\{?\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-])\}?"
_MOMENT: Final = (
    rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?{_ZONE})?"
    rf"|\b\d\d?[/.]\d\d?[/.]\d{{4}}(?:,?\s{_TIME})?{_ZONE}"
    rf"|\b(?:\d\d?\s)?{_MONTH}\s(?:\d{{1,2}},?\s)?\d{{4}}(?:\s{_TIME})?{_ZONE}"
    rf"|\b(?:\d{{1,4}}\.)?{_TIME}{_ZONE}"
)
_UNITS: Final = r"(?:[num]?s|sec|min|[hdkx]|[kmgt]i?b|bytes?|st|nd|rd|th)\b"

_CODES: Final = (
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:\s?code)?|(?:error|exit|result|return)\s?code|error|errno|SQLSTATE"
    r"|HRESULT|StatusCode|success)[\s:=#(\[]{1,3}(?:0x[0-9a-fA-F]{1,8}|[A-Z0-9]{0,3}\d{1,5})\b(?![.:,/-]\d)"
    r"|\b(?:ORA|TNS|PLS|SQL|ERR|CS|TS)-?\d{2,5}\b|\b[45]\d\d (?:Client|Server) Error\b"
    r"|\b0x8[0-9a-fA-F]{7}\b"
)
# An apostrophe inside of a word is no quotation mark.
_QUOTED: Final = (
    r"(?<!\w)'[^\n]{0,300}?'(?!\w)|\"(?:[^\"\\\n]|\\.){0,300}\"|`[^`\n]{1,200}`"
    r"|\u201c[^\u201d\n]{0,300}\u201d|\u2018[^\u2019\n]{0,300}\u2019|\u00ab[^\u00bb\n]{0,300}\u00bb"
)
# Named by what stands for them; the first that fits wins.
_PARTS: Final = (
    ("kept", _CODES),  # the numbers of faults tell causes apart
    ("url", r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"<>)\]]{1,2000}"),
    ("id", _GUID),
    ("time", _MOMENT),
    ("value", _QUOTED),
    ("email", r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}"),
    ("path", r"(?<!\w)[A-Za-z]:\\[^\s'\"<>|:*?]{1,400}|\\\\[\w.$-]{1,63}\\[^\s'\"<>|:*?]{1,400}"),
    ("path", r"(?<![\w/.<>])~?(?:/[\w.@%+~$-]{1,128}){2,40}/?"),
    ("ip", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"),
    ("id", r"\b0x[0-9a-fA-F]+\b|\b(?=[a-fA-F]{0,63}\d)(?=\d{0,63}[a-fA-F])[0-9a-fA-F]{12,}\b"),
    ("n", rf"(?<![\w)\]])[-+]?\d+(?:[.,:]\d+)*(?:%|(?={_UNITS}))"),
    ("word", r"\b(?=[^\W\d]{0,99}\d)(?=\d{0,99}[^\W\d])\w+\b"),
    ("n", r"(?:(?<![\w)\]>])[-+])?\d+(?:[.,:]\d+)*"),
)
_ALL: Final = re.compile("|".join(f"(?P<{name}_{place}>{part})" for place, (name, part) in enumerate(_PARTS)))
# A reason is short and often a code: only what cannot be one is masked.
_IN_REASONS: Final = re.compile(rf"{_GUID}|\b\d{{4}}-\d\d-\d\dT[\d:.]+Z?|\b[0-9a-f]{{16,}}\b|\b\d{{5,}}\b")


def masked(text: str) -> str:
    """A text with ids, numbers, times, quoted values, paths and addresses masked, on one line.

    Example:
        >>> masked("Flight 1545 of 2013-01-01 has no tail number: 'N14228' (HTTP 404)")
        'Flight <n> of <time> has no tail number: <value> (HTTP 404)'
    """
    return _ALL.sub(_mask, " ".join(text[:_MOST].split()))


def masked_reason(reason: str) -> str:
    """A dead-letter reason with long numbers and ids masked; codes stay.

    Example:
        >>> masked_reason("E42"), masked_reason("Order 1234567 failed")
        ('E42', 'Order <id> failed')
    """
    return _IN_REASONS.sub("<id>", " ".join(reason[:_MOST].split()))


def _mask(match: re.Match[str]) -> str:
    name = (match.lastgroup or "").partition("_")[0]
    if name == "kept":
        return match[0]
    if name == "word":
        return match[0] if match[0].casefold() in _WORDS else "<id>"
    return f"<{name}>"
