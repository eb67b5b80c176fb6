"""The wheel and the source distribution: their files and metadata, and an installation from them."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from shutil import unpack_archive
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import sbnotebook

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sbnotebook", "pyspark_servicebus")
NAME = f"sbnotebook-{sbnotebook.__version__}"
LARGEST = 1_500_000
# A wheel has only code and the files named here.
SUFFIXES = {".py", ".typed", ".js", ".css", ".html", ".properties", ".ipynb", ".md"}


@dataclass(frozen=True)
class Distributions:
    """The distributions, built once for all tests here."""

    wheel: Path
    sdist: Path
    unpacked: Path
    """The source distribution's folder."""


def build(source: Path, to: Path, *kinds: str) -> None:
    """Build with the locked hatchling, which needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(to), *kinds]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The source distribution of this tree, and the wheel that is built from it, as pip would."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, folder, "-t", "sdist")
    sdist = folder / f"{NAME}.tar.gz"
    unpack_archive(sdist, folder, filter="data")
    build(folder / NAME, folder, "-t", "wheel")
    return Distributions(folder / f"{NAME}-py3-none-any.whl", sdist, folder / NAME)


@pytest.fixture(scope="module")
def wheel(built: Distributions) -> dict[str, bytes]:
    """The wheel's files by their names."""
    with ZipFile(built.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def in_the_tree(folder: str) -> dict[str, bytes]:
    """The files of a folder of this tree by the names that they have in a wheel."""
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_wheel_holds_packages_and_tutorials_only(wheel: dict[str, bytes]) -> None:
    wanted = {name: sha256(data).hexdigest() for folder in PACKAGES for name, data in in_the_tree(folder).items()}
    tutorials = {name: data for name, data in in_the_tree("notebooks").items() if ".ipynb_checkpoints" not in name}
    wanted |= {
        name.replace("notebooks/", "sbnotebook/tutorials/"): sha256(data).hexdigest()
        for name, data in tutorials.items()
    }
    found = {name: sha256(data).hexdigest() for name, data in wheel.items() if ".dist-info/" not in name}
    assert found == wanted


def test_a_wheel_holds_only_kinds_of_files_that_are_known(wheel: dict[str, bytes]) -> None:
    files = [PurePosixPath(name) for name in wheel if ".dist-info/" not in name]
    assert {file.suffix for file in files} <= SUFFIXES
    assert not [file for file in files if {"tests", "__pycache__", ".ipynb_checkpoints"} & {*file.parts}]


@pytest.mark.parametrize(
    "name",
    [
        "sbnotebook/py.typed",
        "sbnotebook/spark/log4j2.properties",
        "sbnotebook/emulator/static/page.html",
        "sbnotebook/widgets/static/index.js",
        "sbnotebook/widgets/static/message_table.css",
        "sbnotebook/tutorials/01_peek_lock_settle.ipynb",
        "pyspark_servicebus/__init__.py",
    ],
)
def test_a_wheel_holds_what_is_no_module(wheel: dict[str, bytes], name: str) -> None:
    assert name in wheel


def test_the_tutorials_have_no_outputs(wheel: dict[str, bytes]) -> None:
    for name, data in wheel.items():
        if name.endswith(".ipynb"):
            notebook: dict[str, Any] = json.loads(data)
            code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            assert not [cell["source"] for cell in code if cell["outputs"] or cell["execution_count"]], name
            assert "widgets" not in notebook["metadata"], name


def test_source_distribution_holds_sources_and_readme(built: Distributions) -> None:
    files = {path.name for path in built.unpacked.iterdir()}
    assert files == {
        *PACKAGES, "notebooks", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", "pyproject.toml", ".gitignore"
    }  # fmt: skip


def test_both_are_small(built: Distributions) -> None:
    assert built.wheel.stat().st_size < LARGEST
    assert built.sdist.stat().st_size < LARGEST


def test_the_metadata_is_that_of_the_project(built: Distributions, wheel: dict[str, bytes]) -> None:
    written = wheel[f"{NAME}.dist-info/METADATA"]
    metadata = Metadata.from_email(written)  # which is strict
    assert built.unpacked.joinpath("PKG-INFO").read_bytes() == written
    assert (metadata.name, str(metadata.version)) == ("sbnotebook", sbnotebook.__version__)
    assert (metadata.license_expression, metadata.license_files) == ("MIT", ["LICENSE"])
    assert wheel[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert str(metadata.requires_python) == project()["requires-python"]
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text()


def test_the_extras_and_dependencies_are_those_of_the_project(wheel: dict[str, bytes]) -> None:
    metadata = Metadata.from_email(wheel[f"{NAME}.dist-info/METADATA"])
    extras = project()["optional-dependencies"]
    assert sorted(metadata.provides_extra or []) == sorted(extras)
    lines = [*project()["dependencies"], *(line for extra in extras.values() for line in extra)]
    names = {Requirement(line).name for line in lines} - {"sbnotebook"}  # an extra that names another one
    assert {requirement.name for requirement in metadata.requires_dist or []} == names


def test_pip_makes_the_command_and_pytest_finds_the_fixtures(wheel: dict[str, bytes]) -> None:
    points = wheel[f"{NAME}.dist-info/entry_points.txt"].decode().split()
    assert "\n".join(points) == (
        "[console_scripts]\nsbnotebook\n=\nsbnotebook.cli:main\n[pytest11]\nsbnotebook\n=\nsbnotebook.testing.plugin"
    )
    assert email.message_from_bytes(wheel[f"{NAME}.dist-info/WHEEL"])["Root-Is-Purelib"] == "true"


def test_the_command_of_a_wheel_copies_its_own_tutorials(built: Distributions, tmp_path: Path) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "mine"
    unpack_archive(built.wheel, installed, "zip")
    script = "import sbnotebook; print(sbnotebook.__file__); from sbnotebook.cli import main; main()"
    result = subprocess.run(
        # JupyterLab only tells its version, and starts nothing.
        [sys.executable, "-c", script, "lab", str(folder), "--", "--version"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(installed))
    tutorials = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.name for path in folder.iterdir()} == tutorials
