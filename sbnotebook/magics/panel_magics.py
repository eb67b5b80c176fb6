"""``%sb_browse``, ``%sb_triage`` and ``%sb_monitor``: panels in a notebook, tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic_arguments import argument

from sbnotebook.magics.arguments import COUNT, ENTITY, INTO, MAYBE_ENTITY, MagicArguments, seconds
from sbnotebook.magics.display import has_widgets
from sbnotebook.magics.plan_magics import PlanMagics, command

if TYPE_CHECKING:
    from sbnotebook.widgets.entity_browser import Browser
    from sbnotebook.widgets.monitor import Monitor
    from sbnotebook.widgets.triage import Triage


class PanelMagics(PlanMagics):
    """Magics that open a panel."""

    @property
    def _is_terminal(self) -> bool:
        """Return True when a panel is shown once, as text, and so must be complete first."""
        return not has_widgets(self.shell)

    @command(MAYBE_ENTITY, INTO)
    def sb_browse(self, args: MagicArguments) -> Browser:
        """Browse the entities with their counts, and the messages of the one that you click.

        Example::

            %sb_browse
            %sb_browse orders/$dlq
        """
        from sbnotebook.widgets.entity_browser import Browser

        browser = Browser(self.current.namespace, args.entity)
        if self._is_terminal:
            browser.wait()
        return browser

    @command(ENTITY, COUNT, INTO)
    def sb_triage(self, args: MagicArguments) -> Triage:
        """Find out why messages are dead letters, choose some, repair them, and send them back.

        The panel also offers to finish the resubmits that an earlier kernel left in the journal.

        Example::

            %sb_triage orders/$dlq
        """
        from sbnotebook.widgets.triage import Triage

        triage = Triage(self.current.namespace, args.entity, max_messages=args.count)
        if self._is_terminal:
            triage.wait()
        return triage

    @command(
        argument(
            "entities", nargs="*", metavar="ENTITY", help="entities to watch (default: the 12 with the most messages)"
        ),
        argument("--every", metavar="DURATION", type=seconds, default=5.0, help="polling interval (default 5s)"),
        INTO,
    )
    def sb_monitor(self, args: MagicArguments) -> Monitor:
        """Watch counts, the age of the oldest message, and the rates of arrival and departure.

        The counts take a management operation for each entity each time: name those that matter.

        Example::

            %sb_monitor orders results --every 10s
        """
        from sbnotebook.widgets.monitor import Monitor

        monitor = Monitor(self.current.namespace, args.entities or None, every=args.every)
        if self._is_terminal:
            monitor.sample()
        return monitor
