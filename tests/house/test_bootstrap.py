"""The set-up script on machines that lack something, by real processes and stand-ins for the system's programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bootstrap

ROOT = Path(__file__).resolve().parents[2]
SHELL = shutil.which("sh") or "/bin/sh"


class Machine:
    """A folder of programs that is the whole PATH of the set-up script."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        self.variables: dict[str, str] = {}
        self.programs.joinpath("env").symlink_to(shutil.which("env") or "env")
        # The user of the tests: root needs no sudo, others have one without a prompt.
        self.has("sudo", 'shift; [ "$1" = true ] || exec "$@"')

    def has(self, name: str, script: str) -> None:
        """Add a program; `$BIN` in its script is the folder of all programs."""
        program = self.programs / name
        program.write_text(f"#!{SHELL}\nBIN={self.programs}\n{script}\n")
        program.chmod(0o755)

    def has_apt_get(self, name: str, script: str, *, first: str = "") -> None:
        """Add an apt-get that knows one program, and logs what it is asked."""
        self.has(f"{name}.package", script)
        install = f"""case "$*" in *" install "*) /bin/mv $BIN/{name}.package $BIN/{name};; esac"""
        self.has("apt-get", f"""echo "$@" >> $BIN/apt.log\n{first}\n{install}""")

    def has_java(self, version: str) -> None:
        self.has("java", java(version))

    def set_up(self, *parts: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.programs), **self.variables}
        command = [sys.executable, "-m", "scripts.bootstrap", *parts]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
        )


def java(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_done_where_java_is_new_enough(machine: Machine) -> None:
    machine.has_java("17.0.15")
    result = machine.set_up("java")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_java_is_installed_where_it_is_missing(machine: Machine) -> None:
    machine.has_apt_get("java", java("21.0.1"))
    result = machine.set_up("java")
    assert result.returncode == 0, result.stderr
    asked = (machine.programs / "apt.log").read_text().splitlines()
    assert asked[0].endswith(" update")
    assert asked[1].endswith(" install openjdk-17-jre-headless")
    assert all(" -y " in line for line in asked)


def test_the_next_package_is_tried_when_the_first_is_not_to_be_had(machine: Machine) -> None:
    refuse = "case \"$*\" in *openjdk-17*) echo 'Unable to locate package' >&2; exit 100;; esac"
    machine.has_apt_get("java", java("21.0.1"), first=refuse)
    result = machine.set_up("java")
    assert result.returncode == 0, result.stderr
    assert "default-jre-headless" in result.stdout


def test_bootstrap_without_package_manager_says_what_to_install(machine: Machine) -> None:
    result = machine.set_up("java")
    assert result.returncode == 1
    assert result.stderr == (
        "setup: Java 17 or newer is missing and could not be installed: install it by hand "
        "(Debian and Ubuntu: openjdk-17-jre-headless or default-jre-headless).\n"
    )


def test_an_old_java_home_is_named(machine: Machine, tmp_path: Path) -> None:
    machine.has_java("1.8.0_392")
    machine.variables["JAVA_HOME"] = str(tmp_path)
    result = machine.set_up("java")
    assert result.returncode == 1
    assert result.stderr.startswith(f"setup: JAVA_HOME is {tmp_path}, but Spark needs Java 17 or newer there")
    assert not (machine.programs / "apt.log").exists()


def test_any_chromium_will_do(machine: Machine) -> None:
    machine.has("google-chrome", "")
    assert machine.set_up("chromium").returncode == 0


@pytest.mark.parametrize(("part", "program"), [("chromium", "chromium"), ("node", "npm")])
def test_a_program_is_installed_where_it_is_missing(machine: Machine, part: str, program: str) -> None:
    machine.has_apt_get(program, "")
    result = machine.set_up(part)
    assert result.returncode == 0, result.stderr
    assert (machine.programs / program).exists()


def test_another_archive_of_vscodes_script_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = bootstrap.vscode_archive(tmp_path)
    machine.has("npm", f'echo "$@" > $BIN/npm.log; echo other > {archive}')
    monkeypatch.setenv("PATH", str(machine.programs))
    with pytest.raises(bootstrap.BootstrapError, match="npm gave another archive of @vscode/jupyter-ipywidgets8@"):
        bootstrap.set_up_vscode(tmp_path)
    assert not archive.exists()
    asked = (machine.programs / "npm.log").read_text()
    assert f"--pack-destination={archive.parent} {bootstrap.VSCODE_PACKAGE}" in asked


def test_all_parts_but_those_asked_for_by_name_are_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    parts = {name: lambda name=name: done.append(name) for name in bootstrap.PARTS}
    monkeypatch.setattr(bootstrap, "PARTS", parts)
    assert bootstrap.main([]) == 0
    assert done == ["environment", "java", "chromium", "vscode"]


def test_an_unknown_part_is_refused(machine: Machine) -> None:
    result = machine.set_up("browser")
    assert result.returncode == 2
    assert "there is no part browser" in result.stderr


def test_an_old_python_is_refused_with_the_version_that_is_needed() -> None:
    with pytest.raises(bootstrap.BootstrapError, match=r"Python 3\.9, but 3\.11 or newer"):
        bootstrap.check_python((3, 9))


def project(folder: Path) -> Path:
    """A copy of the files that decide on the installed packages."""
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_a_change_of_a_lock_is_noticed(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    before = bootstrap.lock_digest(root)
    assert bootstrap.lock_digest(root) == before
    with (root / "requirements" / "dev.txt").open("a") as lock:
        lock.write("# changed\n")
    assert bootstrap.lock_digest(root) != before


def test_a_second_run_does_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path / "project")
    programs = root / ".venv" / "bin"
    programs.mkdir(parents=True)
    programs.joinpath("python").symlink_to(sys.executable)
    (root / ".venv" / ".set-up").write_text(bootstrap.lock_digest(root))
    bootstrap.set_up_environment(root)
    assert capfd.readouterr() == ("", "")


def test_a_dead_interpreter_is_noticed(tmp_path: Path) -> None:
    dead = tmp_path / "python"
    dead.symlink_to(tmp_path / "gone")
    assert not bootstrap.runs(dead)
    assert bootstrap.runs(Path(sys.executable))


@pytest.mark.thorough
def test_an_environment_is_created_from_this_python(tmp_path: Path) -> None:
    bootstrap.create_environment(tmp_path / ".venv")
    assert bootstrap.runs(tmp_path / ".venv" / "bin" / "python")
