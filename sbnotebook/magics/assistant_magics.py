"""``%sb_assistant`` and ``%sb_confirm``: an assistant that looks and proposes, and a person who confirms."""

from __future__ import annotations

from typing import Any, Final

from IPython.core.magic_arguments import argument
from IPython.display import display

from sbnotebook.client.assistant import Assistant
from sbnotebook.client.assistant_socket import Sharing
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import INTO, MagicArguments
from sbnotebook.magics.display import say
from sbnotebook.magics.plan_magics import PlanMagics, command

_HOW: Final = (
    'Shared with clients of MCP on this machine: give one the server {"command": "sbnotebook", "args": ["mcp", '
    '"--notebook"]}. It may '
)


class AssistantMagics(PlanMagics):
    """Magics that share the connection with an assistant, and confirm its plans."""

    _sharing: Sharing | None = None

    @command(
        argument("--may-plan", action="store_true", help="let it make plans, which run after you have confirmed them"),
        argument("--show-bodies", action="store_true", help="show it bodies and properties without masks"),
        argument("--calls", action="store_true", help="show the calls of assistants, which the journal keeps"),
        argument("--stop", action="store_true", help="stop sharing"),
        INTO,
    )
    def sb_assistant(self, args: MagicArguments) -> Any:
        """Share the connection of this notebook with an assistant, which can look at messages, and cannot act.

        The assistant is a client of the Model Context Protocol on this machine. Bodies and properties are masked. With
        --may-plan it can propose plans. %sb_confirm confirms one.

        Example::

            %sb_assistant
            %sb_assistant --may-plan
            %sb_assistant --calls
            %sb_assistant --stop
        """
        if args.calls:
            import pandas as pd

            return pd.DataFrame(self.current.namespace.assistant_calls.last())
        if self._sharing is not None:
            self._sharing.close()
            self._sharing = None
        if args.stop:
            say("The connection is not shared any more.")
            return None
        current, options = self.current, {"may_plan": args.may_plan, "show_bodies": args.show_bodies}
        current.namespace.identity()  # says so if there is no connection
        self._sharing = Sharing(Assistant(lambda: current.namespace, **options))
        say(_HOW + ("look and propose plans: %sb_confirm shows them." if args.may_plan else "look only."))
        return None

    @command(argument("digest", nargs="?", metavar="DIGEST", help="digest of a plan (default: show those that wait)"))
    def sb_confirm(self, args: MagicArguments) -> None:
        """Confirm a plan of an assistant, which may then apply it once, within ten minutes after it was made.

        It runs only if its messages and the namespace are still as they were.

        Example::

            %sb_confirm
            %sb_confirm 0f17e6e44b37ec0e
        """
        if self._sharing is None:
            raise ConfigurationError("The connection is not shared with an assistant: run %sb_assistant --may-plan.")
        assistant = self._sharing.assistant
        if args.digest is not None:
            display(assistant.proposal(args.digest).plan)
            say(f"Confirmed: {assistant.confirm(args.digest)} The assistant may apply it now, once.")
            return
        waiting = assistant.waiting()
        for each in waiting:
            display(each.plan)
            say(f"%sb_confirm {each.digest}{' (confirmed)' if each.confirmed else ''}")
        if not waiting:
            say("No plan waits.")
