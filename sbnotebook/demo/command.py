"""``sbnotebook demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    messages: Annotated[int, typer.Option(min=1, help="How many flights, in time order; 336776 are all.")] = 2_000,
    data_dir: Annotated[
        Path | None, typer.Option(help="An empty or new folder in which the emulator keeps its data, to look at later.")
    ] = None,
) -> None:
    """Run the main job offline, on real flights: send, consume, triage, analyse, repair, resubmit, reconcile.

    It runs on an emulator of its own; ends with 1 when a message was lost or doubled.
    """
    from sbnotebook.client import Namespace
    from sbnotebook.client.targets import Target
    from sbnotebook.demo.job import DemoJob
    from sbnotebook.emulator.process import ensure_running, stop
    from sbnotebook.errors import ConfigurationError
    from sbnotebook.settlement import Connection, Journal

    console = Console()
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise ConfigurationError(f"{data_dir} is not empty: choose a new folder for the demo's data.")
    with tempfile.TemporaryDirectory(prefix="sbnotebook-demo-") as scratch:
        home = data_dir or Path(scratch) / "emulator"
        target = Target(Connection(ensure_running(home)), "the demo's own emulator")
        try:
            with Namespace(target, journal=Journal(home / "journal.sqlite")) as namespace:
                fine = DemoJob(namespace, console, messages).run()
        finally:
            stop(home)
    raise typer.Exit(0 if fine else 1)
