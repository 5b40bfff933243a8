"""What a run folder takes on its disk, and what `orchestrator clean` removes, as tables."""

from __future__ import annotations

from pathlib import Path

from anchorleg.words import counted, sized, table_lines
from orchestrator.run.leftovers import KINDS, DiskView


def usage_lines(view: DiskView, width: int) -> list[str]:
    """`status --disk`: a row for each part, the largest first, and what can go."""
    rows = [(name, sized(size)) for name, size in sorted(view.parts.items(), key=lambda part: -part[1])]
    lines = table_lines(("part", "size"), [*rows, ("all", sized(view.total))], width)
    freed = sum(one.bytes for one in view.leftovers)
    return [view.path, *lines, f"`orchestrator clean` would remove {sized(freed)}." if freed else "Nothing to clean."]


def leftover_lines(view: DiskView, width: int, *, is_done: bool) -> list[str]:
    """`clean`: a row for each kind, or for each file and folder where nothing was removed yet."""
    if not view.leftovers:
        return ["Nothing to clean. See `orchestrator status --disk`."]
    total = sized(sum(one.bytes for one in view.leftovers))
    if not is_done:
        rows = [(sized(one.bytes), str(Path(one.path).relative_to(view.path))) for one in view.leftovers]
        return [*table_lines(("size", "would go"), rows, width), f"{total}; without --dry-run it is removed."]
    by_kind = {kind: [one.bytes for one in view.leftovers if one.kind == kind] for kind in KINDS}
    gone = [(KINDS[kind], counted(len(sizes), "item"), sized(sum(sizes))) for kind, sizes in by_kind.items() if sizes]
    return [*table_lines(("removed", "number", "size"), gone, width), f"{total} freed in {view.path}"]
