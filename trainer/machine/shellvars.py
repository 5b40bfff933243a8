"""Variables of other libraries, as a shell, a notebook or a site sets them for other programs."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from trainer.machine import drawing

#: Read when their library is loaded, which a wrong value ends; no command has a use for one: curves are drawn without a
#: window, and nobody sees tqdm's bars or torch's compiler.
_UNWANTED = ("MPLBACKEND", "TQDM_", "TORCH_LOGS")


def drop_foreign_variables(environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Take away those that would end us or a program that we start; what the user should know of it.

    To be called before the libraries are loaded.
    """
    for name in [name for name in environ if name.startswith(_UNWANTED)]:
        del environ[name]
    way = environ.get(drawing.VARIABLE, "")
    if way.lower().strip() in drawing.KNOWN_TO_MUJOCO:
        return None
    del environ[drawing.VARIABLE]
    return f"{drawing.VARIABLE}={way} is left out: MuJoCo knows no such way to draw"
