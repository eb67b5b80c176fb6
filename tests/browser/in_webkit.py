"""The triage in WebKitGTK, the engine of Safari: ``make check-browsers`` runs this where the system has its driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import WebKitGTK
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

from tests.browser.conftest import CONNECT, READY, RUN_ALL, SAVE, SHUT_DOWN, Lab, cells_of
from tests.browser.test_record import CELLS

NEEDED: Final = {"WebKitWebDriver": "webkit2gtk-driver", "Xvfb": "xvfb"}
PATIENCE: Final = 60.0  # seconds
STILL: Final = 0.2  # seconds without a move before an element is clicked
PANEL: Final = ".jp-OutputArea-output .sbn-panel"
# What the page complains about: WebKit's driver does not pass it on.
LISTEN: Final = """
window.faults = [];
window.addEventListener('error', ({ message }) => window.faults.push(message));
window.addEventListener('unhandledrejection', ({ reason }) => window.faults.push(String(reason)));
const say = console.error;
console.error = (...words) => { window.faults.push(words.join(' ')); say(...words); };
"""


class Hand:
    """A hand in a page of WebKit."""

    def __init__(self, driver: Any) -> None:  # its types are incomplete
        self.driver = driver
        self._wait = WebDriverWait(driver, PATIENCE)

    def run(self, function: str) -> None:
        """Run a function of the page until what it returns is settled."""
        call = f"const done = arguments[0]; ({function})().then(() => done(null), (error) => done(String(error)));"
        assert self.driver.execute_async_script(call) is None

    def wait(self, function: str) -> None:
        """Wait until a function of the page returns true."""
        self._wait.until(lambda driver: driver.execute_script(f"return ({function})();"))

    def begin(self) -> None:
        """Click the notebook: without a window manager, JupyterLab does not know that it is the current one."""
        self._click("return document.querySelector('.jp-Cell .jp-InputPrompt');")

    def expect(self, words: str, *, where: str = PANEL) -> None:
        """Wait until a place shows some words."""
        self._wait.until(lambda driver: words in driver.find_element(By.CSS_SELECTOR, where).text, words)

    def click(self, name: str) -> None:
        """Wait for a button, and click it."""
        buttons = f"[...document.querySelectorAll('{PANEL} button')]"
        self._click(f"return {buttons}.find((each) => each.textContent.trim() === arguments[0]);", name)

    def _click(self, find: str, *arguments: str) -> None:
        def click(driver: Any) -> bool:
            found = driver.execute_script(find, *arguments)
            if found is None:
                return False
            place = found.rect
            time.sleep(STILL)
            is_still = found.rect == place
            if is_still:
                found.click()
            return is_still

        # JupyterLab may cover an element, or replace it. One that moves under the mouse is not clicked.
        wait = WebDriverWait(self.driver, PATIENCE, ignored_exceptions=[WebDriverException])
        wait.until(click, str(arguments))


@pytest.fixture
def display() -> Iterator[str]:
    """A screen that nothing shows."""
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            pytest.skip(f"Nothing was tested in WebKit: {program} is missing, which Debian has in {package}.")
    read, write = os.pipe()
    command = [str(shutil.which("Xvfb")), "-displayfd", str(write), "-screen", "0", "1440x1000x24", "-nolisten", "tcp"]
    screen = subprocess.Popen(command, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as number:
        yield f":{number.readline().strip()}"
    screen.terminate()
    screen.wait()


@pytest.fixture
def hand(display: str) -> Iterator[Hand]:
    service = Service(executable_path=shutil.which("WebKitWebDriver"), env=os.environ | {"DISPLAY": display})
    driver: Any = WebKitGTK(options=Options(), service=service)
    driver.set_window_size(1440, 1000)
    driver.set_script_timeout(PATIENCE)
    yield Hand(driver)
    driver.quit()


@pytest.mark.browser
def test_the_triage_works_in_webkit(lab: Lab, hand: Hand, tmp_path: Path) -> None:
    driver = hand.driver
    name = f"t{time.time_ns()}"
    data = f"import os; os.environ['XDG_DATA_HOME'] = {str(lab.folder.parent / f'data-{name}')!r}"
    notebook = lab.folder / f"{name}.ipynb"
    notebook.write_text(json.dumps(cells_of([data + CONNECT, *CELLS])))
    driver.get(f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
    hand.begin()
    hand.wait(READY)
    driver.execute_script(LISTEN)
    hand.run(RUN_ALL)
    hand.expect("30 messages, peeked at")
    hand.expect("2 causes")
    driver.save_screenshot(str(tmp_path / "causes.png"))

    for name in ("Select 12", "Example", "Complete…", "Show the plan"):
        hand.click(name)
    hand.expect("Complete 12 messages of orders/$dlq.")
    driver.save_screenshot(str(tmp_path / "plan.png"))
    hand.click("Not now")
    hand.expect("Nothing is planned.")
    hand.click("Show the plan")
    hand.click("Carry out")
    hand.expect("Completed 12 messages of orders/$dlq.")
    driver.save_screenshot(str(tmp_path / "done.png"))

    hand.run(SAVE)
    assert "Completed 12 messages of orders/$dlq." in notebook.read_text()
    assert driver.execute_script("return window.faults;") == []
    hand.run(SHUT_DOWN)
    driver.refresh()
    hand.expect("Completed 12 messages of orders/$dlq.", where="[class^=sbn-record-]")
    driver.save_screenshot(str(tmp_path / "record.png"))
