"""What both sides of a gate know: how it refuses, where rsync keeps unfinished files. `syncd.access.gate` decides."""

from __future__ import annotations

#: Exit code of a refusal: what a shell says of a command that it may not run.
REFUSED_EXIT_CODE = 126
#: Exit code where rsync brought all files, and the inbox did not take some; rsync's own name for it is "partial
#: transfer". Where rsync itself ends with it, a gate does not.
SOME_REFUSED_EXIT_CODE = 23
#: How every refusal begins, so that the other side knows who speaks.
REFUSED_PREFIX = "syncd gate:"
#: What a refusal says that is one of now only.
FOR_NOW = "try again when"
#: Where unfinished files lie: the one folder name that our client uses.
PARTIAL_FOLDER = ".part"
