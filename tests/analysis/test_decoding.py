from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from sbnotebook.analysis import decoding
from sbnotebook.analysis.decoders import Labels
from sbnotebook.analysis.decoding import decoder, decoder_for
from sbnotebook.errors import ConfigurationError, MissingExtraError

NOTHING = Labels(None, None, {})
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "carrier", "type": "string"}]}'


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_REGISTERED", {})


def test_a_decoder_is_found_by_its_name_or_its_file(tmp_path: Path) -> None:
    made = decoder("orders", bytes.decode)
    assert decoder_for("orders") is made
    assert decoder_for(made) is made
    assert decoder_for(bytes.decode).read(b"x", NOTHING) == "x"
    (tmp_path / "order.avsc").write_text(SCHEMA)
    assert decoder_for(f"avro:{tmp_path}/order.avsc").read(b"\x04UA", NOTHING) == {"carrier": "UA"}


def test_a_package_brings_decoders_as_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_orders.py").write_text("def order(body): return {'order': body.decode()}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    points = EntryPoints(
        EntryPoint(name, target, decoding.GROUP)
        for name, target in (("acme", "acme_orders:order"), ("lost", "acme_nowhere:order"))
    )
    monkeypatch.setattr(decoding, "entry_points", points.select)
    assert decoder_for("acme").read(b"7", NOTHING) == {"order": "7"}
    with pytest.raises(ConfigurationError, match="'lost' cannot be imported: No module named 'acme_nowhere'"):
        decoder_for("lost")


def test_an_unknown_name_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"no decoder 'orders': make it with sbnotebook.decoder"):
        decoder_for("orders")
    decoder("orders", bytes.decode)
    with pytest.raises(ConfigurationError, match="did you mean orders"):
        decoder_for("order")
    with pytest.raises(ConfigurationError, match="cannot be the name of a decoder"):
        decoder("avro:x", bytes.decode)


@pytest.mark.parametrize(
    ("spec", "package", "extra"), [("avro:x", "fastavro", "avro"), ("protobuf:x", "google.protobuf", "protobuf")]
)
def test_a_missing_extra_is_named(spec: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"the extra {extra}"):
        decoder_for(spec)
