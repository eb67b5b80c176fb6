"""The page that shows the entities and their messages in a browser; it changes nothing.

Names and messages are written as text only. The policy lets nothing run or load but the script and the style of the
page itself, which it knows by their hashes.

Source: W3C, "Content Security Policy Level 3", section 2.3.1.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from aiohttp import web


@cache
def _parts() -> tuple[str, str]:
    folder = files("sbnotebook.emulator") / "static"
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("{style}", style).replace("{script}", script), policy


def page() -> web.Response:
    html, policy = _parts()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=html, content_type="text/html", headers=headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
