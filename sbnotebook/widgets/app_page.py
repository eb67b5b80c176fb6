"""The panel that a kernel of ``sbnotebook triage`` runs, and that ends with its page."""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import asdict, dataclass
from typing import Final, Self

from sbnotebook.client.namespace import Namespace
from sbnotebook.client.targets import resolve
from sbnotebook.widgets.triage import Triage

VARIABLE: Final = "SBNOTEBOOK_TRIAGE"
"""The environment variable that tells a kernel what to show: the notebook and the list of processes say nothing."""
_CLEAN_UP: Final = 15.0
"""Seconds for a plan in progress to release its messages."""


@dataclass(frozen=True, slots=True)
class TriageRequest:
    entity: str
    target: str | None = None
    write: bool | None = None
    max_messages: int | None = None
    folder: str = "."

    def namespace(self) -> Namespace:
        found = resolve(self.target)
        if self.write is not None:
            found.connection.read_only = not self.write
        return Namespace(found)

    def keep(self) -> None:
        """Write it into the environment, for the kernels that this process starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def kept(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))


def show() -> Triage:
    """Return the panel of the page. What it holds is given back when the kernel ends."""
    wanted = TriageRequest.kept()
    os.chdir(wanted.folder)
    namespace = wanted.namespace()
    # The user of a read-only page may differ from the user who started it.
    panel = Triage(namespace, wanted.entity, max_messages=wanted.max_messages, is_editing=not namespace.read_only)
    atexit.register(_leave, panel, namespace)
    return panel


def _leave(panel: Triage, namespace: Namespace) -> None:
    panel.halt()
    panel.actions.cancel()
    panel.actions.wait(_CLEAN_UP)
    namespace.close()
