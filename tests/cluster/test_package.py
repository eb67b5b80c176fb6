"""The ways to send the package to workers that lack it."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.cluster.nodes import Cluster, Machine, running_cluster

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Spark's scripts here are those of Unix"),
    pytest.mark.thorough,
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A packed environment with the wheel."""
    folder = tmp_path_factory.mktemp("packed")
    packed = folder / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(Machine.made(folder / "machine", wheel).programs.parent, arcname=".")
    return packed


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Cluster]:
    """A cluster whose workers have all packages but ours."""
    with running_cluster(tmp_path_factory.mktemp("bare"), wheel) as cluster:
        for worker in cluster.workers:
            base = str(worker.programs.parent)
            packages = Path(sysconfig.get_path("purelib", "venv", {"base": base}))
            for each in (packages / "sbnotebook", packages / "pyspark_servicebus"):
                shutil.rmtree(each)
        yield cluster


def counted(cluster: Cluster, emulator: RunningEmulator, *settings: str, **environment: str) -> str:
    printed, _ = cluster.run("count.py", *settings, SERVICEBUS=emulator.connection_string, **environment)
    return printed.strip().splitlines()[-1]


def test_missing_package_is_named_in_a_sentence(bare: Cluster, emulator: RunningEmulator) -> None:
    said = counted(bare, emulator)
    assert said.startswith("RuntimeError: The Python of this Spark worker, ")
    assert "install sbnotebook on every node" in said


@pytest.mark.parametrize("name", [None, "sbnotebook.zip"])
def test_wheel_in_py_files_is_found(
    bare: Cluster, emulator: RunningEmulator, wheel: Path, tmp_path: Path, name: str | None
) -> None:
    sent = shutil.copy(wheel, tmp_path / (name or wheel.name))
    assert counted(bare, emulator, f"spark.submit.pyFiles={sent}") == "0"


def test_packed_environment_is_used_if_the_driver_has_it_too(
    bare: Cluster, emulator: RunningEmulator, environment: Path
) -> None:
    settings = f"spark.archives={environment}#environment"
    python = "./environment/bin/python"
    assert "and there is none here: unpack or link it" in counted(bare, emulator, settings, PYSPARK_PYTHON=python)
    (bare.driver.home / "environment").symlink_to(bare.driver.programs.parent)
    assert counted(bare, emulator, settings, PYSPARK_PYTHON=python) == "0"
