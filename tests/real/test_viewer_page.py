"""The page in a real browser: of a real run, through the real command."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Pages, a_browser, a_viewer, missing_browser_parts
from needs import need
from relay import NewRelay
from watched_runs import a_watched_run, write_rows

from viewer.cli import export_app


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    need("a browser", missing_browser_parts())
    with a_browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_is_complained_of(pages: Pages) -> Iterator[None]:
    pages.errors.clear()
    yield
    pages.close()
    assert pages.errors == []


@pytest.fixture
def env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"SSH_CONNECTION", "DISPLAY"}}


def panel(page: Any, name: str) -> Any:
    return page.locator(f'[data-panel="{name}"]')


def slot(page: Any, number: int) -> Any:
    return page.locator(f'[data-slot="{number}"]')


def test_the_page_follows_a_real_run_over_a_hand_over(pages: Pages, new_relay: NewRelay, env: dict[str, str]) -> None:
    relay = new_relay(total=500, slots=2, held_at=20)
    relay.spawn("start")
    for number in (0, 1):
        relay.wait_for_step(20, number)
    with a_viewer(relay.folder, str(relay.run_dir), env=env) as url:
        page = pages.open(url)
        page.get_by_text("20 of 500 steps").first.wait_for()
        slot(page, 1).locator('.badge[data-state="running"]').wait_for()
        assert page.evaluate("location.hash") == "", "the token stays in no address"
        relay.hand_over()
        slot(page, 0).get_by_text("2, 1 handed over").wait_for()
        panel(page, "History").get_by_text("handed over (it was asked to)").first.wait_for()
        rows = panel(page, "Jobs").locator(".row").first
        rows.locator("g.job").nth(1).wait_for(state="attached")
        assert rows.locator("rect.part.running").count() == 2
        page.reload()
        slot(page, 0).get_by_text("2, 1 handed over").wait_for()
        relay.release()
        slot(page, 1).locator('.badge[data-state="finished"]').wait_for()


def test_the_page_says_that_the_viewer_is_gone_and_comes_back(
    pages: Pages, tmp_path: Path, env: dict[str, str]
) -> None:
    a_watched_run(tmp_path / "mt10", time.time(), slots=1, jobs=1)
    with a_viewer(tmp_path, "mt10", env=env) as url:
        page = pages.open(url)
        page.locator('[data-line="live"]').wait_for()
    page.locator('[data-line="lost"]').wait_for()
    port = int(url.split(":")[2].split("/")[0])
    with a_viewer(tmp_path, "mt10", env=env, port=port):
        page.locator('[data-line="live"]').wait_for()


def test_without_the_token_the_page_shows_nothing(pages: Pages, tmp_path: Path, env: dict[str, str]) -> None:
    a_watched_run(tmp_path / "mt10", time.time(), slots=1, jobs=1)
    with a_viewer(tmp_path, "mt10", env=env) as url:
        for address in (url.partition("#")[0], url.partition("#")[0] + "#" + 43 * "x"):
            page = pages.open(address)
            page.locator('[data-line="refused"]').wait_for()
            assert "mt10" not in page.content()
            assert page.context.cookies() == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_every_panel_fits_in_both_themes(
    pages: Pages, tmp_path: Path, env: dict[str, str], width: int, dark: bool
) -> None:
    a_watched_run(tmp_path / "mt10", time.time())
    with a_viewer(tmp_path, "mt10", env=env) as url:
        page = pages.open(url, width=width, dark=dark)
        panel(page, "Curves").locator("canvas").wait_for()
        for name in ("Troubles", "Slots", "Jobs", "Curves", "Tasks", "Evaluations", "History"):
            panel(page, name).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(18, 20, 23)") is dark
        drawn = page.evaluate(
            "() => { const c = document.querySelector('.chart canvas');"
            " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            " const seen = new Set();"
            " for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);"
            " return seen.size; }"
        )
        assert drawn > 10, "lines of several colours"


def test_everything_is_reached_by_the_keyboard(pages: Pages, tmp_path: Path, env: dict[str, str]) -> None:
    a_watched_run(tmp_path / "mt10", time.time())
    with a_viewer(tmp_path, "mt10", env=env) as url:
        page = pages.open(url)
        row = panel(page, "Jobs").locator(".row svg").nth(1)
        row.focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        panel(page, "Jobs").get_by_text("slot 1, attempt 4").wait_for()
        page.keyboard.press("ArrowLeft")
        panel(page, "Jobs").get_by_text("the GPU ran out of memory").last.wait_for()
        panel(page, "Curves").locator("select").nth(1).focus()
        page.keyboard.type("reach")
        panel(page, "Curves").locator("select").nth(1).press("Enter")
        page.get_by_label("success by environment steps of reach-v3").wait_for()
        reached = page.evaluate(
            "() => [...document.querySelectorAll('button:not(:disabled), select, a, [tabindex=\"0\"]')]"
            ".every((one) => one.tabIndex >= 0)"
        )
        assert reached


def test_names_of_strangers_stay_text(pages: Pages, tmp_path: Path, env: dict[str, str]) -> None:
    metrics = tmp_path / "v1/runs/evil-0123abcd/0/metrics"
    metrics.mkdir(parents=True)
    name = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    write_rows(metrics, 0, 0, 9000, 5, [name, "reach-v3"], time.time())
    for kind in ("metrics", "evaluations"):
        (metrics / f"{kind}.jsonl").rename(metrics / f"{kind}-000000.jsonl")
    with a_viewer(tmp_path, str(tmp_path), env=env) as url:
        page = pages.open(url)
        panel(page, "Tasks").get_by_text("<script>document.title=2</script>").wait_for()
        assert page.locator("main img, main script").count() == 0
        assert page.title().startswith("evil-0123abcd")


def test_the_exported_file_opens_without_a_server_and_shows_the_same(pages: Pages, tmp_path: Path) -> None:
    run_dir = a_watched_run(tmp_path / "mt10", time.time())
    out = tmp_path / "page.html"
    export_app([str(run_dir.path), "--out", str(out)], standalone_mode=False)
    page = pages.open(out.as_uri())
    panel(page, "Curves").locator("canvas").wait_for()
    assert page.locator('[data-slot="3"]').get_by_text("paused", exact=True).count() == 1
    panel(page, "Curves").locator("select").select_option("reach-v3")
    page.get_by_label("success by environment steps of reach-v3").wait_for()
    asked = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in json.loads(json.dumps(asked)) if not name.startswith("data:")] == []
