"""Copies of messages, and of the entities that hold them, as a namespace of its own."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.tables import printable
from sbnotebook.client.async_namespace import AsyncNamespace
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import blocking
from sbnotebook.client.targets import Target

if TYPE_CHECKING:
    from sbnotebook.client.copying import Copied


class AsyncNamespaceCopy(AsyncNamespace):
    """A copy of messages and of the entities that hold them, in an emulator of this process: a namespace of its own.

    Work in it as in any namespace. Its journal and its archive are its own. Closing it removes all of it.
    ``await namespace.copy_to(…)`` makes it.
    """

    def __init__(self, copied: Copied, removal: AsyncExitStack, found_by: str) -> None:
        super().__init__(Target(copied.connection, found_by), journal=copied.journal)
        self._copied = copied
        # An abandoned copy is removed, too, in its own loop: garbage collection would end the parts in any order.
        self._removal = weakref.finalize(self, _remove_later, removal, asyncio.get_running_loop())
        self._removal.atexit = False

    @classmethod
    async def of(cls, copied: AbstractAsyncContextManager[Copied], found_by: str) -> AsyncNamespaceCopy:
        async with AsyncExitStack() as stack:
            copy = await stack.enter_async_context(copied)
            return cls(copy, stack.pop_all(), found_by)

    @classmethod
    async def read(cls, path: Path | str) -> AsyncNamespaceCopy:
        """Read a copy that :meth:`save` wrote into a fresh emulator of this process. It needs no namespace.

        Args:
            path: the file, which may come from a stranger: its size is limited, and nothing in it is evaluated.

        Returns:
            A namespace with the copies, which you close.

        Raises:
            ConfigurationError: the file cannot be read, or is not a copy.

        Example:
            >>> async with await AsyncNamespaceCopy.read("orders.sbcopy") as copy:  # doctest: +SKIP
            ...     copy.messages.groups()
        """
        from sbnotebook.client.copying import read_copy_file  # it loads the emulator

        return await cls.of(read_copy_file(path), f"the copy in {Path(path).name}")

    @cached_property
    def messages(self) -> Messages:
        """Return the copied messages as they were at first."""
        return Messages(to_arrow(self._copied.messages), where_from=str(self._copied.entity or self.host))

    @property
    def unreadable(self) -> dict[int, str]:
        """Return the sequence numbers of chosen messages that could not be read, nor copied, with the reason."""
        return dict(self._copied.unreadable)

    @property
    def masked(self) -> dict[str, int]:
        """Return in how many messages each masked path had a value."""
        return dict(self._copied.masked)

    @property
    def masked_whole(self) -> int:
        """Return the number of bodies that were masked as a whole, because they are not JSON."""
        return self._copied.masked_whole

    async def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the messages as they were copied, and the entities, to one file that only its owner can read.

        :func:`sbnotebook.read_copy` reads it, also on another machine. It has the messages without loss, with their
        masks, and no keys.

        Args:
            path: the file, which ends in ``.sbcopy``.
            overwrite: True to replace an existing file.

        Returns:
            The path of the file.

        Raises:
            ConfigurationError: the file has another ending, it exists, or there is no such folder.

        Example:
            >>> async with await namespace.copy_to("emulator", "orders/$dlq", mask="$.email") as copy:  # doctest: +SKIP
            ...     await copy.save("orders.sbcopy")
        """
        from sbnotebook.client.copying import write_copy_file

        return await blocking(write_copy_file, self._copied, path, overwrite=overwrite)

    async def _described(self, stack: AsyncExitStack) -> tuple[str, Copied]:
        found = self._copied if self._copied.entity is None else (await super()._described(stack))[1]
        return str(self.found_by), found  # a snapshot has the counts of its time

    async def close(self) -> None:
        """Close all connections, and end the emulator with all its messages."""
        try:
            await super().close()
        finally:
            if found := self._removal.detach():
                await found[2][0].aclose()

    def __repr__(self) -> str:
        return f"<NamespaceCopy at {self.host}: {self.summary}>"

    @property
    def summary(self) -> str:
        """Return the number of messages and masked values, in sentences."""
        count = len(self._copied.messages)
        of = self._copied.entity or f"{len(self._copied.counts):,} entities"
        said = [f"{count:,} message{'s' if count != 1 else ''} of {of}."]
        if self.masked:
            paths = ", ".join(f"{printable(path[:60])} in {found:,}" for path, found in self.masked.items())
            said.append(f"Masked: {paths}; {self.masked_whole:,} bodies as a whole.")
        if self.unreadable:
            said.append(f"{len(self.unreadable):,} could not be read, nor copied.")
        return " ".join(said)


def _remove_later(removal: AsyncExitStack, loop: asyncio.AbstractEventLoop) -> None:
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(removal.aclose(), loop)
