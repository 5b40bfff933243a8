"""The pictures of README and docs/watching.md: the page of a run that is written here, and of one that trains here.

`python tests/support/viewer_screens.py` writes them into docs/images, by Debian's Chromium. The moving one takes some
minutes: its agents learn first.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from browser import REPOSITORY, WEBGL, a_browser, a_viewer, missing_browser_parts
from daemons import LONG_S, wait_for
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
#: Two agents that have learned so many steps, and go on, while they are filmed.
TRAINING = {
    "preset": "tiny", "tasks": ["drawer-close-v3"], "total_steps": 100_000, "num_envs": 2, "num_workers": 0,
    "updates_per_step": 0.25, "publish_interval": 1000, "evaluation_goals": 0, "metrics_interval": 1000,
}  # fmt: skip
LEARNED = 30_000
#: Of the film: the size of the page, milliseconds in all and of a frame, and WebP's quality.
WIDTH, HEIGHT, LONG_MS, FRAME_MS, QUALITY = 1000, 884, 9000, 100, 60
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


def agents_in_training(folder: Path) -> bytes:
    """Write the film of a run that trains on this machine for it, and return a PNG of its agents."""
    relay = Relay.make(folder / "drawer", command=None, slots=2, training=TRAINING, collaboration={"enabled": True})
    env = {name: value for name, value in relay.env.items() if name != "DISPLAY"} | {"SSH_CONNECTION": "1 2 3 4"}
    relay.spawn("start")
    try:
        slots = store.Shared(relay.run_dir / "shared").slots
        wait_for(lambda: len(slots()) == 2 and all(map(has_learned, slots())), "both slots to learn", LONG_S)
        with a_viewer(folder, str(relay.run_dir), env=env) as url, a_browser(*WEBGL) as pages:
            page = pages.open(url, width=WIDTH, height=HEIGHT)
            for slot in (0, 1):
                page.locator(f'[data-agent="{slot}"]').get_by_text(f"in training · slot {slot}").wait_for()
                page.locator(f'[data-agent="{slot}"] .said').wait_for(state="hidden")
            film(page, IMAGES / "viewer.webp")
            return bytes(page.locator('[data-panel="Agents at play"]').screenshot())
    finally:
        relay.run("stop")
        relay.clean_up()


def has_learned(place: store.SlotPlace) -> bool:
    found = store.newest(place)
    return found is not None and found.step >= LEARNED


def film(page: Any, path: Path) -> None:
    """What the browser shows from now on, as a WebP that moves."""
    seen: list[tuple[float, bytes]] = []
    chromium = page.context.new_cdp_session(page)

    def keep(frame: dict[str, Any]) -> None:
        seen.append((frame["metadata"]["timestamp"], base64.b64decode(frame["data"])))
        chromium.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    chromium.on("Page.screencastFrame", keep)
    chromium.send("Page.startScreencast", {"format": "png"})
    page.wait_for_timeout(LONG_MS)
    chromium.send("Page.stopScreencast")
    kept = [seen[0]]  # as many a second as a film needs
    for at, data in seen:
        if at - kept[-1][0] >= FRAME_MS / 1000:
            kept.append((at, data))
    images = [Image.open(io.BytesIO(data)).convert("RGB") for _, data in kept]
    ends = [at for at, _ in kept[1:]] + [seen[-1][0] + FRAME_MS / 1000]
    shown = [round(1000 * (end - at)) for (at, _), end in zip(kept, ends, strict=True)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=shown, loop=0, quality=QUALITY, method=6)


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
        save("viewer-agents", agents_in_training(Path(scratch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
