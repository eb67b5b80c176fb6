"""A standalone cluster of Spark whose machines share nothing but the network: a master, two workers and a driver.

Each machine is a folder with an environment, a home and a working directory of its own. The environment holds the built
wheel, and finds the packages that sbnotebook needs where this Python has them, but not this checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Final
from zipfile import ZipFile

import psutil
import pyspark

__all__ = ["Cluster", "Machine", "built_wheel", "end", "running_cluster"]

ROOT: Final = Path(__file__).resolve().parents[2]
JOBS: Final = Path(__file__).parent / "jobs"
SPARK: Final = Path(pyspark.__file__).parent
WORKERS: Final = 2
_AT: Final = re.compile(r"Starting Spark master at (spark://[0-9.:]+)")
_REGISTERED: Final = re.compile(r"Successfully registered with (master)")
_SETTINGS: Final = (
    "SBNOTEBOOK",
    "SERVICEBUS",
    "SPARK",
    "PYSPARK",
    "PYTHON",
    "XDG",
    "IPYTHON",
    "JUPYTER",
    "VIRTUAL_ENV",
)
_PATIENCE: Final = 300.0
"""Seconds after which something hangs."""


@dataclass(frozen=True)
class Machine:
    """A machine, as far as a folder can be one.

    Args:
        folder: its own.
    """

    folder: Path

    @classmethod
    def made(cls, folder: Path, wheel: Path) -> Machine:
        """Make one, with the wheel in its environment."""
        machine = cls(folder)
        machine.home.mkdir(parents=True)
        venv.create(folder / "environment", symlinks=True)
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder / "environment")}))
        with ZipFile(wheel) as content:
            content.extractall(packages)
        # Python reads no .pth files in a folder that a .pth file names, so the checkout is not found by this.
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return machine

    @property
    def home(self) -> Path:
        """The home of its user."""
        return self.folder / "home"

    @property
    def programs(self) -> Path:
        """The folder with its Python."""
        return self.folder / "environment" / "bin"

    @property
    def log(self) -> Path:
        """The output of its processes."""
        return self.folder / "log"

    def environment(self) -> dict[str, str]:
        """The environment of its processes: nothing of this checkout, and its own ``python`` first."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
        own = {
            "HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{kept['PATH']}",
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "JDK_JAVA_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={self.home}",
            # Looked up on the PATH of each machine.
            "PYSPARK_PYTHON": "python",
        }
        return kept | own


@dataclass
class Cluster:
    """A master with two workers of a core each, and a third machine for drivers.

    Args:
        address: of the master.
        workers: machines.
        driver: a machine.
        start_worker: starts the process of a worker.
    """

    address: str
    workers: Sequence[Machine]
    driver: Machine
    start_worker: Callable[[Machine], subprocess.Popen[bytes]]

    def __post_init__(self) -> None:
        """Start the workers."""
        self._processes = [self.start_worker(worker) for worker in self.workers]

    def start(self, job: str, /, *settings: str, **environment: str) -> subprocess.Popen[str]:
        """Start a driver on its machine.

        Args:
            job: a file in the folder of jobs.
            settings: of Spark, as ``name=value``.
            environment: more variables for the driver.
        """
        given = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.ui.enabled": "false"}
        given |= {name: value for name, _, value in (each.partition("=") for each in settings)}
        arguments = " ".join(f"--conf {name}={value}" for name, value in given.items())
        submit = {"PYSPARK_SUBMIT_ARGS": f"--master {self.address} {arguments} pyspark-shell"}
        copyfile(JOBS / job, self.driver.home / job)
        return subprocess.Popen(
            [str(self.driver.programs / "python"), job],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.driver.home,
            env=self.driver.environment() | submit | environment,
        )

    def run(self, job: str, /, *settings: str, **environment: str) -> tuple[str, str]:
        """Run a driver to its end; return what it printed, and what it complained about.

        Raises:
            AssertionError: it failed.
        """
        process = self.start(job, *settings, **environment)
        try:
            printed, complaints = process.communicate(timeout=_PATIENCE)
        finally:
            end(process)
        assert process.returncode == 0, complaints
        return printed, complaints

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run: a Java below each worker's."""
        alive = [each for each in self._processes if each.poll() is None]
        return [child for each in alive for child in psutil.Process(each.pid).children()]

    def replace_dead_workers(self) -> None:
        """Start workers again that were killed."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self.start_worker(self.workers[number])


def built_wheel(folder: Path) -> Path:
    """Build the wheel of this tree, with the locked hatchling, which needs no network.

    Args:
        folder: where to; an empty one.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "-t", "wheel"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=_PATIENCE)
    (wheel,) = folder.glob("*.whl")
    return wheel


@contextmanager
def running_cluster(folder: Path, wheel: Path) -> Generator[Cluster]:
    """Run a cluster until the block ends.

    Args:
        folder: an empty one.
        wheel: for all machines.
    """
    workers = [Machine.made(folder / f"worker{number}", wheel) for number in range(WORKERS)]
    driver = Machine.made(folder / "driver", wheel)
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = stack.enter_context(_daemon(driver, f"{package}.master.Master", "--port", "0"))
        address = _said(_AT, driver, master)

        def start(worker: Machine) -> subprocess.Popen[bytes]:
            given = ["--cores", "1", "--memory", "600m", "--work-dir", str(worker.folder / "work"), address]
            process = stack.enter_context(_daemon(worker, f"{package}.worker.Worker", *given))
            _said(_REGISTERED, worker, process)
            return process

        yield Cluster(address, workers, driver, start)


@contextmanager
def _daemon(machine: Machine, name: str, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """Run one of Spark's daemons, by Spark's own script."""
    command = [str(SPARK / "bin" / "spark-class"), name, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
    with machine.log.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=machine.home, env=machine.environment(), start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def _said(what: re.Pattern[str], machine: Machine, process: subprocess.Popen[bytes]) -> str:
    """Wait until the log of a machine has this, and return the group in it."""
    until = time.monotonic() + _PATIENCE
    while (found := what.search(machine.log.read_text())) is None:
        assert process.poll() is None, machine.log.read_text()
        assert time.monotonic() < until, machine.log.read_text()
        time.sleep(0.05)
    return found[1]


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process, and those that it started; close its pipes."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
