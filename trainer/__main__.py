"""`trainer`, and `python -m trainer`: a process of its own, which ends whatever an environment left in it."""

from __future__ import annotations

import sys

from trainer.cli import main
from trainer.envs.foreign import leave


def run() -> None:
    """Entry point."""
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except Exception:  # noqa: BLE001 - a defect: told as Python does
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


if __name__ == "__main__":  # a spawned worker imports this module again
    run()
