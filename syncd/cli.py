"""The `syncd` command. Its verbs come with the next release; it says so instead of pretending."""

from __future__ import annotations

import sys
from importlib.metadata import version

WORDS = """syncd mirrors policies and checkpoints between a cluster's shared folder and laptops.
Its commands (pull, push, bidirectional, setup, serve, status, install) are not built yet.
Until then, copy what you need by hand: rsync -a HOST:RUN_DIR/slots/0/attempts ."""


def main() -> None:
    """Entry point. Exit code 0 for help and version, 2 for a verb that does not exist yet."""
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"anchorleg {version('anchorleg')}")
    elif not words or words == ["--help"]:
        print(WORDS)
    else:
        print(f"syncd: {words[0]} is not built yet; see `syncd --help`.", file=sys.stderr)
        sys.exit(2)
