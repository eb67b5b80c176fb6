"""The command line: ``sbnotebook demo | emulator | probe | lab | triage | report | snapshot | compare | mcp | doctor``.

What a command needs is imported when that command runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sbnotebook.errors import ConfigurationError, MissingExtraError, SbNotebookError, near_match

if TYPE_CHECKING:
    from sbnotebook.client import Namespace

app: Final = typer.Typer(
    help="The notebook kit for Azure Service Bus.",
    no_args_is_help=True,
    add_completion=False,
    # They would show local variables, and a connection string may be among them.
    pretty_exceptions_enable=False,
)

# The command's own parser reads everything behind its name, --help too.
_PASS_ON: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
# A wheel has the tutorials inside the package, a source tree next to it.
_SHOWN: Final = 60
_EMULATOR_VERBS: Final = re.compile(r"\b(?:start|run|up|status|stop)\b")
_EMULATOR_VERB: Final = (
    "Leave {!r} out: sbnotebook emulator starts it and prints its connection string, and Ctrl-C stops it"
)
_COPIED_TO: Final = Path("sbnotebook-tutorials")
_TUTORIALS: Final = (Path(__file__).parent / "tutorials", Path(__file__).parent.parent / "notebooks")
_Target = Annotated[
    str | None, typer.Argument(help="emulator, NAMESPACE.servicebus.windows.net or env:VARIABLE; as %sb_connect.")
]


def main() -> None:
    """Run the command line; a wrong line, an error of our own or of Service Bus is a sentence, with exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 1
    except Exception as error:
        words = _in_words(error)
        if words is None:
            raise
        print(words, end="", file=sys.stderr)  # noqa: T201
        code = 2
    sys.exit(code or 0)


def _in_words(error: Exception) -> str | None:
    """Return the line to print for an error; None for an error that is a bug."""
    if isinstance(error, SbNotebookError) or type(error).__module__.startswith("azure."):
        return f"sbnotebook: {error}\n"
    # Typer has its own copies of click's classes, under names that change.
    said, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
    if said is None:
        return None
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        return ""  # the help was shown
    if hasattr(error, "option_name"):
        names = [name for option in context.command.params for name in (*option.opts, *option.secondary_opts)]
        known = [name for name in names if name.startswith("-")]
        return _unknown("option", str(getattr(error, "option_name", "")), known, context)
    if str(said()).startswith("No such command"):
        return _unknown_command(str(said()).split("'")[1], context)
    if context.command_path.endswith("emulator") and (word := _EMULATOR_VERBS.search(str(said()))):
        return f"sbnotebook: {_EMULATOR_VERB.format(word[0])}: see sbnotebook emulator --help.\n"
    return f"sbnotebook: {str(said()).rstrip('.')}: see {context.command_path} --help.\n"


def _unknown_command(name: str, context: Any) -> str:
    from sbnotebook.magics.arguments import OTHER_NAMES, VERBS  # it loads IPython

    verb = name.removeprefix("sb_").replace("-", "_")
    magic = f"%sb_{verb}" if verb in VERBS else OTHER_NAMES.get(verb)
    known = list(context.command.commands)
    if magic is None or (verb not in VERBS and near_match(name, known)):
        return _unknown("command", name, known, context)
    command = " sbnotebook report shows dead letters in a shell." if verb in ("dlq", "groups", "triage") else ""
    said = f"{name[:_SHOWN]} is for a notebook, which sbnotebook lab opens: %load_ext sbnotebook, then {magic}."
    return f"sbnotebook: {said}{command}\n"


def _unknown(kind: str, name: str, known: list[str], context: Any) -> str:
    near = near_match(name, known)
    hint = f"did you mean {near}? See" if near else "see"
    return f"sbnotebook: There is no {kind} {name[:_SHOWN]}; {hint} {context.command_path} --help.\n"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"sbnotebook {metadata.version('sbnotebook')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options in front of a command."""
    del version  # its callback has shown it


@app.command(context_settings=_PASS_ON)
def demo(context: typer.Context) -> None:
    """Run the main job on real data against the emulator."""
    _run("demo.command", context)


@app.command(context_settings=_PASS_ON)
def emulator(context: typer.Context) -> None:
    """Start the emulator and print its connection string."""
    option, _, file = (context.args or [""])[0].partition("=")
    if option == "--from":
        _serve_copy([*filter(None, [file]), *context.args[1:]])
    else:
        _run("emulator.command", context)


@app.command(context_settings=_PASS_ON)
def probe(context: typer.Context) -> None:
    """Check sbnotebook's assumptions about Service Bus against your namespace."""
    _run("probe.command", context)


@app.command()
def lab(
    folder: Annotated[Path, typer.Argument(help="Directory for the copy of the tutorials.")] = _COPIED_TO,
    options: Annotated[list[str] | None, typer.Argument(help="Options for JupyterLab, after two dashes.")] = None,
) -> None:
    """Open JupyterLab on a copy of the tutorials; what you changed there stays."""
    if find_spec("jupyterlab") is None:
        raise MissingExtraError("sbnotebook lab", "lab")
    given = options or []
    if str(folder).startswith("-"):  # an argument after two dashes, without a folder
        folder, given = _COPIED_TO, [str(folder), *given]
    try:
        _copy_tutorials(folder)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be used: {error.strerror}. Say another folder.") from error
    # With -P, because files of the current folder would be imported first.
    command = [sys.executable, "-P", "-m", "jupyterlab", *given]
    raise typer.Exit(subprocess.run(command, cwd=folder, check=False).returncode)


@app.command()
def triage(
    entity: Annotated[str, typer.Argument(help="Entity such as 'orders/$dlq', in single quotes.")],
    target: _Target = None,
    *,
    write: Annotated[
        bool | None, typer.Option("--write/--read-only", help="Allow writes, or not (the default on Azure).")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("-n", min=1, help="Maximum number of messages to peek at (default: all).")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 picks a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open it in a browser.")] = True,
) -> None:
    """Serve the triage panel as a web page. Stop with Ctrl-C."""
    if find_spec("voila") is None or find_spec("ipykernel") is None:
        raise MissingExtraError("sbnotebook triage", "app")
    _connected(target, archive=False).close()  # the page would report a wrong target later
    from sbnotebook.widgets.app_server import TriageRequest, serve

    serve(TriageRequest(entity, target, write, max_messages, str(Path.cwd())), port=port, is_opened=browser)


@app.command()
def report(
    target: _Target = None,
    *,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only this queue, topic or subscription. Repeatable.")
    ] = None,
    fail_above: Annotated[
        int | None, typer.Option(min=0, help="Exit with code 1 if a dead-letter queue has more messages.")
    ] = None,
    output: Annotated[list[Path] | None, typer.Option("-o", help="File to write, .md or .html. Repeatable.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace existing files.")] = False,
) -> None:
    """Report the dead-letter queues of a namespace with their causes; a scheduled job reads the exit code."""
    with _connected(target) as namespace:
        letters = namespace.dead_letters(entity)
    print(letters)  # noqa: T201
    for path in output or ():
        letters.write(path, overwrite=overwrite)
    above = [] if fail_above is None else letters.above(fail_above)
    if above:
        said = ", ".join(f"{queue.address} ({queue.count:,})" for queue in above)
        print(f"sbnotebook: More than {fail_above:,} dead letters: {said}.", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1)


@app.command()
def mcp(
    target: _Target = None,
    *,
    may_plan: Annotated[
        bool, typer.Option("--may-plan", help="Let it make plans, which run after a person has confirmed them.")
    ] = False,
    show_bodies: Annotated[
        bool, typer.Option("--show-bodies", help="Show bodies and properties without masks.")
    ] = False,
    notebook: Annotated[
        bool, typer.Option("--notebook", help="Use the connection that a notebook shares with %sb_assistant.")
    ] = False,
) -> None:
    """Serve tools for an assistant over MCP, which starts this command. It looks, and cannot act by itself."""
    if find_spec("mcp") is None:
        raise MissingExtraError("sbnotebook mcp", "mcp")
    if notebook and (target or may_plan or show_bodies):
        raise ConfigurationError("With --notebook, give the other options to %sb_assistant in the notebook.")
    from sbnotebook.assistant_server import serve
    from sbnotebook.client.assistant import Assistant, RemoteAssistant

    if notebook:
        serve(RemoteAssistant())
        return
    with _connected(target, write=may_plan) as namespace:
        serve(Assistant(lambda: namespace, may_plan=may_plan, show_bodies=show_bodies))


@app.command()
def config(target: _Target = None) -> None:
    """Print the entities and rules of a namespace as a Config.json, which the emulators read; it has no keys."""
    import json
    import warnings

    with _connected(target) as namespace, warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        found = namespace.config()
    for note in notes:
        print(f"sbnotebook: {note.message}", file=sys.stderr)  # noqa: T201
    print(json.dumps(found, indent=2))  # noqa: T201


@app.command()
def snapshot(
    file: Annotated[Path, typer.Argument(help="File to write, which ends in .sbcopy.")],
    target: _Target = None,
    *,
    sample: Annotated[
        int, typer.Option(min=0, help="Also the first N messages of each queue, subscription and dead-letter queue.")
    ] = 0,
    mask: Annotated[
        list[str] | None, typer.Option(help="Value of these to replace, such as $.email. Repeatable.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Write all entities with their options, rules and counts to a file, from which an emulator can start."""
    with _connected(target) as namespace, namespace.snapshot(sample=sample, mask=mask or ()) as copy:
        path = copy.save(file, overwrite=overwrite)
        print(f"{path}: {copy.summary} Start it with sbnotebook emulator --from {path}.")  # noqa: T201


@app.command()
def compare(
    one: Annotated[str, typer.Argument(help="A file of sbnotebook snapshot, or a target as %sb_connect takes.")],
    other: Annotated[str, typer.Argument(help="What to compare it with.")],
    *,
    counts: Annotated[bool, typer.Option(help="Compare the numbers of messages, too.")] = True,
) -> None:
    """Show how two namespaces or snapshots differ in options, rules and counts, with exit code 1 if they do."""
    from sbnotebook.client import read_copy
    from sbnotebook.client.targets import refuse_secret

    refuse_secret(other)  # before the first is connected
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(read_copy(each) if each.lower().endswith(".sbcopy") else _connected(each))
            for each in (one, other)
        )
        found = first.compare(second, counts=counts)
    print(found.as_text(max_rows=len(found)))  # noqa: T201
    if found:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Check Python, Java, PySpark, the widgets and the connection, and say how to install missing parts."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from sbnotebook.doctor import State, examine

    colours = {State.GOOD: "green", State.OPTIONAL: "yellow", State.MISSING: "red"}
    # Folded, because a shortened name cannot be looked up.
    table = Table("", "State", Column("Found", overflow="fold"), Column("What to do", overflow="fold"))
    findings = examine()
    for finding in findings:
        state = Text(finding.state.value, style=colours[finding.state])
        # As Text, because a finding could look like markup.
        table.add_row(finding.subject, state, Text(finding.found), Text(finding.remedy))
    Console().print(table)
    if any(finding.state is State.MISSING for finding in findings):
        raise typer.Exit(1)


def _connected(target: str | None, *, write: bool = False, archive: bool = True) -> Namespace:
    """Connect to the target of a command, which must not be a secret."""
    from sbnotebook.client import connect
    from sbnotebook.client.targets import refuse_secret

    refuse_secret(target)
    return connect(target, write=write, archive=archive)


def _run(module: str, context: typer.Context) -> None:
    """Hand the rest of the line to the function of the command's name in its own module, as its options."""
    command = typer.Typer(add_completion=False)
    command.command()(getattr(import_module(f"sbnotebook.{module}"), str(context.info_name)))
    code = command(context.args, prog_name=context.command_path, standalone_mode=False)
    raise typer.Exit(code or 0)


def _serve_copy(words: list[str]) -> None:
    """Run an emulator with the entities and messages of a copy until it is interrupted."""
    from sbnotebook.client import read_copy

    if len(words) != 1:
        raise ConfigurationError("Write sbnotebook emulator --from FILE, without other options.")
    with read_copy(words[0]) as copy:
        print(copy.connection_string, flush=True)  # noqa: T201
        print(copy.summary, file=sys.stderr)  # noqa: T201
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


def _copy_tutorials(folder: Path) -> None:
    from sbnotebook.emulator.process import belongs_to_user

    source = next(path for path in _TUTORIALS if path.is_dir())
    folder.mkdir(parents=True, exist_ok=True)
    # Check links as well: another user could have made one.
    if not all(belongs_to_user(status) for status in (folder.lstat(), folder.stat())):
        raise ConfigurationError(f"{folder} belongs to another user of this machine: choose one of your own.")
    for tutorial in sorted(source.glob("*.ipynb")):
        if not (folder / tutorial.name).exists():
            shutil.copy(tutorial, folder)
