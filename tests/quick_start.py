"""Spares each process of the tests what jsonschema imports and the tests do not use: 1.4 seconds of CPU time.

``-p tests.quick_start`` in pyproject.toml loads it before the plugins, of which nbmake imports jsonschema. For its check
of the format "iri" that compiles a grammar from the package rfc3987_syntax, and does without where the package is missing.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]
