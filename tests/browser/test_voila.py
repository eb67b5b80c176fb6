"""``sbnotebook triage``: the panel as an app, with the network cut off, and what others of the machine see of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest
import zmq
from playwright.sync_api import Browser, Page, Route, expect
from websocket import WebSocketBadStatusException, create_connection

from sbnotebook import Message, Namespace, connect
from sbnotebook.client.messages import Messages
from sbnotebook.emulator import running
from sbnotebook.testing.hostile import hostile_messages
from tests.browser.conftest import CONTRAST, faults

VARIABLE = "ORDERS_CONNECTION"
EVIL = "<img src=x onerror='window.__hit=1'><script>window.__hit=1</script> $\\href{javascript:window.__hit=1}{x}$"
HOSTILE = len(hostile_messages())
# Modules that the server and the kernel import: when they start, and to show the panel.
IMPORTED = ("ipykernel_launcher", "sbnotebook", "voila", "ipywidgets", "anyio", "azure", "pandas", "pyarrow", "tarfile")


@dataclass
class App:
    """A running app.

    Args:
        process: its own.
        address: what it printed.
        namespace: the one that it shows.
    """

    process: subprocess.Popen[str]
    address: str
    namespace: Namespace

    def peek(self, address: str) -> Messages:
        return self.namespace.entity(address).peek(show_progress=False)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with running(queues=["orders"]) as emulator, connect(emulator.connection_string) as namespace:
        orders = namespace.entity("orders")
        orders.send(Message(message_id=f"order-{n}", body=b'{"order": %d}' % n, subject=EVIL) for n in range(30))
        with orders.lock(30) as batch:
            batch.dead_letter(list(batch.messages)[:12], reason="PriceMissing", description=EVIL)
            batch.dead_letter(reason="CarrierUnknown", description="the carrier is unknown")
        orders.send(hostile_messages())
        with orders.lock(HOSTILE) as batch:
            batch.dead_letter(reason="Hostile")
        for name in IMPORTED:
            (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
        environment = {
            **os.environ,
            VARIABLE: emulator.connection_string,
            "TMPDIR": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        }
        command = [str(Path(sys.executable).with_name("sbnotebook")), "triage", "orders/$dlq", f"env:{VARIABLE}"]
        process = subprocess.Popen(
            [*command, "--no-browser"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        try:
            said = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)
            assert found, said
            yield App(process, found[0], namespace)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@pytest.mark.browser
@pytest.mark.thorough
def test_a_group_is_sent_back_in_a_page_of_its_own(app: App, browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    external = _external(page)
    _a_stranger_sees_nothing(app, page)
    page.goto(app.address)
    expect(page.get_by_text(f"{30 + HOSTILE} messages, peeked at")).to_be_visible()
    expect(page).to_have_title("Triage of orders/$dlq")
    _follows_the_browser_to_dark(page, tmp_path)
    with _listening_to_what_is_shown(app) as home:
        _resubmit(page, "12")
        expect(page.get_by_text("Resubmitted 12 messages to orders.")).to_be_visible()
    assert (len(app.peek("orders")), len(app.peek("orders/$dlq"))) == (12, 18 + HOSTILE)
    expect(page.get_by_text(f"{18 + HOSTILE} messages, peeked at")).to_be_visible()
    page.get_by_role("button", name="Done").click()
    _look_at_hostile_messages(page)
    assert (page.evaluate("window.__hit"), external) == (None, [])
    _an_interrupt_gives_back_what_is_held(app, page)
    assert not home.exists()
    assert not (tmp_path / "ran").exists()  # by the files of the folder in which the command was started


def _follows_the_browser_to_dark(page: Page, pictures: Path) -> None:
    """Each text can be read in the browser's light theme and in its dark one, and the page changes with it."""
    backgrounds: list[str] = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=pictures / f"{theme}.png")
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert faults(page, ".sbn-panel", CONTRAST) == [], theme
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(17, 17, 17)"]
    page.emulate_media(color_scheme="null")


def _look_at_hostile_messages(page: Page) -> None:
    """Each row comes into the page, and the detail of one after the other."""
    search = page.get_by_placeholder("Search all columns")
    search.fill("Hostile")
    expect(page.get_by_text(f"{HOSTILE} of {18 + HOSTILE} shown")).to_be_visible()
    grid = page.get_by_role("grid")
    title = page.get_by_role("region", name="Message", exact=True).locator("strong").first
    grid.press("Enter")
    expect(title).to_have_text(re.compile(r"Message \d+ of"))
    titles = [title.inner_text()]
    for _ in range(HOSTILE - 1):
        grid.press("ArrowDown")
        expect(title).not_to_have_text(re.compile(f"^(Message|{re.escape(titles[-1])})$"))
        titles.append(title.inner_text())
    assert len(set(titles)) == HOSTILE
    search.fill("")


def _resubmit(page: Page, count: str, rate: str = "") -> None:
    page.get_by_role("button", name=f"Select {count}", exact=True).click()
    expect(page.get_by_text(f"{count} messages are selected.")).to_be_visible()
    page.locator("button:not(.sbn-causes-view *)", has_text="Resubmit…").first.click()
    page.get_by_label("Rate per second").fill(rate)
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Carry out").click()


def _an_interrupt_gives_back_what_is_held(app: App, page: Page) -> None:
    _resubmit(page, "18", rate="1")
    expect(page.get_by_text("SETTLED").first).to_be_visible()
    app.process.send_signal(signal.SIGINT)
    assert app.process.wait(60) == 0
    left = len(app.peek("orders/$dlq"))
    assert 0 < left - HOSTILE < 18
    assert left + len(app.peek("orders")) == 30 + HOSTILE
    with app.namespace.entity("orders/$dlq").lock(left) as batch:
        assert [message.delivery_count for message in batch.messages] == [0] * left


def _a_stranger_sees_nothing(app: App, page: Page) -> None:
    root = app.address.partition("?")[0]
    refused = page.request.get(root)
    assert refused.url.startswith(f"{root}login")
    assert "default-src 'self'" in refused.headers["content-security-policy"]
    assert page.request.get(app.address, headers={"Host": "evil.example"}).status == HTTPStatus.FORBIDDEN
    for path in ("api/kernels/00000000-0000-0000-0000-000000000000", "voila/files/triage.ipynb"):
        assert page.request.get(root + path).status == HTTPStatus.FORBIDDEN
    # Voilà would read messages of the older protocol as if they were of this one, which can take all memory.
    channels = "ws" + root.removeprefix("http") + f"api/kernels/{'0' * 8}-0000-0000-0000-{'0' * 12}/channels"
    token = app.address.partition("?")[2]
    for protocols, status in ([], HTTPStatus.BAD_REQUEST), (["v1.kernel.websocket.jupyter.org"], HTTPStatus.NOT_FOUND):
        with pytest.raises(WebSocketBadStatusException) as error:
            create_connection(f"{channels}?{token}", subprotocols=protocols)
        assert error.value.status_code == status
    # Neither the address nor a secret is on a command line that everybody sees.
    command = Path(f"/proc/{app.process.pid}/cmdline")
    if command.exists():
        assert "token" not in command.read_text()
        assert "endpoint" not in command.read_text().lower()


@contextmanager
def _listening_to_what_is_shown(app: App) -> Generator[Path]:
    """Make sure that another process cannot read what the page shows meanwhile; yields the folder of the sockets."""
    server = psutil.Process(app.process.pid)
    assert [f":{port}/" in app.address for port in _ports(server)] == [True]
    (kernel,) = server.children()
    (file,) = [argument for argument in kernel.cmdline() if argument.endswith(".json")]
    home = next(each for each in Path(file).parents if each.name.startswith("sbnotebook-triage-"))
    assert home.stat().st_mode & 0o077 == 0
    with zmq.Context() as context, context.socket(zmq.SUB) as stranger:
        stranger.linger = 0
        stranger.subscribe(b"")
        for port in _ports(kernel):  # ipykernel has one that only receives
            stranger.connect(f"tcp://127.0.0.1:{port}")
        yield home
        assert not stranger.poll(100)


def _ports(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}


def _external(page: Page) -> list[str]:
    """The addresses outside this machine that a page asks for; none is answered."""
    external: list[str] = []

    def only_this_machine(route: Route) -> None:
        if route.request.url.startswith("http://127.0.0.1"):
            route.continue_()
        else:
            external.append(route.request.url)
            route.abort()

    page.route("**/*", only_this_machine)
    return external
