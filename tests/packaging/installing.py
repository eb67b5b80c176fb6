"""The wheel in an empty virtual environment, as pip installs it: ``make check-install``.

Downloads all of its dependencies, so it is not part of the normal run, and is not named like a test file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = ("SBNOTEBOOK", "SERVICEBUS", "SPARK", "PYSPARK", "PYTHON", "XDG", "IPYTHON", "JUPYTER", "VIRTUAL_ENV")
MANY_COLUMNS: Final = "200"


class Installed:
    """A virtual environment with the wheel, and a user with an empty home."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self._programs = folder / "environment" / "bin"
        build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "-t", "wheel"]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (self._wheel,) = folder.glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", str(self._programs.parent)], check=True)
        self.install()

    def install(self, *extras: str) -> None:
        """Install the wheel with these extras."""
        wheel = f"{self._wheel}[{','.join(extras)}]" if extras else str(self._wheel)
        subprocess.run([str(self._programs / "pip"), "install", "--quiet", wheel], cwd=self.home, check=True)

    def run(self, program: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, and give it a text to read."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        path = f"{self._programs}{os.pathsep}{kept['PATH']}"
        environment = {**kept, "HOME": str(self.home), "PATH": path, "COLUMNS": MANY_COLUMNS}
        return subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.home, env=environment, input=given, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def ipython(self, *lines: str) -> str:
        """Type lines into IPython; what it printed."""
        options = ("--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=NoColor")
        result = self.run("ipython", *options, given="\n".join(lines) + "\n")
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel without an extra."""
    found = Installed(tmp_path_factory.mktemp("installed"))
    yield found
    found.run("python", "-c", "from sbnotebook.emulator.process import stop; stop()")


@pytest.fixture(scope="module")
def complete(installed: Installed) -> Installed:
    """The wheel with all extras; tests without extras come before."""
    installed.install("spark", "demo", "lab", "app")
    return installed


def test_the_magics_work_without_an_extra(installed: Installed) -> None:
    shown = installed.ipython(
        "%load_ext sbnotebook",
        "%sb_connect emulator --into namespace",
        "namespace.create_queue('orders')",
        '%sb_send orders "hello"',
        "%sb_peek orders",
        "%sb_triage orders",
    )
    assert "orders: 1 message" in shown
    assert "hello" in shown
    assert "Triage of orders" in shown
    assert "Traceback" not in shown


def test_the_widgets_work_without_an_extra(installed: Installed) -> None:
    script = (
        "import sbnotebook; from sbnotebook.emulator import running\n"
        "with running(queues=['orders']) as emulator, sbnotebook.connect(emulator.connection_string) as namespace:\n"
        "    namespace.entity('orders').send(['hello'])\n"
        "    table = sbnotebook.MessageTable(); table.show(namespace.entity('orders').peek())\n"
        "    print(*table._repr_mimebundle_()[0])\n"
    )
    result = installed.run("python", "-c", script)
    assert "application/vnd.jupyter.widget-view+json" in result.stdout.split(), result.stderr


def test_what_an_extra_adds_is_said_where_it_is_missing(installed: Installed) -> None:
    spark = installed.ipython("%load_ext sbnotebook", "%sb_connect emulator", "%sb_spark orders")
    assert (
        "UsageError: sbnotebook.spark needs packages that are not installed, the extra spark: run pip install" in spark
    )
    for command, extra in (["demo"], "demo"), (["lab"], "lab"), (["triage", "orders"], "app"):
        result = installed.run("sbnotebook", *command)
        assert result.returncode == 2
        assert f"pip install '.[{extra}]'" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    doctor = installed.run("sbnotebook", "doctor")
    assert doctor.returncode == 0, doctor.stdout
    for extra in ("spark", "lab"):
        assert f".[{extra}]" in doctor.stdout


def test_the_extras_bring_all_the_rest(complete: Installed) -> None:
    doctor = complete.run("sbnotebook", "doctor")
    assert (doctor.returncode, doctor.stdout.count(" good ")) == (0, 6), doctor.stdout
    demo = complete.run("sbnotebook", "demo", "--messages", "200")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    lab = complete.run("sbnotebook", "lab", "tutorials", "--", "--version")
    assert lab.returncode == 0, lab.stderr
    assert (complete.home / "tutorials" / "01_peek_lock_settle.ipynb").is_file()


def test_spark_finds_the_data_source_of_the_wheel(complete: Installed) -> None:
    shown = complete.ipython(
        "%load_ext sbnotebook",
        "%sb_connect emulator",
        "%sb_spark orders --into orders",
        "orders.select('body_text').collect()",
    )
    assert "[Row(body_text='hello')]" in shown
