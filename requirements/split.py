"""Split one lock of everything by who needs it: base, torch and trainer, show, and the rest for tests (`make lock`).

`python requirements/split.py ALL.lock BASE.lock TRAINER.lock SHOW.lock`: the others say what each needs; the sums are
the first's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
TORCH = re.compile(r"(torch|triton|cuda-|nvidia-(?!ml-py))")


def entries(path: str) -> dict[str, str]:
    """Name → its lines; a name with several versions (for other interpreters) has the lines of all."""
    found: dict[str, str] = {}
    name = ""
    for line in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if line[0] not in " #":
            name = line.partition("==")[0]
        found[name] = found.get(name, "") + line
    return found


everything, base, trainer, show = (entries(path) for path in sys.argv[1:5])
sets = {
    "base": set(base),
    "torch": {name for name in trainer if TORCH.match(name)},
}
sets["trainer"] = set(trainer) - sets["base"] - sets["torch"]
sets["show"] = set(show) - set(trainer)
sets["test"] = set(everything) - set(show)
for lock, names in sets.items():
    (HERE / f"{lock}.lock").write_text("".join(everything[name] for name in everything if name in names))
