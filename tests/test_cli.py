from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sbnotebook.cli import app
from sbnotebook.client import connect
from sbnotebook.emulator import running

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SBNOTEBOOK = Path(sys.executable).with_name("sbnotebook")


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # Wide enough that no table cell is wrapped.
    environment = {**os.environ, "COLUMNS": "200", **variables}
    command = [str(SBNOTEBOOK), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_help_lists_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    for command in ("demo", "emulator", "probe", "lab", "triage", "report", "doctor"):
        assert command in result.stdout


def test_help_imports_no_command() -> None:
    script = "import sys, sbnotebook.cli; print([name for name in sys.modules if name.startswith('sbnotebook.')])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['sbnotebook.lazy', 'sbnotebook.errors', 'sbnotebook.cli']"


def test_version_is_shown() -> None:
    shown = run("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"sbnotebook {metadata.version('sbnotebook')}\n"


def test_a_command_reads_its_own_options() -> None:
    shown = run("demo", "--help")
    assert shown.returncode == 0
    assert "Usage: sbnotebook demo [OPTIONS]" in shown.stdout
    assert "--messages" in shown.stdout
    refused = run("demo", "--messages", "none")
    assert refused.returncode == 2
    assert "Invalid value for '--messages'" in refused.stderr


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert commands == re.findall(r"^\| `sbnotebook (\w+)", page, re.MULTILINE)


@pytest.mark.parametrize(
    "command", [["report"], ["config"], ["triage", "orders/$dlq"], ["probe", "--yes"]], ids=" ".join
)
def test_a_host_that_cannot_be_reached_is_a_sentence(command: list[str], tmp_path: Path) -> None:
    refused = run(*command, "127.0.0.1", XDG_DATA_HOME=str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr == "sbnotebook: Nothing listens at 127.0.0.1: check the name, and the firewall.\n"


def test_report_prints_writes_and_fails_above(tmp_path: Path) -> None:
    with running(queues=["orders"]) as emulator, connect(emulator.connection_string) as namespace:
        orders = namespace.entity("orders")
        orders.send([{"n": 1}, {"n": 2}], show_progress=False).raise_for_failures()
        with orders.lock(2) as batch:
            batch.dead_letter(reason="Late")
        found = {"TARGET": emulator.connection_string, "XDG_DATA_HOME": str(tmp_path / "data")}
        files = "-o", str(tmp_path / "r.md"), "-o", str(tmp_path / "r.html")
        above = run("report", "env:TARGET", "--fail-above", "1", *files, **found)
        fine = run("report", "env:TARGET", "--fail-above", "2", "--entity", "orders", **found)
        wrong = run("report", "env:TARGET", "--entity", "order", **found)
    assert above.returncode == 1
    assert "orders/$dlq" in above.stdout
    assert above.stderr == "sbnotebook: More than 1 dead letters: orders/$dlq (2).\n"
    assert "| orders/$dlq | 2 |" in (tmp_path / "r.md").read_text()
    assert "orders/$dlq" in (tmp_path / "r.html").read_text()
    assert (fine.returncode, fine.stderr) == (0, "")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        "sbnotebook: There is no queue, topic or subscription 'order' (did you mean orders?)"
    )


def test_a_snapshot_is_compared_and_starts_an_emulator(tmp_path: Path) -> None:
    file = tmp_path / "shop.sbcopy"
    with running(queues=["orders"]) as emulator:
        found = {"TARGET": emulator.connection_string, "XDG_DATA_HOME": str(tmp_path / "data")}
        written = run("snapshot", str(file), "env:TARGET", **found)
        same = run("compare", "env:TARGET", str(file), **found)
        emulator.create_queue("invoices")
        other = run("compare", "env:TARGET", str(file), **found)
    assert (written.returncode, same.returncode, other.returncode) == (0, 0, 1)
    assert written.stdout.endswith(f"Start it with sbnotebook emulator --from {file}.\n")
    assert "No difference" in same.stdout
    assert "invoices" in other.stdout
    command = [str(SBNOTEBOOK), "emulator", f"--from={file}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with connect(process.stdout.readline().strip()) as namespace:
            assert [str(each.address) for each in namespace.entities()] == ["orders"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_doctor_finds_this_machine_well() -> None:
    result = run("doctor")
    assert result.returncode == 0, result.stdout
    for subject in ("Python", "PySpark", "Java", "Widgets", "Connection"):
        assert subject in result.stdout


def test_doctor_fails_and_says_how_to_mend() -> None:
    result = run("doctor", JAVA_HOME="/nonexistent", SBNOTEBOOK_CONNECTION="nowhere")
    assert result.returncode == 1
    assert "install Java 17 or newer" in result.stdout
    assert "Unset SBNOTEBOOK_CONNECTION" in result.stdout


def test_doctor_shows_names_in_brackets_as_they_are() -> None:
    result = run("doctor", JAVA_HOME="/[bold]x[/bold]", SBNOTEBOOK_CONNECTION="nowhere")
    assert "JAVA_HOME is /[bold]x[/bold]" in result.stdout


def test_doctor_cuts_no_name_off_in_a_narrow_terminal() -> None:
    result = run("doctor", COLUMNS="60", SBNOTEBOOK_CONNECTION="nowhere")
    assert "…" not in result.stdout


def test_an_error_of_our_own_is_one_line() -> None:
    script = (
        "import sbnotebook.cli as cli, sbnotebook\n"
        "@cli.app.command()\n"
        "def fail() -> None: raise sbnotebook.ConfigurationError('Do this instead.')\n"
        "cli.main()"
    )
    result = subprocess.run([sys.executable, "-c", script, "fail"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "sbnotebook: Do this instead.\n")


def test_a_triage_refuses_a_secret_that_everybody_would_see() -> None:
    secret = "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=aGlkZGVu"
    refused = run("triage", "orders/$dlq", secret)
    assert refused.returncode == 2
    assert "env:VARIABLE" in refused.stderr
    assert "aGlkZGVu" not in refused.stderr + refused.stdout


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real JupyterLab in a folder that has one changed tutorial."""
    (tmp_path / "01_peek_lock_settle.ipynb").write_text("mine")
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--port-retries=0")
    command = [str(SBNOTEBOOK), "lab", str(tmp_path), "--", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:  # Jupyter loses a signal that comes while it writes a line of its log.
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)


def test_lab_serves_a_copy_of_tutorials_and_keeps_changes(tmp_path: Path, lab: subprocess.Popen[str]) -> None:
    assert lab.stderr is not None
    served = next(line for line in lab.stderr if "Serving notebooks from local directory" in line)
    assert served.rstrip().endswith(str(tmp_path))
    tutorials = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert tutorials <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "01_peek_lock_settle.ipynb").read_text() == "mine"


def test_lab_takes_options_and_runs_no_files_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sbnotebook-tutorials"
    folder.mkdir()
    for name in ("jupyterlab", "json5"):
        for place in (tmp_path, folder):
            (place / f"{name}.py").write_text("print('ran')")
    result = subprocess.run(
        [str(SBNOTEBOOK), "lab", "--", "--version"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert re.fullmatch(r"[\d.]+\n", result.stdout)
    assert len(list(folder.glob("*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))


def test_lab_refuses_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("lab", str(tmp_path / "file"))
    assert refused.returncode == 2
    assert refused.stderr == f"sbnotebook: {tmp_path / 'file'} cannot be used: File exists. Say another folder.\n"


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root can give files to another user")
def test_lab_refuses_a_folder_or_link_of_another_user(tmp_path: Path) -> None:
    own, foreign, link = tmp_path / "own", tmp_path / "foreign", tmp_path / "link"
    own.mkdir()
    foreign.mkdir()
    link.symlink_to(own)
    os.chown(foreign, 65534, 65534)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    for folder in (foreign, link):
        refused = run("lab", str(folder), "--", "--version")
        assert refused.returncode == 2
        assert (
            refused.stderr == f"sbnotebook: {folder} belongs to another user of this machine: choose one of your own.\n"
        )
    assert not list(own.iterdir())
