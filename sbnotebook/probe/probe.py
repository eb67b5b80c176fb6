"""What a probe is: an expectation, and a function that checks it. Its findings name neither secrets nor namespaces."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, cast

from sbnotebook.probe.site import Site
from sbnotebook.settlement import canonical_host, scrub
from sbnotebook.settlement.sdk.errors import condition_of

_MAX_WORDS: Final = 240
_WORD: Final = re.compile(r"[\w-]++")
_ADDRESS: Final = re.compile(r"(?<!\d)(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?")


class ProbeVerdict(StrEnum):
    """What a probe found."""

    EXPECTED = "as expected"
    DIFFERENT = "different"
    UNKNOWN = "could not tell"


class Saw(NamedTuple):
    """What a probe saw.

    Args:
        is_expected: whether the expectation is met; None if it does not show that.
        words: the figures and texts of errors behind it, without anything of the user's.
    """

    is_expected: bool | None
    words: str


_Look: TypeAlias = Callable[[Site], Awaitable[Saw]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One assumption about Service Bus, and how to check it.

    Args:
        name: names it in ``docs/reference/azure-facts.md``, in the report, and its temporary entities.
        expectation: what sbnotebook takes for granted, in a sentence.
        look: looks whether it is so, with entities that it makes itself.
        operations: about how many operations that costs.
        seconds: about how long it takes, with waits for locks.
    """

    name: str
    expectation: str
    look: _Look
    operations: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe found.

    Args:
        probe: which one.
        verdict: whether the expectation is met.
        saw: what it saw, without secrets and without the name of the namespace.
    """

    probe: Probe
    verdict: ProbeVerdict
    saw: str


def words_of(error: BaseException | None) -> str:
    """Return an error's condition and text, the first line of it; or that there was none."""
    if error is None:
        return "it succeeded"
    if isinstance(error, BaseExceptionGroup):
        return words_of(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    condition = condition_of(error)[0]
    text = " ".join([type(error).__name__, f"({condition})" if condition else "", str(error).partition("\n")[0]])
    return scrub(text, _MAX_WORDS)


def probe(name: str, expectation: str, *, operations: int, seconds: int = 5) -> Callable[[_Look], Probe]:
    """Make a function a probe."""
    return lambda look: Probe(name, expectation, look, operations, seconds)


def without_names(text: str, host: str) -> str:
    """Return a text without secrets, and with NAMESPACE in place of the namespace's own name.

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
