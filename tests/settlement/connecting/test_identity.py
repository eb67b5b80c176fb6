from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.settlement import Connection
from sbnotebook.settlement.connecting import identity
from sbnotebook.settlement.connecting.identity import account_of, signed_in_as

pytestmark = pytest.mark.anyio

HOST = "shop.servicebus.windows.net"
SECRET = "c2VjcmV0a2V5"


def token(claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.{SECRET}"


class Credential:
    """Gives a token, or fails."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.scopes: list[str] = []

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        self.scopes += scopes
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(token=self.answer, expires_on=0)


@pytest.mark.parametrize(
    ("secret_part", "who"),
    [
        (f"SharedAccessKeyName=reader;SharedAccessKey={SECRET}", "the key reader"),
        (f"SharedAccessSignature=SharedAccessSignature sr=x&sig={SECRET}&se=1&skn=reader", "the key reader"),
        (f"SharedAccessSignature=SharedAccessSignature sr=x&sig={SECRET}&se=1", "a shared access signature"),
        (f"SharedAccessKeyName=a\x1b[31m;SharedAccessKey={SECRET}", "the key 'a\\x1b[31m'"),
    ],
)
async def test_a_key_is_told_by_its_name_only(secret_part: str, who: str) -> None:
    assert await signed_in_as(Connection(f"Endpoint=sb://{HOST}/;{secret_part}")) == who


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
async def test_an_account_is_told_by_the_claims_of_its_token(claims: object, who: str) -> None:
    credential = Credential(token(claims))
    assert await signed_in_as(Connection.with_credential(HOST, credential)) == who
    assert credential.scopes == ["https://servicebus.azure.net/.default"]


def test_a_token_of_endless_lists_names_no_account() -> None:
    payload = base64.urlsafe_b64encode(b"[" * 300_000).decode()
    assert account_of(f"e30.{payload}.{SECRET}") == "an account that its token does not name"


async def test_a_sign_in_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_SIGNED_IN_WITHIN", 0.1)

    class Slow(Credential):
        async def get_token(self, *_: str, **__: Any) -> Any:
            await anyio.sleep_forever()

    said = await signed_in_as(Connection.with_credential(HOST, Slow("")))
    assert said == "no identity yet: signing in took longer than 0 seconds"


@given(st.text())
def test_whatever_a_token_is_it_is_not_shown(text: str) -> None:
    assert account_of(text) == account_of(f"a.{text}") == "an account that its token does not name"


@pytest.mark.parametrize(
    ("error", "who"),
    [
        (ValueError(f"no\nSharedAccessKey={SECRET}"), "no identity: ValueError: no SharedAccessKey=***"),
        (ValueError(), "no identity: ValueError: "),
        (ValueError("x" * 500), f"no identity: ValueError: {'x' * 200}"),
        (
            ValueError("DefaultAzureCredential failed to retrieve …"),
            "no identity: found no account here; sign in with az login, or give connect(…) a credential",
        ),
    ],
)
async def test_who_is_not_signed_in_is_told_why(error: Exception, who: str) -> None:
    assert await signed_in_as(Connection.with_credential(HOST, Credential(error))) == who
