"""The SASL layer, which accepts every client: claims come later, over the ``$cbs`` link.

Source: AMQP 1.0 part 5, security, section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from sbnotebook.emulator.amqp.composites import Symbols, composite, decode_composite, encode_composite
from sbnotebook.errors import ProtocolViolationError
from sbnotebook.model.amqp import Symbol, UByte

__all__ = ["MECHANISMS", "SaslInit", "SaslMechanisms", "SaslOutcome", "answer_init", "offer"]

MECHANISMS: Final = ("ANONYMOUS", "MSSBCBS", "EXTERNAL")
"""Those that need one step and no secret; azure-servicebus takes the first, .NET the second."""

_OK: Final = 0
_AUTHENTICATION_FAILED: Final = 1


@composite(0x40)
@dataclass(frozen=True, slots=True)
class SaslMechanisms:
    """The mechanisms that the server offers."""

    sasl_server_mechanisms: Annotated[tuple[str, ...], Symbols]


@composite(0x41)
@dataclass(frozen=True, slots=True)
class SaslInit:
    """The mechanism that the client chose."""

    mechanism: Annotated[str, Symbol]
    initial_response: Annotated[bytes | None, bytes] = None
    hostname: Annotated[str | None, str] = None


@composite(0x44)
@dataclass(frozen=True, slots=True)
class SaslOutcome:
    """The result: 0 if the client is accepted."""

    code: Annotated[int, UByte]
    additional_data: Annotated[bytes | None, bytes] = None


def offer() -> bytes:
    """Return the body of the first SASL frame that the server sends."""
    return encode_composite(SaslMechanisms(MECHANISMS))


def answer_init(body: bytes) -> tuple[bytes, bool]:
    """Answer the client's only SASL frame.

    Returns:
        The body of the answer, and whether the client is accepted.

    Raises:
        AmqpDecodeError, ProtocolViolationError: the frame is no sasl-init.
    """
    init, end = decode_composite(body)
    if not isinstance(init, SaslInit) or end != len(body):
        raise ProtocolViolationError("A sasl-init frame was expected.")
    accepted = init.mechanism in MECHANISMS
    return encode_composite(SaslOutcome(_OK if accepted else _AUTHENTICATION_FAILED)), accepted
