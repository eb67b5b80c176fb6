"""What a probe is: an expectation, and a function that looks at a namespace whether it is met."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, cast

from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.probing.site import Site
from sbnotebook.settlement.sdk.errors import condition_of

__all__ = ["Finding", "Probe", "ProbeVerdict", "Saw", "probe", "words_of"]

_MAX_WORDS: Final = 240


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
    """Make a function a probe.

    Args:
        name: see :class:`Probe`, as are the others.
        expectation: what sbnotebook takes for granted.
        operations: about how many operations it costs.
        seconds: about how long it takes.
    """

    def make(look: _Look) -> Probe:
        return Probe(name, expectation, look, operations, seconds)

    return make
