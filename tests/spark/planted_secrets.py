"""What a planted secret may look like where it was written, and where it was found."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

# A token that was made of a key, as it is sent to the service.
TOKEN = re.compile(rb"sig=[\w%+/-]{30,}")


def forms(secret: str) -> set[bytes]:
    """The secret without its padding, in URLs, in hexadecimal, and within anything that was encoded in base 64."""
    plain = secret.rstrip("=").encode()
    found = {plain, quote(plain, safe="").encode(), quote_plus(plain).encode(), plain.hex().encode()}
    for before in range(3):
        # The bytes before and after in the same group of three change the characters at the ends.
        encoded = base64.b64encode(b"\0" * before + plain)
        found.add(encoded[4 * (before > 0) : len(encoded) // 4 * 4 - 4])
    return found


def places(secrets: Iterable[str], contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the places of the secrets and of tokens, with their context."""
    patterns = [re.compile(re.escape(form)) for secret in secrets for form in forms(secret)]
    found = {
        place: content[max(0, match.start() - 80) : match.end() + 20]
        for place, content in contents.items()
        for pattern in (*patterns, TOKEN)
        if (match := pattern.search(content))
    }
    return {place: around.replace(b"\n", b" ") for place, around in found.items()}


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def whole_text(error: BaseException | None) -> str:
    """An error with all that caused it, shown or not."""
    text = ""
    while error is not None:
        text += f"{error!r}\n{error}\n{error.__dict__!r}\n"
        error = error.__cause__ or error.__context__
    return text
