"""A key that you type in any documented way is neither in IPython's history nor in its database."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbnotebook.magics.connection_magics import without_keys
from tests.kernels import ran, running_kernel

KEY = base64.b64encode(bytes(range(100, 132))).decode()
SHORT = "c2hvcnQta2V5LXBsYW50ZWQ"
BEGIN = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey="


def cells_with(key: str) -> list[str]:
    """Each documented way to give a key: connect.md, databricks.md, spark-options.md and the API; and split ones."""
    half = len(key) // 2
    return [
        f"%sb_connect {BEGIN}{key}",
        f"%sb_connect {BEGIN}{key};UseDevelopmentEmulator=true --write",
        f"sbnotebook.connect('{BEGIN}{key}')",
        f'namespace = sbnotebook.connect(\n    "{BEGIN}"\n    "{key}",  # from the portal\n    write=False,\n)',
        f"Connection('{BEGIN[:-10]}' + 'AccessKey=' + \\\n    '{key[:half]}' '{key[half:]}')",
        f'connect("".join(["{BEGIN}", "{key[:half]}", "{key[half:]}"]))',
        f'connect("{BEGIN}{{}}".format("{key}"))',
        f'connect("{BEGIN}%s" % "{key}")',
        f'connect("""{BEGIN}\\\n{key}""")',
        f"administration_client('{BEGIN}{key};EntityPath=orders')",
        f"os.environ['SHOP'] = \"{BEGIN}{key}\"\n%sb_connect env:SHOP",
        f"%env SBNOTEBOOK_CONNECTION={BEGIN}{key}",
        f"!export SBNOTEBOOK_CONNECTION='{BEGIN}{key}'",
        f"%%bash\nexport SBNOTEBOOK_CONNECTION='{BEGIN}{key}'",
        f"register(spark, '{BEGIN}{key}')",
        f"spark.read.format('servicebus').option('connectionString', '{BEGIN}{key}').option('entity', 'orders').load()",
        f'spark.sql("""CREATE TABLE t USING servicebus OPTIONS (connectionString \'{BEGIN}{key}\')""")',
        f"credential = AzureNamedKeyCredential('root', '{key}')",
        f"AzureNamedKeyCredential(\n    os.environ.get('NAME', 'root'),\n    '{key[:half]}' + '{key[half:]}',\n)",
        f"AzureSasCredential('SharedAccessSignature sr=x&sig={key}&se=1&skn=root')",
        f"ClientSecretCredential(tenant_id='t', client_id='c', client_secret='{key}')",
        f"this is no Python: {BEGIN}{key}",
    ]


@pytest.mark.parametrize("key", [KEY, SHORT], ids=["a key of Azure's", "a shorter one"])
def test_a_cell_is_cleaned_of_its_key(key: str) -> None:
    half = len(key) // 2
    for cell in cells_with(key):
        clean = without_keys(cell)
        assert [part for part in (key[:half], key[half:].rstrip("=")) if part in clean] == [], clean
        assert without_keys(clean).count("***") >= 1


@pytest.mark.parametrize(
    "cell",
    [
        "kept = 'as it is; {} = $x'  # don't",
        "orders.send(['SharedAccessKey', 'password'])",
        "names = ['orders', 'bills'] + [\"events\"]",
        "credential = DefaultAzureCredential()\nprint('orders')",
        'text = """a\n"quoted"\ntext""" + "more"',
        "%sb_peek orders/$dlq --where \"subject = 'order'\"",
    ],
)
def test_a_cell_without_a_key_is_kept(cell: str) -> None:
    assert without_keys(cell) == cell


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Any]:
    homes = {"XDG_DATA_HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    with running_kernel(env={**os.environ, **homes}, cwd=str(tmp_path)) as (_, client):
        yield client


def _run(client: Any, cell: str, answer: str | None = None) -> str:
    return "".join(shown.get("text", "") for shown in ran(client, cell, answer)[1])


def test_no_way_to_connect_leaves_its_key_in_the_history(kernel: Any, tmp_path: Path) -> None:
    assert KEY in _run(kernel, f"print('{KEY}')"), "before the magics are loaded it is in the history"
    _run(kernel, "get_ipython().history_manager.writeout_cache()")
    database = tmp_path / "ipython" / "profile_default" / "history.sqlite"
    assert KEY.encode() in database.read_bytes()
    _run(kernel, "%load_ext sbnotebook")
    for cell in cells_with(KEY):
        _run(kernel, cell)
    _run(kernel, "%sb_connect --prompt", answer=f"{BEGIN}{KEY}")
    shown = _run(
        kernel, "%history -n -t\nprint(In, _i, _ii, _iii, [globals()[each] for each in dir() if each[:2] == '_i'])"
    )
    assert "%sb_connect --prompt" in shown
    assert "SharedAccessKey=***" in shown
    assert KEY not in shown
    _run(kernel, "get_ipython().history_manager.writeout_cache()")
    written = {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert b"SharedAccessKey=***" in written["history.sqlite"]
    assert [name for name, content in written.items() if KEY.encode() in content or KEY[:22].encode() in content] == []
