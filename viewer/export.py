"""The page as one file that opens without a server: the same scripts, with the picture in it.

Modules cannot be loaded from a file, so each becomes a `data:` address in those that import it. The file may load
nothing and call nobody: its policy allows what is in it, and no connection.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.files import write_bytes
from orchestrator.screens.board import without_paths
from viewer.errors import NothingThere, StorageError, UsageError
from viewer.model import PageSnapshot, ViewChoice, ViewSource

#: The scripts and the style of the page, beside the code.
STATIC = Path(__file__).resolve().parent / "static"
#: Curves of so many single tasks go into a file: Meta-World has fifty.
MOST_TASKS = 60
_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r'from "\./([A-Za-z0-9./-]+\.js)"')


def export(source: ViewSource, run: str, out: Path, now: float) -> int:
    """Write the page of one run into `out`; the file's bytes. `run`: its id, "" for the first.

    Errors: NothingThere, UsageError, StorageError.
    """
    if out.suffix.lower() not in {".html", ".htm"}:
        raise UsageError("export.not-html", path=out)
    snapshot = source.look(ViewChoice(run=run), now)
    if snapshot.run is None:
        raise NothingThere("export.no-run", why=snapshot.note or "There is no run here.")
    curves = {}
    for row in snapshot.run.tasks[:MOST_TASKS]:
        found = source.look(ViewChoice(run=snapshot.run.run_id, task=row.task), now).run
        if found is not None:
            curves[row.task] = found.curves.model_dump(mode="json")
    data = page_with(snapshot, curves, now).encode()
    try:
        write_bytes(out, data)
    except OSError as error:
        raise StorageError("export.not-written", path=out, why=error.strerror) from None
    return len(data)


def page_with(snapshot: PageSnapshot, curves: Mapping[str, Any], now: float) -> str:
    """The whole file. `curves`: by task, what is shown when it is chosen."""
    folder = snapshot.run.folder if snapshot.run is not None else ""
    value = without_paths({"is": snapshot.model_dump(mode="json"), "curves": dict(curves)}, folder)
    value |= {"at": now}
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = page.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">', 1)
    page = re.sub(r'<link rel="modulepreload" [^>]*>\n', "", page)
    page = re.sub(r'<link rel="stylesheet" href="([^"]+)">', lambda m: f"<style>{_text(m[1])}</style>", page)
    page = re.sub(r'<script src="([^"]+)"></script>', lambda m: f"<script>{_closed(_text(m[1]))}</script>", page)
    page = re.sub(
        r'<script type="module" src="([^"]+)"></script>',
        lambda m: f'<script type="module">{_closed(_module(m[1]))}</script>',
        page,
    )
    return page.replace(
        "</body>", f'<script type="application/json" id="picture">{as_inline(value)}</script>\n</body>', 1
    )


def as_inline(value: Any) -> str:
    """JSON that cannot end the element that it stands in: `<`, `>` and `&` are written as escapes."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _module(name: str) -> str:
    """A module's text, with those that it imports in place of their names. Agents' scripts are not among them."""
    return _IMPORT.sub(lambda match: f'from "{_address(match[1])}"', _text(name))


def _address(name: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(_module(name).encode()).decode()


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    """A script that does not end its element early."""
    return script.replace("</script", "<\\/script")
