"""The SASL layer. PLAIN brings a key; the other mechanisms accept every client, whose claims come over ``$cbs``.

Source: AMQP 1.0 part 5, security, section 5.3; RFC 4616 for PLAIN; for the mechanisms, their order and 'Welcome!',
traces of Azure (smallrye-reactive-messaging 987, amqpnetlite 451).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from sbnotebook.amqp import Symbol, UByte
from sbnotebook.emulator.amqp.composites import Symbols, composite, decode_composite, encode_composite
from sbnotebook.errors import ProtocolViolationError

LogIn = Callable[[str, str], bool]
"""Accept a user by name and password, and return whether they are right."""

MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""Those that Azure offers, in its order. All of them need one step."""

_PLAIN: Final = "PLAIN"
_WELCOME: Final = b"Welcome!"
_OK: Final = 0
_AUTHENTICATION_FAILED: Final = 1


@composite(0x40)
class SaslMechanisms:
    sasl_server_mechanisms: Annotated[tuple[str, ...], Symbols]


@composite(0x41)
class SaslInit:
    mechanism: Annotated[str, Symbol]
    initial_response: Annotated[bytes | None, bytes] = None
    hostname: Annotated[str | None, str] = None


@composite(0x44)
class SaslOutcome:
    """The result: 0 if the client is accepted."""

    code: Annotated[int, UByte]
    additional_data: Annotated[bytes | None, bytes] = None


OFFER: Final = encode_composite(SaslMechanisms(MECHANISMS))
"""The body of the first SASL frame that the server sends."""


def answer_init(body: bytes, log_in: LogIn) -> tuple[bytes, bool]:
    init, end = decode_composite(body)
    if not isinstance(init, SaslInit) or end != len(body):
        raise ProtocolViolationError("A sasl-init frame was expected.")
    accepted = init.mechanism in MECHANISMS
    if init.mechanism == _PLAIN:
        accepted = _is_known(init.initial_response or b"", log_in)
    outcome = SaslOutcome(_OK, _WELCOME) if accepted else SaslOutcome(_AUTHENTICATION_FAILED)
    return encode_composite(outcome), accepted


def _is_known(response: bytes, log_in: LogIn) -> bool:
    # An identity to act as, which has no meaning here, the name, and the password.
    parts = response.decode(errors="replace").split("\0")
    return len(parts) == 3 and log_in(parts[1], parts[2])
