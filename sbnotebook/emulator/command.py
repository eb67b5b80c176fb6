"""The command that runs an emulator: ``python -m sbnotebook.emulator``, ``sbnotebook emulator``."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from math import inf
from pathlib import Path
from typing import Annotated, Final

import typer

from sbnotebook.emulator.config import read_config
from sbnotebook.emulator.entities.options import Tier
from sbnotebook.emulator.logs import write_log
from sbnotebook.emulator.process import EmulatorState, default_data_dir
from sbnotebook.emulator.server import EmulatorServer, run_loop
from sbnotebook.errors import ConfigurationError, SbNotebookError

_OPEN_FILES: Final = 8192  # Connections and files that the process may have at once, if the system lets it

_Hosts = Annotated[
    list[str] | None,
    typer.Option(help="Additional host name for HTTP, such as a container's. Repeatable."),
]

app: Final = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def emulator(  # noqa: PLR0913 - one for each option
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for AMQP and HTTP; 0 picks a free one.")] = 5672,
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Additional port for HTTP; Microsoft's emulator uses 5300.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A Config.json of Microsoft's emulator.")] = None,
    snapshot: Annotated[Path | None, typer.Option("--from", help="A file of sbnotebook snapshot, alone.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory for messages; by default in your user data.")] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep messages in memory only.")] = False,
    queue: Annotated[list[str] | None, typer.Option(help="Queue to create. Repeatable.")] = None,
    allow_host: _Hosts = None,
    tls: Annotated[bool, typer.Option("--tls", help="Additional port with TLS.")] = False,
    tls_port: Annotated[int, typer.Option(min=0, max=65535, help="Port with TLS; 0 picks a free one.")] = 5671,
    tier: Annotated[Tier, typer.Option(case_sensitive=False, help="Service tier to emulate.")] = Tier.PREMIUM,
    # An emulator that was started on demand ends when it is not used.
    end_after_unused: Annotated[float, typer.Option(hidden=True)] = inf,
) -> None:
    """Run the emulator until it is interrupted. It prints its connection string when it is ready."""
    if snapshot is not None:  # the command line reads it, where it comes first
        raise ConfigurationError("Write sbnotebook emulator --from FILE, without other options.")
    if in_memory and data_dir is not None:
        raise ConfigurationError("Say either --in-memory or --data-dir.")
    directory = None if in_memory else data_dir or default_data_dir()
    server = EmulatorServer(
        host=host,
        port=port,
        http_port=http_port,
        data_dir=directory,
        queues=queue or (),
        entities=() if config is None else read_config(config),
        tier=tier,
        host_names=allow_host or (),
        tls_port=tls_port if tls else None,
        tls_dir=data_dir or default_data_dir(),
    )
    write_log()
    _warn_unless_loopback(host)
    prepare_process()
    run_loop(_serve(server, directory, end_after_unused))


async def _serve(server: EmulatorServer, data_dir: Path | None, end_after_unused: float) -> None:
    with suppress(NotImplementedError):  # Windows ends the process, and every confirmed message is on disk.
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, server.request_stop)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        await server.broker.committed()
        if data_dir is not None:
            # Other processes find it by its data directory, as long as it listens.
            state = EmulatorState(os.getpid(), server.host, server.port, server.connection_string, server.broker.secret)
            state.write(data_dir)
            stack.callback(state.remove, data_dir)
        # First the connection string that needs no certificate.
        lines = [server.connection_string]
        if server.tls_connection_string is not None:
            lines += [server.tls_connection_string, f"Certificate to trust: {server.certificate}"]
        print("\n".join(lines), flush=True)  # noqa: T201
        await server.serve(end_after_unused=end_after_unused)


def prepare_process() -> None:
    """Prepare a process that does nothing but run an emulator for many messages and connections."""
    # Messages make no cycles and there may be many: looking for cycles among them again and again is most of the
    # time that a collection takes.
    gc.freeze()
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
    try:
        import resource
    except ImportError:  # Windows, which has no such limit.
        return
    # Each sender and receiver of the SDK is a connection.
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _warn_unless_loopback(host: str) -> None:
    if host.casefold() != "localhost" and not host.startswith("127."):
        print(  # noqa: T201
            f"sbnotebook emulator: warning: everyone who reaches {host} can use the emulator: its key is known to all, "
            "and nothing is encrypted.",
            file=sys.stderr,
        )


def main() -> None:
    """Run the command. Our own errors are one line and end it with exit code 2."""
    try:
        app()
    except SbNotebookError as error:
        print(f"sbnotebook emulator: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
