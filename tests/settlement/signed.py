"""Connection strings with a token in place of the key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from urllib.parse import quote


def signed(connection_string: str, expires_at: int, key: str | None = None) -> str:
    """Return an emulator's connection string with a shared access signature, which cannot be renewed.

    Args:
        connection_string: with the key.
        expires_at: seconds since 1970.
        key: another key to sign with; None for the right one.
    """
    parts = dict(re.findall("([^=;]+)=([^;]+)", connection_string))
    name, own_key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
    uri = quote(parts["Endpoint"].replace("sb://", "amqp://"), safe="")
    digest = hmac.new((key or own_key).encode(), f"{uri}\n{expires_at}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    token = f"SharedAccessSignature sr={uri}&sig={signature}&se={expires_at}&skn={name}"
    return f"Endpoint={parts['Endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true"
