from __future__ import annotations

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

from sbnotebook.emulator import running


def test_the_synchronous_sdk_with_an_origin_is_accepted() -> None:
    transport = TransportType.AmqpOverWebsocket
    with (
        running(queues=["orders"]) as emulator,
        ServiceBusClient.from_connection_string(
            emulator.connection_string,
            transport_type=transport,
            custom_endpoint_address=emulator.http_url,
            retry_total=0,
        ) as client,
    ):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            assert [str(message) for message in receiver.receive_messages()] == ["hello"]


@pytest.mark.anyio
async def test_a_browser_page_is_refused_under_any_host_name() -> None:
    with running() as emulator:
        origin = emulator.http_url
        async with aiohttp.ClientSession(origin, headers={"User-Agent": "Mozilla/5.0"}) as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as failure:
                await http.ws_connect("/$servicebus/websocket", protocols=["AMQPWSB10"], origin=origin)
    assert failure.value.status == 403
