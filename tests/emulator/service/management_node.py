"""Requests to a management node, frame by frame, as the SDKs of other languages send them."""

from __future__ import annotations

from typing import Any

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, VALUE, section_value, split
from sbnotebook.emulator.amqp.performatives import Transfer, decode_composite
from tests.emulator.service.conftest import RawClient

__all__ = ["Node"]


class Node:
    """A node ``ENTITY/$management`` that a client has attached its two links to.

    Args:
        client: the client; its links 8 and 9 are used.
        path: of the entity.

    Attributes:
        description: the sentence of the last answer.
    """

    def __init__(self, client: RawClient, path: str) -> None:
        self._client = client
        self._asked = 0
        self.description = ""
        client.sender(f"{path}/$management", 8)
        client.receiver(f"{path}/$management", 9)
        client.flow(9, 1000)

    def ask(self, operation: str, body: AmqpValue, **properties: AmqpValue) -> tuple[int, str, Any]:
        """Status code, error condition and body of the answer to a request.

        Args:
            operation: without ``com.microsoft:``.
            body: arguments.
            properties: more application properties, ``_`` for ``-`` in their names.
        """
        self._asked += 1
        more = {name.replace("_", "-"): value for name, value in properties.items()}
        request = (
            b"\x00\x53\x73" + encode([f"request {self._asked}"]),
            b"\x00\x53\x74" + encode({"operation": f"com.microsoft:{operation}", **more}),
            b"\x00\x53\x77" + encode(body),
        )
        delivery_id = 1000 + self._asked
        push = Transfer(handle=8, delivery_id=delivery_id, delivery_tag=b"t", message_format=0, settled=True)
        self._client.write(push, b"".join(request))
        return self._answer()

    def _answer(self) -> tuple[int, str, Any]:
        while True:
            frame = self._client.read_frame()
            performative, end = decode_composite(frame) if frame else (None, 0)
            if isinstance(performative, Transfer) and performative.handle == 9:
                break
        payload = frame[end:]
        values: dict[int, Any] = {section.code: section_value(payload, section) for section in split(payload)}
        said = values[APPLICATION_PROPERTIES]
        self.description = str(said.get("statusDescription"))
        return said["statusCode"], said.get("errorCondition", ""), values[VALUE]
