"""How a gate refuses (`syncd.access.gate`), as both sides know it."""

from __future__ import annotations

#: Exit code of a refusal: what a shell says of a command that it may not run.
REFUSED_EXIT_CODE = 126
#: How every refusal begins, so that the other side knows who speaks.
REFUSED_PREFIX = "syncd gate:"
