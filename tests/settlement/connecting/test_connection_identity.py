from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.model.connection_strings import read_connection_string
from sbnotebook.settlement.connecting.connection import account_of, key_of

HOST = "shop.servicebus.windows.net"
SECRET = "c2VjcmV0a2V5"


def token(claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.{SECRET}"


@pytest.mark.parametrize(
    ("secret_part", "who"),
    [
        (f"SharedAccessKeyName=reader;SharedAccessKey={SECRET}", "the key reader"),
        (f"SharedAccessSignature=SharedAccessSignature sr=x&sig={SECRET}&se=1&skn=reader", "the key reader"),
        (f"SharedAccessSignature=SharedAccessSignature sr=x&sig={SECRET}&se=1", "a shared access signature"),
        (f"SharedAccessKeyName=a\x1b[31m;SharedAccessKey={SECRET}", "the key 'a\\x1b[31m'"),
    ],
)
def test_a_key_is_told_by_its_name_only(secret_part: str, who: str) -> None:
    assert key_of(read_connection_string(f"Endpoint=sb://{HOST}/;{secret_part}")) == who


@pytest.mark.parametrize(
    ("claims", "who"),
    [
        ({"upn": "anna@example.org", "appid": "1"}, "anna@example.org"),
        ({"unique_name": "ben@example.org", "upn": ""}, "ben@example.org"),
        ({"appid": "12-34", "oid": "5"}, "the application 12-34"),
        ({"sub": "only this"}, "an account that its token does not name"),
        ({"upn": 5}, "an account that its token does not name"),
        (["upn"], "an account that its token does not name"),
        ({"upn": "x" * 500}, "x" * 100),
    ],
)
def test_an_account_is_told_by_the_claims_of_its_token(claims: object, who: str) -> None:
    assert account_of(token(claims)) == who


def test_a_token_of_endless_lists_names_no_account() -> None:
    payload = base64.urlsafe_b64encode(b"[" * 300_000).decode()
    assert account_of(f"e30.{payload}.{SECRET}") == "an account that its token does not name"


@given(st.text())
def test_whatever_a_token_is_it_is_not_shown(text: str) -> None:
    assert account_of(text) == account_of(f"a.{text}") == "an account that its token does not name"
