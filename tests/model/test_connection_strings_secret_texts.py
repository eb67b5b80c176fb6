from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.model.connection_strings import scrub

KEY = base64.b64encode(bytes(range(90, 122))).decode()
TOKEN = "SharedAccessSignature sr=sb%3A%2F%2Fshop&sig=SECRET&se=1700000000&skn=root"
SECRETS = st.binary(min_size=24, max_size=64).map(lambda raw: base64.b64encode(raw).decode())
SPELLINGS: dict[str, Callable[[str], str]] = {
    "connection string": lambda key: f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={key}",
    "followed by more": lambda key: f"SharedAccessKey={key};EntityPath=orders",
    "lower case": lambda key: f"sharedaccesskey={key}",
    "upper case": lambda key: f"SHAREDACCESSKEY={key}",
    "snake case": lambda key: f"shared_access_key={key}",
    "in words": lambda key: f"Shared Access Key: {key}",
    "with spaces": lambda key: f"SharedAccessKey = {key} ;",
    "on the next line": lambda key: f"SharedAccessKey=\n    {key}",
    "quoted": lambda key: f"SharedAccessKey='{key}'",
    "argument": lambda key: f'connect(shared_access_key="{key}")',
    "repr of a dict": lambda key: repr({"SharedAccessKey": key}),
    "repr of bytes": lambda key: repr(f"SharedAccessKey={key}".encode()),
    "repr of a repr": lambda key: repr(repr({"SharedAccessKey": f"'{key}"})),
    "json": lambda key: json.dumps({"SharedAccessKey": key}),
    "json in json": lambda key: json.dumps(json.dumps({"SharedAccessKey": key})),
    "html": lambda key: html.escape(f"SharedAccessKey='{key}'"),
    "html of json": lambda key: html.escape(json.dumps({"SharedAccessKey": key})),
    "url": lambda key: urllib.parse.quote(f"SharedAccessKey={key};EntityPath=x", safe=""),
    "url of json": lambda key: urllib.parse.quote(json.dumps({"SharedAccessKey": key}), safe=""),
    "url of a url": lambda key: urllib.parse.quote(urllib.parse.quote(f"SharedAccessKey={key}", safe=""), safe=""),
    "query": lambda key: f"https://x/?sr=a&sig={urllib.parse.quote(key, safe='')}&se=1",
    "token": lambda key: TOKEN.replace("SECRET", urllib.parse.quote(key, safe="")),
    "token in a connection string": lambda key: f"SharedAccessSignature={TOKEN.replace('SECRET', key)}",
    "storage": lambda key: f"AccountName=a;AccountKey={key}==",
    "client secret": lambda key: f"client_secret={key}&grant_type=client_credentials",
    "password": lambda key: f"password: {key}",
    "bearer": lambda key: f"Authorization: Bearer {key}",
}


def spellings_of(key: str) -> set[str]:
    return {key, urllib.parse.quote(key, safe=""), urllib.parse.quote(urllib.parse.quote(key, safe=""), safe="")}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(key=SECRETS)
def test_no_secret_survives(spelling: str, key: str) -> None:
    text = SPELLINGS[spelling](key)
    assert any(each in text for each in spellings_of(key))
    scrubbed = scrub(f"It failed: {text}, twice: {text}")
    # Not even a part of it, between what a URL writes differently.
    assert not [part for part in re.findall(r"[A-Za-z0-9]{6,}", key) if part in scrubbed]
    assert "***" in scrubbed


def test_a_web_token_does_not_survive_anywhere() -> None:
    part = base64.urlsafe_b64encode(b'{"alg":"RS256","typ":"JWT"}').decode().rstrip("=")
    token = f"{part}.{part}.c2lnbmF0dXJl"
    assert scrub(f"got {token}: refused") == "got ***: refused"


@pytest.mark.parametrize("spelling", [*SPELLINGS, "web token"])
def test_half_a_secret_does_not_survive_at_the_border(spelling: str) -> None:
    part = "eyJhbGciOiJSUzI1NiJ9"
    token = f"{part}.{part}.c2lnbmF0dXJl"
    text, shown = (token, part[:8]) if spelling == "web token" else (SPELLINGS[spelling](KEY), KEY[:4])
    text = f"\u0130 it failed: {text}, twice: {text}"
    assert shown in text
    for most in range(len(text) + 1):
        assert len(scrub(text, most)) <= most
        assert shown not in scrub(text, most)


def test_a_long_text_is_cut_before_it_is_scrubbed() -> None:
    assert scrub("-eyJ" * 10_000_000, 500) == "-"
    assert scrub("word " * 10_000_000, 500) == "word " * 100
    assert scrub("x" * 10_000, 500) == "x" * 500
    assert scrub("not eyJ", 7) == scrub("not eyJ", 8) == "not eyJ", "it is whole"
    assert scrub("have ab-eyJhbGciOi, and so on", 16) == "have ab-"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Endpoint=sb://x/;SharedAccessKeyName=root",
        "design=blue; the signal: 5",
        "The key of the message is 5, its signature is missing.",
        "The bearer was refused",
        "eyJust one part",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert scrub(text) == text
