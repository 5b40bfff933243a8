"""Settings into the file that a training is started from."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.files import write_bytes
from trainer.errors import SaveError


def save(config: Path, values: Mapping[str, int]) -> None:
    """Set `values` in the training section of `config`, a file that `trainer.config.read.read_section` has accepted.

    The rest keeps its values and its order, the file its mode; it is written anew, indented by two. Errors: SaveError.
    """
    path = config.resolve()
    try:
        whole: dict[str, Any] = json.loads(path.read_bytes())
        section = whole
        if "training" in whole or "run_name" in whole:
            whole["training"] = section = whole.get("training") or {}
        section.update(values)
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        write_bytes(path, text.encode(), mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise SaveError("autotune.not-saved", config=config, why=error.strerror) from None
