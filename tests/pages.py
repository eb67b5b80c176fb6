"""Run the blocks of a page as its reader would, who has a namespace in Azure: here, an emulator takes its place.

Blocks in ``python`` and ``ipython`` are cells of one notebook, and so are those that readers do not see::

    <!-- hidden
    assert len(letters.peek()) == 7
    -->

A block in ``text`` behind them shows what they print: each of its lines is a line of the output, or of a table the
cells that the page shows.

A block that cannot run gives its reason in a comment on the line before it:
``<!-- no-run: needs a namespace in Azure -->``.

What a page connects to as ``mynamespace.servicebus.windows.net`` is an emulator that :func:`fill` has filled; hidden
blocks know it as ``emulator``. As with Azure, writing is off there until ``write=True`` or ``--write``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from sbnotebook.model.connection_strings import hidden
from sbnotebook.settlement import Connection

__all__ = ["HOST", "MAGICS", "execute", "fill", "mapped", "namespace", "script", "unseen"]

HOST = "mynamespace.servicebus.windows.net"
BLOCK = re.compile(
    r"(?:^<!-- no-run: (?P<reason>.+) -->\n\s*)?^```(?P<language>python|ipython|text)\n(?P<code>.*?)^```$"
    r"|^<!-- hidden\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
QUEUES = ("orders", "repaired", "orders-faults", "invoices")
TOPICS = {"events": ("audit", "billing")}
MAGICS = re.compile(r"^```ipython$", re.MULTILINE)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TRACE = """Order {n} has no price: 'item-{n}'
   at System.Linq.Enumerable.First[TSource](IEnumerable`1 source)
   at Acme.Orders.Pricing.<FindAsync>d__14.MoveNext() in /src/Pricing.cs:line 42"""


def script(text: str) -> str:
    """The blocks of a page that run, one after the other, each at its own line of the page for tracebacks."""
    lines: list[str] = []
    transform = TransformerManager().transform_cell
    for block in BLOCK.finditer(text):
        if block["reason"] is None and (lines or block["language"] != "text"):
            group = "code" if block["hidden"] is None else "hidden"
            code = block[group]
            if block["language"] == "ipython":
                code = transform(code)
            elif block["language"] == "text":
                code = f"page_shows({code!r})"
            lines += [""] * (text.count("\n", 0, block.start(group)) - len(lines)) + code.splitlines()
    return "\n".join(lines)


def execute(page: str, text: str, **variables: object) -> None:
    """Run the blocks of a page in this process.

    Args:
        page: its name, for tracebacks.
        text: its Markdown.
        variables: what its blocks know.
    """
    if HOST in script(text):
        with namespace() as emulator:
            _run(page, text, {**variables, "emulator": emulator})
    else:
        _run(page, text, variables)


@contextmanager
def namespace() -> Generator[RunningEmulator]:
    """Start an emulator with what pages speak of, and let it take the place of their namespace in this process."""
    with running(queues=QUEUES, topics=TOPICS) as emulator, mapped(emulator):
        with connect(emulator.connection_string) as filled:
            fill(filled)
        yield emulator


def unseen(output: str, excerpt: str) -> list[str]:
    """Return the lines of an excerpt that an output does not have; a line of a table is there if its cells are."""
    lines = ANSI.sub("", output).splitlines()
    return [
        wanted
        for wanted in excerpt.strip().splitlines()
        if not any(all(cell in line for cell in re.split(r" *│ *", wanted.strip("│ "))) for line in lines)
    ]


def _run(page: str, text: str, variables: dict[str, Any]) -> None:
    # Under the page's name, so that a traceback names it. As typed: the value of a line is shown.
    typed = ast.Interactive(ast.parse(script(text), page).body)
    code = compile(typed, page, "single")
    with _printed() as output:
        known: dict[str, Any] = {"__name__": "__main__", **variables, "page_shows": partial(_check, output)}
        if not MAGICS.search(text):
            exec(code, known)  # noqa: S102
            return
        shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
        try:
            shell.user_ns.update(known)
            exec(code, shell.user_ns)  # noqa: S102
        finally:
            InteractiveShell.clear_instance()


def _check(output: io.StringIO, excerpt: str) -> None:
    """Compare an excerpt with the output since the last one."""
    printed = output.getvalue()
    missing = unseen(printed, excerpt)
    assert not missing, f"The page shows {missing}, and its blocks printed:\n{printed}"
    output.seek(0)
    output.truncate()


@contextmanager
def _printed() -> Generator[io.StringIO]:
    """Collect the output of a block, values of lines included."""
    found = sys.displayhook
    sys.displayhook = lambda value: None if value is None else sys.stdout.write(f"{value!r}\n")
    try:
        with redirect_stdout(io.StringIO()) as output:
            yield output
    finally:
        sys.displayhook = found


@contextmanager
def mapped(emulator: RunningEmulator) -> Generator[None]:
    """Let an emulator take the place of the namespace that pages speak of, in this process."""
    found = Connection.with_credential

    def with_credential(host: Any, credential: Any = None) -> Connection:
        return Connection(emulator.connection_string, write=False) if _is_ours(host) else found(host, credential)

    Connection.with_credential = staticmethod(with_credential)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        Connection.with_credential = found


def _is_ours(target: Any) -> bool:
    text = hidden(target)
    return text is not None and text.reveal().strip() == HOST


def fill(namespace: Namespace) -> None:
    """Fill what the pages speak of.

    Args:
        namespace: has the entities of QUEUES and TOPICS, and then

            - ``orders``: 20 orders; in its dead-letter queue are 5 whose carrier was away, 4 without a price, and 3
              that were delivered too often.
            - ``repaired`` and ``orders-faults``: empty queues.
            - ``carts``: 3 messages in each of the sessions ``anna`` and ``ben``.
            - ``invoices``: 4 messages, of which 2 are deferred.
            - ``events``: a topic with the subscriptions ``audit`` and ``billing``; ``audit`` has 2 dead letters.
    """
    namespace.create_queue("carts", requires_session=True)
    _fill_orders(namespace)
    carts = [Message(body=b"%d" % n, session_id=owner) for n in range(3) for owner in ("anna", "ben")]
    namespace.entity("carts").send(carts, show_progress=False).raise_for_failures()
    invoices = namespace.entity("invoices")
    invoices.send([Message(message_id=f"invoice-{n}", body=b"{}") for n in range(4)], show_progress=False)
    with invoices.lock(2) as batch:
        batch.defer().raise_for_failures()
    events = [Message(message_id=f"event-{n}", body=b"{}") for n in range(2)]
    namespace.entity("events").send(events, show_progress=False).raise_for_failures()
    with namespace.entity("events/subscriptions/audit").lock(2) as batch:
        batch.dead_letter(reason="AuditWasAway").raise_for_failures()


def _fill_orders(namespace: Namespace) -> None:
    orders = namespace.entity("orders")
    orders.send([_order(n) for n in range(1, 13)], show_progress=False).raise_for_failures()
    with orders.lock(12) as batch:
        for n, message in enumerate(batch.messages, 1):
            if n <= 5:
                batch.dead_letter([message], reason="CarrierAway", description=f"Carrier DHL did not answer for {n}")
            elif n <= 9:
                batch.dead_letter([message], reason="Invalid", description=_TRACE.format(n=n))
            else:
                batch.dead_letter([message], reason="MaxDeliveryCountExceeded")
    orders.send([_order(n) for n in range(13, 33)], show_progress=False).raise_for_failures()


def _order(number: int) -> Message:
    carrier = ("DHL", "UPS")[number % 2]
    body = b'{"order": %d, "carrier": "%s", "total": %d}' % (number, carrier.encode(), number * 10)
    return Message(
        body=body,
        message_id=f"order-{number}",
        subject="order",
        content_type="application/json",
        application_properties={
            "region": ("eu", "us")[number % 2],
            "attempt": 1,
            "traceparent": f"00-{number:032x}-{number:016x}-01",
        },
    )
