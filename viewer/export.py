"""The page as one file that opens without a server: the same scripts, with the picture in it.

Modules cannot be loaded from a file, so each becomes a `data:` address in those that import it. The file may load
nothing and call nobody: its policy allows what is in it, and no connection.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.files import write_bytes
from anchorleg.live.wanted import ANY
from orchestrator.screens.board import without_paths
from viewer.errors import NothingThere, StorageError, UsageError
from viewer.live.choice import HEIGHT, RECORDED, WIDTH, AgentNews
from viewer.live.recording import NoEpisodeError, RecordedEpisode
from viewer.model import LiveFacts, PageSnapshot, RunPage, ViewChoice
from viewer.server.agentline import message
from viewer.server.assets import STATIC
from viewer.sources.base import ViewSource

#: CurvesPanel of so many single tasks go into a file: Meta-World has fifty.
MOST_TASKS = 60
_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
_LATER = re.compile(r'import\("\./([A-Za-z0-9./-]+\.js)"\)')
_IMPORT = re.compile(r'from "\./([A-Za-z0-9./-]+\.js)"')


#: What plays and keeps an episode of a run; None: it has none. Errors: NoEpisodeError.
Record = Callable[[LiveFacts], RecordedEpisode]


class ExportedPage(NamedTuple):
    """`size`: of the file, `of_episode`: of what is played in it, both bytes; `why_none`: why there is no episode."""

    size: int
    of_episode: int = 0
    why_none: str = ""


def export(source: ViewSource, run: str, out: Path, now: float, record: Record | None = None) -> ExportedPage:
    """Write the page of one run into `out`. `run`: its id, "" for the first. `record`: adds an episode, if it can.

    Errors: NothingThere, UsageError, StorageError.
    """
    if out.suffix.lower() not in {".html", ".htm"}:
        raise UsageError(f"{out}: name a file that ends in .html.")
    snapshot = source.look(ViewChoice(run=run), now)
    if snapshot.run is None:
        raise NothingThere(snapshot.note or "there is no run to export.")
    curves = {}
    for row in snapshot.run.tasks[:MOST_TASKS]:
        found = source.look(ViewChoice(run=snapshot.run.run_id, task=row.task), now).run
        if found is not None:
            curves[row.task] = found.curves.model_dump(mode="json")
    episode, why_none = None, ""
    if record is not None:
        episode, why_none = _episode(snapshot.run, record, now)
    data = page_with(snapshot, curves, now, episode).encode()
    try:
        write_bytes(out, data)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror}.") from None
    return ExportedPage(len(data), 0 if episode is None else len(as_inline(episode)), why_none)


def _episode(run: RunPage, record: Record, now: float) -> tuple[dict[str, Any] | None, str]:
    """(what the page plays, ""), or (None, why it plays nothing)."""
    if run.live is None:
        return None, "this run has no agents that could play"
    try:
        return for_page(record(run.live), run.run_id, now), ""
    except NoEpisodeError as error:
        return None, str(error)


def page_with(
    snapshot: PageSnapshot, curves: Mapping[str, Any], now: float, episode: Mapping[str, Any] | None = None
) -> str:
    """The whole file. `curves`: by task, what is shown when it is chosen. `episode`: as `for_page` makes it."""
    folder = snapshot.run.folder if snapshot.run is not None else ""
    value = without_paths({"is": snapshot.model_dump(mode="json"), "curves": dict(curves)}, folder)
    value |= {"at": now, "episode": episode}
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = page.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">', 1)
    page = re.sub(r'<link rel="modulepreload" [^>]*>\n', "", page)
    page = re.sub(r'<link rel="stylesheet" href="([^"]+)">', lambda m: f"<style>{_text(m[1])}</style>", page)
    page = re.sub(r'<script src="([^"]+)"></script>', lambda m: f"<script>{_closed(_text(m[1]))}</script>", page)
    page = re.sub(
        r'<script type="module" src="([^"]+)"></script>',
        lambda m: f'<script type="module">{_closed(_module(m[1], with_agents=episode is not None))}</script>',
        page,
    )
    return page.replace(
        "</body>", f'<script type="application/json" id="picture">{as_inline(value)}</script>\n</body>', 1
    )


def for_page(episode: RecordedEpisode, run_id: str, now: float) -> dict[str, Any]:
    """What the page plays over and over (`replay` of static/main.js): `stage`, as `Hub` tells it; the messages of
    `viewer.server.agentline` in base64, those of `scenes` first, and each of `batches` with its s after the first.
    """
    agent, scene, batches = episode
    first = batches[0].header
    tile = {"slot": agent.slot, "name": agent.name, "lane": ANY, "score": agent.success, "playing": True, "bad": 0}
    rest = {"others": [], "pinned": False, "at_work": False, "why": "", "note": "", "film": ""}
    note = f"One episode of policy {first['facts'].get('policy', '')}, played when this file was written."
    stage = {"run": run_id, "top": 1, "most": 0, "size": [WIDTH, HEIGHT], "way": RECORDED, "can_play": False}
    return {
        "stage": {**stage, "tasks": [], "agents": [], "note": note, "tiles": [{**tile, **rest}]},
        "scenes": [_base64(message(0, scene, now))] if scene is not None else [],
        "batches": [
            [
                max(0.0, round(one.header["at"] - first["at"], 3)),
                _base64(message(0, AgentNews(agent.slot, ANY, RECORDED, (one,)), now)),
            ]
            for one in batches
        ],
    }


def _base64(data: str | bytes) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def as_inline(value: Any) -> str:
    """JSON that cannot end the element that it stands in: `<`, `>` and `&` are written as escapes."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _module(name: str, *, with_agents: bool = False) -> str:
    """A module's text, with those that it imports in place of their names; agents' scripts only where there are any."""
    text = _IMPORT.sub(lambda match: f'from "{_address(_beside(name, match[1]))}"', _text(name))
    if with_agents:
        text = _LATER.sub(lambda match: f'import("{_address(_beside(name, match[1]))}")', text)
    return text


def _beside(name: str, other: str) -> str:
    folder = Path(name).parent
    return str(folder / other) if str(folder) != "." else other


def _address(name: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(_module(name).encode()).decode()


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    """A script that does not end its element early."""
    return script.replace("</script", "<\\/script")
