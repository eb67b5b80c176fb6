from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

from sbnotebook.emulator import RunningEmulator

# Compares all that modules of the SDK, and the classes in them, have before and after.
SCRIPT = dedent("""
    import importlib, pkgutil, sys
    import azure.core.exceptions, azure.servicebus

    for module in pkgutil.walk_packages(azure.servicebus.__path__, "azure.servicebus."):
        if "uamqp" not in module.name.rpartition(".")[2] or "pyamqp" in module.name:
            importlib.import_module(module.name)

    MODULES = [(name, module) for name, module in sys.modules.items() if name.startswith("azure.")]

    def state():
        found = {}
        for name, module in MODULES:
            for key, value in vars(module).items():
                found[f"{name}.{key}"] = value
                if isinstance(value, type) and value.__module__ == name:
                    found |= {f"{name}.{key}.{part}": own for part, own in vars(value).items()}
        return found

    def changed(before):
        after = state()
        return sorted(name for name in before.keys() | after.keys() if before.get(name) is not after.get(name))

    async def use(target):
        # Send, lock and settle by sbnotebook; before, between and after by the SDK alone.
        from azure.servicebus import ServiceBusMessage
        from azure.servicebus.aio import ServiceBusClient
        from sbnotebook.model import Complete, Message
        from sbnotebook.settlement import AsyncNamespace, Connection

        async def alone(client):
            async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
                kinds.update(map(type, (sender, receiver, receiver._handler, receiver._handler._connection)))
                await sender.send_messages(ServiceBusMessage("plain"))
                (message,) = await receiver.receive_messages(1, max_wait_time=10)
                assert str(message) == "plain"
                await receiver.complete_message(message)

        kinds = set()
        async with ServiceBusClient.from_connection_string(target) as client:
            await alone(client)
            async with AsyncNamespace(Connection(target)) as namespace:
                queue = namespace.entity("orders")
                await queue.send([Message(body=b"1"), Message(body=b"2")])
                async with queue.batch() as batch:
                    assert len(await batch.receive(2)) == 2
                    assert (await batch.settle(Complete())).settled == 2
                await alone(client)
            await alone(client)
        assert all(kind.__module__.startswith("azure.servicebus.") for kind in kinds), kinds

    before = state()
    assert len(before) > 5000
    import asyncio, sbnotebook, sbnotebook.client.namespace
    asyncio.run(use(sys.argv[1]))
    after = state()
    print(*sorted(name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)))
""")


def test_the_plain_sdk_works_unchanged_beside_sbnotebook(shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_queue("orders")
    target = shared_emulator.connection_string
    run = subprocess.run([sys.executable, "-c", SCRIPT, target], capture_output=True, text=True, check=False)
    assert not run.stderr
    assert run.stdout.strip() == "", "each class and function of the SDK is as installed"
