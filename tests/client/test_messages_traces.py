"""Traces of real messages: from the sender to the query, and through a resubmit."""

from __future__ import annotations

from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.client import Namespace

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"


def test_a_resubmit_keeps_the_trace_of_a_message(namespace: Namespace) -> None:
    namespace.create_queue("traced")
    queue, letters = namespace.entity("traced"), namespace.entity("traced/$dlq")
    with (
        ServiceBusClient.from_connection_string(str(namespace.connection_string)) as client,
        client.get_queue_sender("traced") as sender,
    ):
        properties: dict[str | bytes, int | str] = {"traceparent": PARENT, "Diagnostic-Id": PARENT, "tracestate": "a=1"}
        sender.send_messages(ServiceBusMessage(b"order", application_properties=properties))  # pyright: ignore[reportArgumentType]
    with queue.lock(1) as batch:
        batch.dead_letter(reason="Invalid").raise_for_failures()
    (cause,) = letters.peek().groups()
    assert cause.traces == (TRACE,)
    assert f'"{TRACE}"' in cause.kql()
    assert letters.resubmit(cause).apply().ok
    (clone,) = queue.peek(where=f"trace_id = '{TRACE}'")
    kept = {name: clone.application_properties[name] for name in properties if isinstance(name, str)}
    assert kept == properties
