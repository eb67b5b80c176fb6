"""``%sb_connect`` and ``%sb_entities``."""

from __future__ import annotations

import getpass
from typing import Any, Final

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument
from IPython.display import display

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.acting import Acting
from sbnotebook.magics.arguments import INTO, Given, command
from sbnotebook.magics.display import say
from sbnotebook.settlement.administration import EntityCounts

__all__ = ["Connecting", "Entities"]

_COLUMNS: Final = ("entity", "kind", "active", "scheduled", "dead_letter", "transfer_dead_letter", "size_bytes")
_NO_ENTITIES: Final = (
    "There are no entities in this namespace. After %sb_connect --into namespace, "
    'namespace.create_queue("orders") makes a queue.'
)


class Entities(list[EntityCounts]):
    """Entities with their counts, shown as a table."""

    def _rows(self) -> list[list[Any]]:
        return [[counts.address, *(getattr(counts, name) for name in _COLUMNS[1:])] for counts in self]

    def __repr__(self) -> str:
        return tables.text_table(_COLUMNS, self._rows()) if self else _NO_ENTITIES

    def _repr_html_(self) -> str | None:
        return tables.html_table(_COLUMNS, self._rows()) if self else None


@magics_class
class Connecting(Acting):
    """Magics that say which namespace is meant, and what is there."""

    @line_magic
    @command(
        argument(
            "target",
            nargs="?",
            metavar="TARGET",
            help="emulator, NAMESPACE.servicebus.windows.net, env:VARIABLE or secret:SCOPE/KEY (Databricks)",
        ),
        argument("-p", "--prompt", action="store_true", help="ask for a connection string, without showing it"),
        argument("--read-only", action="store_true", help="only look (the default outside of the emulator)"),
        argument("--write", action="store_true", help="also send and settle; alone it turns this on where one is"),
        INTO,
    )
    def sb_connect(self, given: Given) -> Namespace | None:
        """Connect to a namespace, in place of the one before, and say to which, as whom, and whether writing is on.

        Without a target it is the one in the environment variable SBNOTEBOOK_CONNECTION or
        SERVICEBUS_CONNECTION_STRING, and otherwise the emulator on this machine, which is started when it is needed.
        A connection string has its place in an environment variable, a secret, or behind --prompt: typed here, the
        notebook would keep it. Outside of the emulator one only looks, until --write is given.

        Example::

            %sb_connect emulator
            %sb_connect env:SBNOTEBOOK_CONNECTION --read-only
            %sb_connect --write --into namespace
        """
        if given.prompt and given.target:
            raise ConfigurationError("Give a target or --prompt, not both.")
        if given.read_only and given.write:
            raise ConfigurationError("Give --read-only or --write, not both.")
        if self.current.is_connected:
            self._release()
        namespace = self._connected(given)
        display(namespace.about())
        return namespace if given.into else None

    def _connected(self, given: Given) -> Namespace:
        wanted = given.read_only if given.read_only or given.write else None
        if wanted is not None and self.current.is_connected and not (given.target or given.prompt):
            return self.current.reconnect(read_only=wanted)
        return self.current.connect(_prompted() if given.prompt else given.target, read_only=wanted)

    def _release(self) -> None:
        released = self.current.release()
        if released:
            say(f"Released {released:,} of the messages that were held before.")

    @line_magic
    @command(INTO)
    def sb_entities(self, _given: Given) -> Entities:
        """Show all entities of the namespace with their counts.

        The counts take the service a management operation for each entity: do not ask often.

        Example::

            %sb_entities
        """
        return Entities(self.namespace.entities())


def _prompted() -> str:
    try:
        return getpass.getpass("Connection string: ")
    except (EOFError, StdinNotImplementedError):
        raise ConfigurationError("Nobody can be asked here: use env:VARIABLE or secret:SCOPE/KEY.") from None
