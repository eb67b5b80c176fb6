from __future__ import annotations

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError


def number(body: bytes) -> dict[str, int]:
    return {"n": int(body.decode("utf-16"))}


def test_peek_decodes_before_it_filters(namespace: Namespace) -> None:
    namespace.create_queue("decoded")
    entity = namespace.entity("decoded")
    entity.send([*(str(n).encode("utf-16") for n in range(5)), b"\xff"])
    found = entity.peek(2, decode=number, where="(body_json->>'$.n')::int > 1")
    assert found.to_arrow().column("body_text").to_pylist() == ['{"n":2}', '{"n":3}']
    assert [message.body.decode("utf-16") for message in found] == ["2", "3"]
    (damaged,) = entity.peek(decode=number, where="decode_error is not null").to_pandas()["decode_error"]
    assert damaged.startswith("UnicodeDecodeError: ")
    assert "decode_error" in entity.peek(decode=number).as_text()
    assert len(entity.peek(decode=number).where("decode_error is null")) == 5
    entity.resubmit(found).apply().raise_for_failures()
    assert entity.peek().to_arrow().column("body").to_pylist()[-2:] == [str(n).encode("utf-16") for n in (2, 3)]


def test_an_entity_without_messages_has_the_column_of_errors(namespace: Namespace) -> None:
    namespace.create_queue("nothing-to-decode")
    entity = namespace.entity("nothing-to-decode")
    assert len(entity.peek(decode=number, where="decode_error is null")) == 0
    assert len(entity.peek(decode=number).where("decode_error is null")) == 0
    with pytest.raises(ConfigurationError, match="There is no decoder 'numbr'"):
        entity.peek(decode="numbr")
