"""A proxy that makes an emulator as far away as a namespace in Azure: for every byte, not for some confirmations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

__all__ = ["far_away"]

_ADDRESS: Final = re.compile(r"sb://([\w.]+):(\d+)")
_CHUNK: Final = 1 << 16


@asynccontextmanager
async def far_away(connection_string: str, one_way: float) -> AsyncGenerator[str]:
    """Give a connection string that leads to the same emulator, so many seconds away."""
    address = _ADDRESS.search(connection_string)
    assert address is not None
    host, port = address.groups()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inward, outward = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_pump(reader, outward, one_way), _pump(inward, writer, one_way))

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield _ADDRESS.sub(f"sb://127.0.0.1:{server.sockets[0].getsockname()[1]}", connection_string)
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way: float) -> None:
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def read() -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                waiting.put_nowait((loop.time() + one_way, data))
        waiting.put_nowait((loop.time() + one_way, b""))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        with suppress(OSError):
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()
