"""The page in a real browser."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Pages, a_viewer, complaints
from daemons import wait_for
from ports import free_ports
from relay import NewRelay
from viewer_entrance import served
from watched_runs import TASKS, a_watched_run, write_rows

from viewer.cli import export_app
from viewer.model import PageSnapshot, ViewChoice
from viewer.sources.mirror import MirrorFolder
from viewer.sources.runs import RunFolders


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[str]:
    """The address of a page of a run with everything in it."""
    with served(RunFolders([a_watched_run(tmp_path / "mt10", time.time()).path], "mt10")) as (url, _):
        yield url


def panel(page: Any, name: str) -> Any:
    return page.locator(f'[data-panel="{name}"]')


def slot(page: Any, number: int) -> Any:
    return page.locator(f'[data-slot="{number}"]')


@pytest.mark.long
def test_the_page_follows_a_real_run_over_a_hand_over(pages: Pages, new_relay: NewRelay) -> None:
    relay = new_relay(total=500, slots=2, held_at=20)
    relay.spawn("start")
    for number in (0, 1):
        relay.wait_for_step(20, number)
    with a_viewer(relay.folder, str(relay.run_dir)) as url:
        page = pages.open(url)
        page.get_by_text("20 of 500 steps").first.wait_for()
        slot(page, 1).locator('.badge[data-state="running"]').wait_for()
        assert page.evaluate("location.hash") == "", "the token stays in no address"
        relay.hand_over()
        slot(page, 0).get_by_text("2, 1 handed over").wait_for()
        panel(page, "History").get_by_text("handed over (it was asked to)").first.wait_for()
        rows = panel(page, "Jobs").locator(".row").first
        rows.locator("g.job").nth(1).wait_for(state="attached")
        rows.locator("rect.part.running").first.wait_for(state="attached")  # read beside the card, not always at once
        rows.locator("rect.part.start-up").nth(1).wait_for(state="attached")
        assert rows.locator("rect.part.running").count() == 1, "the second job has made no step of its own"
        relay.release()
        slot(page, 1).locator('.badge[data-state="finished"]').wait_for()


@pytest.mark.long
def test_the_page_says_that_the_viewer_is_gone_and_comes_back_with_the_next_address(
    pages: Pages, tmp_path: Path
) -> None:
    a_watched_run(tmp_path / "mt10", time.time(), slots=1, jobs=1)
    port = free_ports(1)[0]
    with a_viewer(tmp_path, "mt10", port=port) as url:
        page = pages.open(url)
        page.locator('[data-line="live"]').wait_for()
        for address in (url.partition("#")[0], f"{url.partition('#')[0]}#{43 * 'x'}"):
            bare = pages.open(address)
            bare.locator('[data-line="refused"]').wait_for()
            assert "mt10" not in bare.content()
            assert bare.context.cookies() == []
    page.locator('[data-line="lost"]').wait_for()
    with a_viewer(tmp_path, "mt10", port=port) as url:
        page.locator('[data-line="refused"]').wait_for()  # another viewer has another token
        page.evaluate("hash => { location.hash = hash; }", url.partition("#")[2])  # the whole address, typed here
        page.locator('[data-line="live"]').wait_for()
        page.locator("a.skip").press("Enter")
        page.reload()  # a link within the page is no token
        page.locator('[data-line="live"]').wait_for()


class Hanging:
    """A source on a network folder that hangs, once `hangs` is set, until `over` is."""

    kind, place, port = "runs", "somewhere", None

    def __init__(self) -> None:
        self.hangs, self.over = threading.Event(), threading.Event()

    def look(self, _choice: ViewChoice, _now: float) -> PageSnapshot:
        if self.hangs.is_set():
            self.over.wait()
        return PageSnapshot(source="runs", place=self.place)


@pytest.mark.long
def test_a_picture_that_grows_old_says_of_when_it_is(pages: Pages) -> None:
    source = Hanging()
    with served(source) as (url, _):
        page = pages.open(url)
        page.locator('[data-line="live"]').wait_for()
        page.evaluate("() => { const now = Date.now; Date.now = () => now() + 100_000; }")
        source.hangs.set()
        page.locator('[data-line="old"]').get_by_text("nothing newer could be read").wait_for()
    source.over.set()


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)])
def test_every_panel_fits_in_both_themes(pages: Pages, watched: str, width: int, dark: bool) -> None:
    page = pages.open(watched, width=width, dark=dark)
    panel(page, "Curves").locator("canvas").wait_for()
    for name in ("Troubles", "Slots", "Jobs", "Curves", "Tasks", "Evaluations", "History"):
        panel(page, name).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 20, 23)") is dark
    drawn = page.evaluate(
        "() => { const c = document.querySelector('[data-panel=Curves] canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set();"
        " for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);"
        " return seen.size; }"
    )
    assert drawn > 10, "lines of several colours"
    assert complaints(page) == []


@pytest.mark.long
def test_everything_is_reached_by_the_keyboard(pages: Pages, watched: str) -> None:
    page = pages.open(watched)
    row = panel(page, "Jobs").locator(".row svg").nth(1)
    assert "1 failed" in str(row.get_attribute("aria-label"))
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
    assert page.evaluate(
        "() => [...document.querySelectorAll('button:not(:disabled), select, a, [tabindex=\"0\"]')]"
        ".every((one) => one.tabIndex >= 0)"
    )
    slider = panel(page, "Moment").get_by_role("slider", name="Moment")
    slider.focus()
    page.keyboard.press("Home")  # the run as it was at its beginning
    page.locator('header .badge[data-state="earlier"]').wait_for()
    panel(page, "Slots").wait_for(state="detached")
    assert panel(page, "Troubles").count() == 0
    assert "as of" in panel(page, "Moment").inner_text()
    assert panel(page, "History").locator("tbody tr").count() == 1
    panel(page, "Moment").get_by_role("button", name="now").press("Enter")
    panel(page, "Troubles").wait_for()
    assert slider.get_attribute("aria-valuetext") == "now"


@pytest.mark.long
def test_times_are_of_the_zone_of_the_sentences_beside_them(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, shown = RunFolders([a_watched_run(tmp_path / "mt10", time.time()).path], "mt10"), []
    for zone, header in (("UTC0", 0), ("IST-5:30", 1)):
        with monkeypatch.context() as patched, served(source) as (url, _):
            patched.setenv("TZ", zone)
            time.tzset()
            page = pages.open(url)
            panel(page, "History").wait_for()
            assert page.get_by_text("times are in UTC+5:30").count() == header
            shown.append(panel(page, "History").locator("tbody tr td").first.inner_text())
    time.tzset()
    utc, india = (60 * int(hour) + int(minute) for hour, minute in (text.split(":") for text in shown))
    assert (india - utc) % (24 * 60) == 330


def a_mirror(folder: Path, tasks: tuple[str, ...] = TASKS, **judged: Any) -> MirrorFolder:
    """Of one slot; `judged`: fields of its evaluation."""
    metrics = folder / "v1/runs/late-0123abcd/0/metrics"
    metrics.mkdir(parents=True)
    write_rows(metrics, 0, 1_000_000, 1_500_000, 40, tasks, time.time())
    for kind in ("metrics", "evaluations"):
        (metrics / f"{kind}.jsonl").rename(metrics / f"{kind}-000000.jsonl")
    path = metrics / "evaluations-000000.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | judged) + "\n")
    return MirrorFolder(folder)


def test_numbers_are_not_rounded_to_others_and_a_task_is_chosen_where_there_are_some(
    pages: Pages, tmp_path: Path
) -> None:
    with served(a_mirror(tmp_path, mean_success=0.996)) as (url, _):
        page = pages.open(url)
        panel(page, "Evaluations").get_by_text("99.6 %", exact=True).wait_for()
        page.evaluate(
            "() => { window.told = new Set(); const write = CanvasRenderingContext2D.prototype.fillText;"
            " CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
            " window.told.add(text); return write.call(this, text, ...rest); }; }"
        )
        boxes = panel(page, "Curves").locator("select")
        boxes.first.select_option("return")
        wait_for(lambda: "environment steps" in page.evaluate("[...window.told]"), "the axes")
        steps = [text for text in page.evaluate("[...window.told]") if text.endswith("M")]
        boxes.first.select_option("critic_loss")
        page.get_by_label("critic_loss by environment steps").wait_for()
        assert boxes.count() == 1
        panel(page, "Tasks").get_by_role("button", name="reach-v3").click()
        page.get_by_label("success by environment steps of reach-v3").wait_for()
        assert [box.input_value() for box in boxes.all()] == ["success", "reach-v3"]
    assert len(steps) > 8, "a label for each place"
    assert "1.05M" in steps


def test_names_of_strangers_stay_text(pages: Pages, tmp_path: Path) -> None:
    name = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    with served(a_mirror(tmp_path, (name, "reach-v3"))) as (url, _):
        page = pages.open(url)
        panel(page, "Tasks").get_by_text("<script>document.title=2</script>").wait_for()
        assert page.locator("main img, main script").count() == 0
        assert page.title().startswith("late-0123abcd")


def test_returns_are_no_percentages_and_small_numbers_are_not_0(pages: Pages, tmp_path: Path) -> None:
    metrics = tmp_path / "v1/runs/pole-0123abcd/0/metrics"
    metrics.mkdir(parents=True)
    rows = [
        {"from": 100 * k, "to": 100 * k + 100, "at": time.time(), "updates": 1, "critic_loss": 1.0,
         "tasks": {"pole": {"episodes": 6, "return": 195.0}, "beam": {"episodes": 6, "return": 0.0003}}}
        for k in range(3)
    ]  # fmt: skip
    (metrics / "metrics-000000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with served(MirrorFolder(tmp_path)) as (url, _):
        page = pages.open(url)
        panel(page, "Curves").locator("select").first.select_option("critic_loss")
        page.get_by_label("critic_loss by environment steps").wait_for()
        told = panel(page, "Tasks").inner_text()
    assert "195" in told
    assert "0.0003" in told
    assert "%" not in told.replace("95 %", "")


def test_the_exported_file_opens_without_a_server_and_shows_the_same(pages: Pages, tmp_path: Path) -> None:
    run_dir = a_watched_run(tmp_path / "mt10", time.time())
    out = tmp_path / "page.html"
    export_app([str(run_dir.path), "--out", str(out)], standalone_mode=False)
    page = pages.open(out.as_uri())
    panel(page, "Curves").locator("canvas").wait_for()
    assert page.locator('[data-slot="3"]').get_by_text("paused", exact=True).count() == 1
    box = panel(page, "Curves").locator("select")
    for task, words in (("reach-v3", "steps of reach-v3;"), ("", "steps;")):
        box.select_option(task)
        page.get_by_label(f"success by environment {words}").wait_for()
    assert panel(page, "Moment").count() == panel(page, "Runs").count() == page.locator(".pager").count() == 0
    asked = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in asked if not name.startswith("data:")] == []
