"""A proxy between the SDK and an emulator."""

from __future__ import annotations

import asyncio
import contextlib
import re

from sbnotebook.settlement import Connection


class Proxy:
    """A proxy, which can refuse connections, and cut every connection.

    Args:
        connection_string: of the emulator.
    """

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        self._writers: list[asyncio.StreamWriter] = []
        self.to_refuse = 0
        """The number of connections to refuse, beginning with the next one."""
        self.seconds_a_read = 0.0
        """Seconds that each part of at most 64 KiB takes, in both directions."""

    async def start(self) -> None:
        found = re.search(r"sb://[\w.]+:(\d+)", self._connection_string)
        assert found is not None
        self._to = int(found[1])
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.connection = Connection(self._connection_string.replace(found[1], str(port), 1))

    def cut(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.to_refuse:
            self.to_refuse -= 1
            writer.transport.abort()
            return
        answers, requests = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, requests]
        await asyncio.gather(self._pump(reader, requests), self._pump(answers, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(self.seconds_a_read)
        writer.close()
