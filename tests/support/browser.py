"""Debian's Chromium, driven by Playwright: no browser is downloaded, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
#: As root, without a GPU, and calling nobody.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
#: Draws on the processor; without these there is no WebGL at all.
WEBGL = ("--enable-unsafe-swiftshader", "--use-angle=swiftshader")
#: A page whose viewer has ended tries again, and the browser says so; what it loads just then does not come.
_ENDED = ("WebSocket connection to ", "Failed to load resource: net::ERR_")
#: Reading the pixels of a drawing is slow, and the browser says so.
_STALLED = ("GPU stall", "readback")
_URL = re.compile(r"http://127\.0\.0\.1:\d+/#\S+")


def missing_browser_parts() -> list[str]:
    """What is not installed."""
    missing = [] if os.access(CHROMIUM, os.X_OK) else ["chromium"]
    try:
        import playwright  # noqa: F401
    except ImportError:
        missing.append("playwright")
    return missing


class Pages:
    """Opens pages; `errors` has what any of them complained of (scripts, policies, files that were not there)."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.errors: list[str] = []

    def open(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Any:
        """A page in a context of its own, which keeps nothing of the others'."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
            reduced_motion="reduce", locale="en-GB", timezone_id="UTC",
        )  # fmt: skip
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(url)
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not text.startswith(_ENDED) and not any(word in text for word in _STALLED):
            self.errors.append(text)

    def close(self) -> None:
        """All pages."""
        for context in self._browser.contexts:
            context.close()


def complaints(page: Any) -> list[str]:
    """What axe-core has against the page as it stands: rule, how grave, and where."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']} ({one['impact']}): {[node['target'] for node in one['nodes'][:3]]}" for one in found]


@contextlib.contextmanager
def a_browser(*more: str) -> Iterator[Pages]:
    """Chromium with a fresh profile. `more`: arguments, `WEBGL` for instance."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="al-chromium-") as home, sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM,
            args=[*ARGUMENTS, *more],
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home},
        )
        try:
            yield Pages(browser)
        finally:
            browser.close()


@contextlib.contextmanager
def a_viewer(folder: Path, *words: str, env: Mapping[str, str] = os.environ, port: int = 0) -> Iterator[str]:
    """`viewer WORDS`, by default on any port; what it says that a browser should open."""
    output = folder / "viewer-output.txt"
    own = {"XDG_STATE_HOME": str(folder / "viewer-state"), "PYTHONPATH": str(REPOSITORY)}
    with output.open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "viewer", *words, "--port", str(port), "--no-open"],
            cwd=folder, env={**env, **own}, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        wait_for(lambda: _URL.search(output.read_text()) or child.poll() is not None, "the viewer's address")
        found = _URL.search(output.read_text())
        assert found, output.read_text()
        yield found[0]
    finally:
        child.terminate()
        assert child.wait(PATIENCE_S) == 0, output.read_text()
