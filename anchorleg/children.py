"""Programs of ours that another program of ours starts, as `python -P -m …`.

Standard library only.
"""

from __future__ import annotations

import os
import sys


def python_path() -> dict[str, str]:
    """For a child's environment: it imports what this process does. `-P` keeps its own folder out of that."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
