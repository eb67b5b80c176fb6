"""The SASL layer. PLAIN brings a key; the other mechanisms accept every client, whose claims come over ``$cbs``.

Source: AMQP 1.0 part 5, security, section 5.3; RFC 4616 for PLAIN; for the mechanisms, their order and 'Welcome!',
traces of Azure (smallrye-reactive-messaging 987, amqpnetlite 451).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from sbnotebook.amqp import Array, Described, Symbol, UByte, ULong, encode
from sbnotebook.emulator.amqp.composites import composite, decode_composite
from sbnotebook.errors import ProtocolViolationError

LogIn = Callable[[str, str], bool]
"""Accept a user by name and password, and return whether they are right."""

MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""Those that Azure offers, in its order. All of them need one step."""

OFFER: Final = encode(Described(ULong(0x40), [Array(map(Symbol, MECHANISMS), Symbol)]))
"""The body of the first SASL frame that the server sends: sasl-mechanisms."""
ACCEPTED: Final = encode(Described(ULong(0x44), [UByte(0), b"Welcome!"]))
"""The body of the second one, sasl-outcome, to a client that is accepted."""
REFUSED: Final = encode(Described(ULong(0x44), [UByte(1)]))
"""The same for one that is not."""
_PLAIN: Final = "PLAIN"


@composite(0x41)
class SaslInit:
    mechanism: Annotated[str, Symbol]
    initial_response: Annotated[bytes | None, bytes] = None
    hostname: Annotated[str | None, str] = None


def answer_init(body: bytes, log_in: LogIn) -> tuple[bytes, bool]:
    init, end = decode_composite(body)
    if not isinstance(init, SaslInit) or end != len(body):
        raise ProtocolViolationError("A sasl-init frame was expected.")
    accepted = init.mechanism in MECHANISMS
    if init.mechanism == _PLAIN:
        accepted = _is_known(init.initial_response or b"", log_in)
    return ACCEPTED if accepted else REFUSED, accepted


def _is_known(response: bytes, log_in: LogIn) -> bool:
    # An identity to act as, which has no meaning here, the name, and the password.
    parts = response.decode(errors="replace").split("\0")
    return len(parts) == 3 and log_in(parts[1], parts[2])
