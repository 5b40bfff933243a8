"""What a program of one's own was given, as one short text: two runs of it with the same text do the same work.

The shim notes it with a good end, and `start` compares it with the config: a slot that is finished goes on only where
its program would be given something else. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any


def given(command: Sequence[str], settings: Any) -> str:
    """16 hex digits of the words of the command line and of what ANCHORLEG_CONFIG holds (JSON values)."""
    text = json.dumps([list(command), settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
