"""Texts for a report that others read: without secrets, and without the name of the namespace."""

from __future__ import annotations

import re
from typing import Final

from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.connection_strings import canonical_host

__all__ = ["kind_of_host", "without_names"]

_WORD: Final = re.compile(r"[\w-]++")
_ADDRESS: Final = re.compile(r"(?<!\d)(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?")


def without_names(text: str, host: str) -> str:
    """Return a text without secrets, and with NAMESPACE in place of the namespace's own name.

    Args:
        text: such as the text of an error, with its host and its tracking id.
        host: of the namespace.

    Example:
        >>> without_names("Shop.servicebus.windows.net:5671, SystemTracker:shop:queue", "shop.servicebus.windows.net")
        'NAMESPACE.servicebus.windows.net:5671, SystemTracker:NAMESPACE:queue'
    """
    name = canonical_host(host).partition(".")[0].partition(":")[0].lower()
    shown = _WORD.sub(lambda match: "NAMESPACE" if match[0].lower() == name else match[0], scrub(text))
    return _ADDRESS.sub("ADDRESS", shown)


def kind_of_host(host: str) -> str:
    """Return the public part of a namespace's host name.

    Example:
        >>> kind_of_host("shop.servicebus.windows.net")
        'NAMESPACE.servicebus.windows.net'
    """
    _, dot, domain = canonical_host(host).partition(".")
    return f"NAMESPACE.{domain.partition(':')[0]}" if dot and not domain[-1:].isdigit() else "an address"
