"""``%sb_peek`` and ``%sb_spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from IPython.core.magic import Magics, line_magic, magics_class

from sbnotebook.client import Messages
from sbnotebook.magics.arguments import ENTITY, FROM, INTO, PEEK_COUNT, STATE, WHERE, Given, command
from sbnotebook.magics.display import say

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current

__all__ = ["Reading"]

_PEEKED: Final = 1_000
"""Messages that are looked at unless the user says how many: a queue may hold a million."""


@magics_class
class Reading(Magics):
    """Magics that look at messages and change nothing."""

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self._current = current

    @line_magic
    @command(ENTITY, PEEK_COUNT, WHERE, STATE, FROM, INTO)
    def sb_peek(self, given: Given) -> Messages:
        """Look at messages without locking them.

        The first rows are shown as a table; the value has all of them, with ``to_pandas()``, ``to_arrow()``,
        ``where(…)`` and ``groups()``.

        Example::

            %sb_peek orders/$dlq
            %sb_peek orders/$dlq --where "dead_letter_reason = 'Invalid' and body_json->>'$.carrier' = 'UA'"
            letters = %sb_peek orders/$dlq -n all
        """
        entity = self._current.namespace.entity(given.entity)
        limit = _limit(given)
        found = entity.peek(
            None if limit is None else limit + 1,
            from_sequence_number=given.from_sequence_number,
            state=given.state,
        )
        if limit is not None and len(found) > limit:
            say(f"More messages follow: -n all looks at every one, --from {found[limit].sequence_number} goes on.")
        return found[:limit].where(given.where)

    @line_magic
    @command(ENTITY, INTO)
    def sb_spark(self, given: Given) -> Any:
        """Load the messages of an entity into Spark by peeking; nothing is locked or removed.

        The Spark session is the one that there is, or else a new one on this machine. The frame peeks again each
        time it is used, unless it is cached.

        Example::

            %sb_spark orders/$dlq --into letters
            letters.groupBy("dead_letter_reason").count().show()
        """
        from sbnotebook.spark import session

        namespace = self._current.namespace
        reader = session().read.format("servicebus").option("entity", str(namespace.entity(given.entity).address))
        if namespace.connection_string is None:
            return reader.option("fullyQualifiedNamespace", namespace.host).load()
        return reader.option("connectionString", namespace.connection_string).load()


def _limit(given: Given) -> int | None:
    if given.count is not None:
        return given.count or None
    return _PEEKED if given.where is None else None
