from __future__ import annotations

import asyncio
import base64
import hashlib
import re

import pytest

from sbnotebook.emulator.service.http_app import page


@pytest.fixture
def html() -> str:
    text = asyncio.run(page()).text
    assert text is not None
    return text


@pytest.mark.parametrize("tag", ["script", "style"])
def test_page_allows_only_its_own_script_and_style(html: str, tag: str) -> None:
    (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    policy = asyncio.run(page()).headers["Content-Security-Policy"]
    assert f"{tag}-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none';")


def test_page_loads_nothing_else_and_writes_text_only(html: str) -> None:
    assert not re.findall(r"https?://", html)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(| on\w+=", html)
    assert re.findall(r'fetch\("([^"]+)"', html) == ["/messages?", "/entities"]
