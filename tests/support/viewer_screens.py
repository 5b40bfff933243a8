"""The pictures of docs/watching.md: the page of a run that is written here, in Debian's Chromium.

`python tests/support/viewer_screens.py` writes them into docs/images.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from browser import REPOSITORY, WEBGL, a_browser, a_viewer, missing_browser_parts
from daemons import wait_for
from PIL import Image
from policies import a_draft, tensors
from relay import Relay
from watched_runs import a_watched_run

from orchestrator.run.rundir import load_run
from orchestrator.screens.reading import Keeper
from syncd import store
from syncd.shared.counts import Counts, note
from viewer.server.serve import make_server
from viewer.server.sockets import open_port
from viewer.sources.runs import RunFolders

IMAGES = REPOSITORY / "docs" / "images"
#: Two agents that train while their picture is taken.
TRAINING = {
    "preset": "tiny", "tasks": ["reach-v3"], "total_steps": 10_000_000, "num_envs": 2, "num_workers": 0,
    "updates_per_step": 0.5, "publish_interval": 500, "evaluation_goals": 0,
}  # fmt: skip
CONTROLLER = "process 4657 on login1 (`start`, since 06:12:05)"
TOKEN = 43 * "t"
#: A page has few colours: so a picture of it has some tens of kB.
COLOURS = 200
#: name → (width, dark, the panels that are shown)
SCREENS: dict[str, tuple[int, bool, tuple[str, ...]]] = {
    "viewer-jobs": (1000, True, ("Jobs", "Curves")),
}


def a_shown_run(folder: Path, now: float) -> Path:
    """A run with everything that a page can show."""
    run_dir = a_watched_run(folder / "mt10", now)
    run_id = load_run(run_dir).run_id
    shared = run_dir.path / "shared"
    for who, counts in (
        ("anna", Counts(accepted=812, rows=261_300, episodes=700, solved=540, last_at=now - 40)),
        (
            "ben",
            Counts(accepted=95, rows=30_100, episodes=80, solved=21, refused={"version_lag": 4}, last_at=now - 900),
        ),
    ):
        note(shared / "v1" / "inbox" / who, f"{run_id}.0", counts)
    for slot in range(4):
        place = store.Shared(shared).slot(run_id, slot)
        draft = a_draft(place, 5, 9, step=1_440_000 + 1000 * slot, created_at=now - 20 - 7 * slot)
        store.publish(place, draft, store.rounded(tensors(slot)))
    return run_dir.path


def picture(page: Any, panels: tuple[str, ...]) -> bytes:
    """A PNG of these panels, one below the other."""
    page.locator('[data-panel="Curves"] canvas').wait_for()
    page.wait_for_function("document.querySelector('.chart canvas').width > 300")
    boxes = [page.locator(f'[data-panel="{name}"]').bounding_box() for name in panels]
    top, bottom = min(box["y"] for box in boxes), max(box["y"] + box["height"] for box in boxes)
    clip = {"x": 0, "y": top - 8, "width": page.viewport_size["width"], "height": bottom - top + 16}
    return bytes(page.screenshot(full_page=True, clip=clip))


def picture_of_agents(folder: Path) -> bytes:
    """A PNG of the agents of a run that trains on this machine for it."""
    relay = Relay.make(folder / "reach", command=None, slots=2, training=TRAINING, collaboration={"enabled": True})
    env = {name: value for name, value in relay.env.items() if name != "DISPLAY"} | {"SSH_CONNECTION": "1 2 3 4"}
    relay.spawn("start")
    try:
        relay.wait_for(lambda: len(store.Shared(relay.run_dir / "shared").slots()) == 2, "both slots to publish")
        with a_viewer(folder, str(relay.run_dir), env=env) as url, a_browser(*WEBGL) as pages:
            page = pages.open(url, width=1000, height=780)
            for slot in (0, 1):
                page.locator(f'[data-agent="{slot}"]').get_by_text(f"in training · slot {slot}").wait_for()
                page.locator(f'[data-agent="{slot}"] .said').wait_for(state="hidden")
            seen: set[bytes] = set()
            canvas = page.locator('[data-agent="1"] canvas').first
            wait_for(lambda: seen.add(canvas.screenshot()) or len(seen) > 5, "the agent to move")
            return bytes(page.locator('[data-panel="Agents at play"]').screenshot())
    finally:
        relay.run("stop")
        relay.clean_up()


def save(name: str, data: bytes) -> None:
    """As a small PNG of the docs."""
    image = Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS)
    image.save(IMAGES / f"{name}.png", optimize=True)


def main() -> int:
    """Write the pictures."""
    if missing := missing_browser_parts():
        print(f"not there: {', '.join(missing)}", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    now = time.time()
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch("orchestrator.screens.reading.keeper", lambda *_: Keeper(CONTROLLER)),
        a_browser() as pages,
    ):
        sock = open_port(0)
        server = make_server(sock, RunFolders([a_shown_run(Path(scratch), now)], "mt10"), TOKEN)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, (width, dark, panels) in SCREENS.items():
            url = f"http://127.0.0.1:{sock.getsockname()[1]}/#{TOKEN}"
            page = pages.open(url, width=width, height=780, dark=dark)
            save(name, picture(page, panels))
        pages.close()
        server.shutdown()
    with tempfile.TemporaryDirectory() as scratch:
        save("viewer-agents", picture_of_agents(Path(scratch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
