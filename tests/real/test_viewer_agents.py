"""Agents at play in a real browser: what a ring says is on its canvas, what nobody can draw is a sentence."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents_on_page import PICTURES, a_mirror, middle_of_red, moves, playing, said, tile
from browser import WEBGL, Pages, a_browser, a_viewer, complaints, missing_browser_parts
from daemons import wait_for
from fake_agents import CAMERA, EVERY_KIND, FakeAgent, a_header, a_jpeg, live_folder, put_scene, scene_bytes
from needs import need
from policies import RUN
from ports import free_ports
from viewer_entrance import served

from anchorleg.live import wanted
from anchorleg.live.batches import POSE
from viewer.sources.mirror import MirrorFolder

#: Tests read pixels, which is slow, and the browser says so.
SLOW = ("GPU stall", "readback")


@pytest.fixture(scope="module")
def browser() -> Iterator[Pages]:
    need("a browser", missing_browser_parts())
    with a_browser(*WEBGL) as opened:
        yield opened


@pytest.fixture
def pages(browser: Pages) -> Iterator[Pages]:
    browser.errors.clear()
    yield browser
    browser.close()
    assert [error for error in browser.errors if not any(word in error for word in SLOW)] == []


@pytest.fixture
def env() -> dict[str, str]:
    """Of a login by ssh: nobody plays there."""
    return {**{name: value for name, value in os.environ.items() if name != "DISPLAY"}, "SSH_CONNECTION": "1 2 3 4"}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return a_mirror(tmp_path / "mirror", 2)


def wishes(shared: Path) -> int:
    return len(wanted.read(shared / "v1" / "runs" / RUN / wanted.FILE))


@pytest.mark.long
def test_a_box_that_moves_moves_on_the_canvas(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    places: list[float] = []

    def sees_it_move() -> bool:
        found = middle_of_red(page)
        places.extend([found[0]] if found else [])
        return bool(places) and max(places) - min(places) > 60

    with a_viewer(tmp_path, str(shared), env=env) as url, playing(moves(agent)):
        page = pages.open(url)
        said(page, "in training · slot 0")
        said(page, "push-v3 · step")
        wait_for(sees_it_move, "the box to move")
        said(page, "s behind")


@pytest.mark.long
def test_keys_turn_it_and_0_goes_back(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with (
        a_viewer(tmp_path, str(shared), env=env) as url,
        playing(lambda _: agent.pose(*[(0.6, 0.0, 0.25)] * PICTURES)),
    ):
        page = pages.open(url)
        wait_for(lambda: middle_of_red(page), "the box")
        home = middle_of_red(page)
        assert home is not None
        tile(page).locator("canvas").first.focus()
        for _ in range(9):
            page.keyboard.press("ArrowLeft")
        wait_for(lambda: distance(middle_of_red(page), home) > 40, "another side of it")
        page.keyboard.press("0")
        wait_for(lambda: distance(middle_of_red(page), home) < 3, "the first view")
        page.keyboard.press("f")
        tile(page).locator('button[aria-pressed="true"]', has_text="follow").wait_for()
        size = tile(page).locator(".view").bounding_box()
        wait_for(lambda: abs((middle_of_red(page) or (0, 0))[0] - size["width"] / 2) < 12, "the box in the middle")


def distance(one: tuple[float, float] | None, other: tuple[float, float]) -> float:
    return 1e9 if one is None else ((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2) ** 0.5


@pytest.mark.long
def test_every_kind_of_geom_is_drawn(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    folder = live_folder(shared, RUN, 0)
    agent = FakeAgent(folder, scene=put_scene(folder, scene_bytes(a_header(EVERY_KIND))))
    with a_viewer(tmp_path, str(shared), env=env) as url, playing(lambda _: agent.pose((0, 0, 0))):
        page = pages.open(url)
        wait_for(lambda: colours(page) == {"red", "blue", "green", "yellow", "pink"}, "all of them")


@pytest.mark.long
def test_a_goal_is_a_golden_ball(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    agent, facts = FakeAgent(live_folder(shared, RUN, 0)), {"goal_x": 0.8, "goal_y": 0.0}
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        with playing(lambda _: agent.pose((0, 0, 0), facts=facts)):
            wait_for(lambda: colours(page) == {"red", "blue"}, "the box")
        with playing(lambda _: agent.pose((0, 0, 0), facts={**facts, "goal_z": 0.3})):
            wait_for(lambda: colours(page) == {"red", "blue", "yellow"}, "the ball")


#: Which pixels are of which colour, whatever the light.
COLOURS: dict[str, Callable[[int, int, int], bool]] = {
    "red": lambda r, g, b: r > 90 and max(g, b) < 60,
    "blue": lambda r, g, b: b > 90 and b > 2 * r and b > 1.6 * g,
    "green": lambda r, g, b: g > 70 and g > 2 * r and g > 1.6 * b,
    "yellow": lambda r, g, b: r > 120 and g > 90 and b < 70,
    "pink": lambda r, g, b: r > g + 40 and b > g + 20 and g > 60,
}


def colours(page: Any) -> set[str]:
    from PIL import Image

    data = tile(page).locator("canvas").first.screenshot()
    raw = Image.open(io.BytesIO(data)).convert("RGB").tobytes()
    pixels = [tuple(raw[k : k + 3]) for k in range(0, len(raw), 3)]
    return {name for name, fits in COLOURS.items() if sum(fits(*pixel) for pixel in pixels) > 30}


@pytest.mark.long
@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda agent: agent.ring.write(POSE, b"\0\2{}"), "A batch of this agent cannot be shown: it cannot be read"),
        (lambda agent: agent.pose((0, 0, 0), place=[0, 0, 1e12]), "too far away to be drawn"),
        (lambda agent: agent.pose((0, 0, 0), bodies=2), "it has 2 bodies, its scene 1"),
        (lambda agent: agent.pose((0, 0, 0), scene=64 * "a"), "Its scene is on its way."),
        (
            lambda agent: agent.pose((0, 0, 0), scene=put_scene(agent.folder, b"evil")),
            "of its scene, it cannot be read",
        ),
        (lambda agent: agent.jpeg(a_jpeg()[:300]), "Its picture cannot be decoded."),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence_and_the_next_good_one_is_drawn(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str], write: Callable[[FakeAgent], object], words: str
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        with playing(lambda _: write(agent)):
            said(page, words)
        with playing(lambda _: agent.pose(*[(0.2, 0.0, 0.25)] * PICTURES)):
            wait_for(lambda: middle_of_red(page), "the box")
            tile(page).get_by_text(words).first.wait_for(state="hidden")


@pytest.mark.long
def test_a_picture_by_a_clock_that_went_back_is_shown(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    """The next job's node may have another clock."""
    agent = FakeAgent(live_folder(shared, RUN, 0))
    pixel = "(canvas) => canvas.width && canvas.getContext('2d').getImageData(5, 5, 1, 1).data[0]"

    def reddish() -> int:
        return round(tile(page).locator("canvas").nth(1).evaluate(pixel) / 100)

    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        with playing(lambda _: agent.jpeg(a_jpeg(200))):
            wait_for(lambda: reddish() == 2, "the first picture")
        with playing(lambda k: agent.jpeg(a_jpeg(90), at=agent.at - 3600 + k)):
            wait_for(lambda: reddish() == 1, "the picture by the other clock")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["numbers", "picture"])
def test_what_is_stopped_stays_until_it_plays_again(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str], kind: str
) -> None:
    """However much comes meanwhile."""
    agent = FakeAgent(live_folder(shared, RUN, 0))
    many = [(0.2, 0.0, 0.25)] * 250
    pixel = "(canvas) => canvas.width && canvas.getContext('2d').getImageData(5, 5, 1, 1).data[0]"

    def write(k: int) -> None:
        if kind == "numbers":
            agent.pose(*many)
        else:
            agent.jpeg(a_jpeg(90 if first else 200))

    def seen() -> Any:
        if kind == "numbers":
            return re.findall(r"step [\d,]+", tile(page).locator(".numbers").inner_text())
        return round(tile(page).locator("canvas").nth(1).evaluate(pixel) / 100)

    frames: list[int] = []
    first: list[Any] = []
    with a_viewer(tmp_path, str(shared), env=env) as url, playing(write):
        page = pages.open(url)
        page.on("websocket", lambda line: line.on("framereceived", lambda _: frames.append(1)))
        page.reload()
        wait_for(lambda: seen() not in ([], 0), "something to see")
        tile(page).get_by_label("speed of slot 0").select_option("stopped")
        first.append(seen())
        came = len(frames)
        wait_for(lambda: page.title() and len(frames) > came + 12, "more")
        assert seen() == first[0]
        hide(page, hidden=True)  # another tab, for a while
        hide(page, hidden=False)
        came = len(frames)
        wait_for(lambda: page.title() and len(frames) > came + 6, "more again")
        assert seen() == first[0]
        tile(page).get_by_label("speed of slot 0").select_option("normal")
        wait_for(lambda: seen() != first[0], "what comes now")


def test_a_body_without_a_rotation_is_drawn_upright(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with (
        a_viewer(tmp_path, str(shared), env=env) as url,
        playing(lambda k: agent.pose(*[(0.2, 0.0, 0.25)] * PICTURES, quat=(0, 0, 0, 0))),
    ):
        page = pages.open(url)
        wait_for(lambda: middle_of_red(page), "the box")


def test_pictures_and_facts_and_words_of_strangers(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    name = '<img src=x onerror="document.title=1">'
    one, other = (FakeAgent(live_folder(shared, RUN, slot)) for slot in (0, 1))

    def write(k: int) -> None:
        one.jpeg(a_jpeg(200 if k % 2 else 90), origin=name, success=True)
        other.facts(**{name: "<b>bold</b>", "map": 12, "x": 3.25})

    with a_viewer(tmp_path, str(shared), env=env) as url, playing(write):
        page = pages.open(url)
        said(page, f"by {name}")
        tile(page).locator(".badge", has_text="success").wait_for()
        assert tile(page).get_attribute("data-success") == "true"
        seen: set[int] = set()
        pixel = "(canvas) => canvas.width && canvas.getContext('2d').getImageData(5, 5, 1, 1).data[0]"
        wait_for(
            lambda: seen.add(round(tile(page).locator("canvas").nth(1).evaluate(pixel) / 100)) or {1, 2} <= seen,
            "two pictures",
        )
        said(page, "<b>bold</b>", 1)
        said(page, "3.25", 1)
        said(page, "cannot be shown while it trains", 1)
        assert tile(page).get_by_text("cannot be shown while it trains").is_hidden()
        assert tile(page).locator("img, b").count() == tile(page, 1).locator("img, b").count() == 0


def test_a_contributors_agent_is_chosen_on_the_tile_and_called_by_whose_it_is(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    """Whatever its batches say of themselves; the job's agent comes back by another choice."""
    job = FakeAgent(live_folder(shared, RUN, 0))
    guest = FakeAgent(shared.joinpath(*wanted.folder_of(RUN, 0, "any@training")))

    def write(k: int) -> None:
        job.facts(of="the job")
        guest.facts(of="the guest")

    with a_viewer(tmp_path, str(shared), env=env) as url, playing(write):
        page = pages.open(url)
        said(page, "the job")
        said(page, "in training")
        choice = tile(page).get_by_label("what slot 0 shows")
        choice.select_option("by training")
        said(page, "the guest")
        tile(page).locator(".badge", has_text="by training").wait_for()
        choice.select_option("any")
        said(page, "the job")
        tile(page).locator(".badge", has_text="in training").wait_for()


@pytest.mark.long
def test_a_hidden_tab_asks_for_nothing_and_draws_nothing(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    frames: list[int] = []
    with a_viewer(tmp_path, str(shared), env=env) as url, playing(moves(agent)) as batches:
        page = pages.open(url)
        page.on("websocket", lambda line: line.on("framereceived", lambda _: frames.append(1)))
        page.reload()
        said(page, "in training")
        page.evaluate(
            "() => { window.turns = 0; const ask = window.requestAnimationFrame.bind(window);"
            " window.requestAnimationFrame = (act) => { window.turns += 1; return ask(act); }; }"
        )
        wait_for(lambda: page.evaluate("window.turns") > 3, "pictures")
        hide(page, hidden=True)
        wait_for(lambda: page.title() and wishes(shared) == 0, "the withdrawal")

        def is_quiet(count: int) -> bool:
            """Whether nothing comes and nothing is drawn while the agent writes so many batches that nobody wants."""
            came, turns, written = len(frames), page.evaluate("window.turns"), batches[0]
            wait_for(lambda: page.title() and batches[0] > written + count, "more batches")
            return (len(frames), page.evaluate("window.turns")) == (came, turns)

        wait_for(lambda: is_quiet(5), "the last frame that was under way")
        assert is_quiet(15)
        came, turns = len(frames), page.evaluate("window.turns")
        hide(page, hidden=False)
        wait_for(lambda: page.title() and len(frames) > came + 3, "what comes again")
        wait_for(lambda: page.evaluate("window.turns") > turns + 3, "pictures again")
        assert wishes(shared) == 1


def hide(page: Any, *, hidden: bool) -> None:
    """As if another tab were in front of it: a browser without a screen never hides one."""
    page.evaluate(
        f"() => {{ Object.defineProperty(document, 'hidden', {{ value: {str(hidden).lower()}, configurable: true }});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )


@pytest.mark.long
def test_an_empty_tile_has_no_golden_frame(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    """Also where batches were under way as the page was hidden."""
    agent = FakeAgent(live_folder(shared, RUN, 0))
    frames: list[int] = []
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        page.on("websocket", lambda line: line.on("framereceived", lambda _: frames.append(1)))
        page.reload()
        with playing(moves(agent, success=True)):
            wait_for(lambda: tile(page).get_attribute("data-success") == "true", "the golden frame")
            page.evaluate(
                "() => { const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) {"
                " if (text.includes('asleep')) window.late = () => send.call(this, text); else send.call(this, text);"
                " }; }"
            )
            hide(page, hidden=True)
            came = len(frames)
            wait_for(lambda: page.title() and len(frames) > came + 3, "batches that nobody sees")
        page.evaluate("() => window.late()")
        wait_for(lambda: page.title() and wishes(shared) == 0, "the withdrawal")
        (live_folder(shared, RUN, 0) / "any.ring").unlink()
        hide(page, hidden=False)
        page.evaluate("() => window.late()")
        wait_for(lambda: tile(page).get_attribute("data-waits") == "true", "an empty tile")
        assert tile(page).get_attribute("data-success") == "false"


@pytest.mark.long
def test_who_sends_no_more_is_said_to_be_delayed(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        with playing(moves(agent)):
            said(page, "s behind")
        said(page, "in training · delayed")


@pytest.mark.long
def test_who_trains_no_more_is_not_said_to_be_in_training(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        says(page, "for (const tile of value?.shown?.tiles ?? []) tile.at_work = false")
        with playing(moves(agent)):
            said(page, "s behind")  # what comes is shown, whatever is known of the job
        tile(page).locator('.badge[data-state="stopped"]').wait_for()
        assert "in training" not in tile(page).locator("figcaption").inner_text()


@pytest.mark.parametrize(("state", "words"), [("running", "live"), ("finished", "connected"), ("stopped", "connected")])
def test_the_header_calls_a_run_live_while_it_is(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str], state: str, words: str
) -> None:
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        says(page, f"if (value?.is?.run) value.is.run.state = '{state}'")
        page.locator(f'header .badge[data-state="{state}"]').wait_for()
        assert page.locator('header [data-line="live"]').inner_text().strip() == words


def says(page: Any, change: str) -> None:
    """Load the page anew; from now on `change` is made to every `value` that the viewer sends it."""
    page.add_init_script(
        f"const p = JSON.parse; JSON.parse = (...text) => {{ const value = p(...text); {change}; return value; }}"
    )
    page.reload()


def asked_in(shared: Path) -> set[tuple[int, str]]:
    """The slots, and lanes, that pages ask the jobs for."""
    path = shared / "v1" / "runs" / RUN / wanted.FILE
    return {(wish.slot, wish.lane) for one in wanted.read(path).values() for wish in one.wishes}


def test_the_users_choices_reach_the_jobs_and_stay_over_a_lost_connection(pages: Pages, tmp_path: Path) -> None:
    shared = a_mirror(tmp_path / "mirror", 3)
    asked = partial(asked_in, shared)
    port = free_ports(1)[0]
    with served(MirrorFolder(shared), port) as (url, _):
        page = pages.open(url)
        tile(page, 1).wait_for()
        wait_for(lambda: asked() == {(0, "any"), (1, "any")}, "the best two")
        page.get_by_label("Pin").select_option("2")
        tile(page, 2).locator('button[aria-pressed="true"]').wait_for()
        page.locator(".controls label", has_text="Agents").locator("select").select_option("1")
        wait_for(lambda: asked() == {(2, "any")}, "the pinned one alone")
        page.get_by_label("show them").uncheck()
        wait_for(lambda: asked() == set(), "nobody")
        page.get_by_label("show them").check()
        tile(page, 2).wait_for()
    page.locator('[data-line="lost"]').wait_for()
    with served(MirrorFolder(shared), port):
        wait_for(lambda: page.title() and asked() == {(2, "any")}, "the same over another connection")


@pytest.mark.long
def test_of_many_picked_tasks_the_last_ones_count(pages: Pages, tmp_path: Path, env: dict[str, str]) -> None:
    shared = a_mirror(tmp_path / "mirror", 17)
    asked = partial(asked_in, shared)
    with a_viewer(tmp_path, str(shared), env=env) as url:
        page = pages.open(url)
        for slot in range(17):
            page.get_by_label("Pin").select_option(str(slot))
            tile(page, slot).locator('button[aria-pressed="true"]', has_text="pin").wait_for()
            tile(page, slot).get_by_label(f"what slot {slot} shows").evaluate(
                "(select) => { select.value = 't0'; select.dispatchEvent(new Event('change')); }"
            )
        wait_for(lambda: page.title() and asked() == {(slot, "t0") for slot in range(13, 17)}, "the wishes")


@pytest.mark.long
def test_a_scene_that_comes_again_over_another_connection_is_not_the_next_to_be_forgotten(
    pages: Pages, shared: Path
) -> None:
    """A page keeps 16, and the viewer counts on it."""
    folder = live_folder(shared, RUN, 0)
    agent, came = FakeAgent(folder), []
    looks = [{**CAMERA, "azimuth": 5 * k} for k in range(17)]
    first, *others, last = [put_scene(folder, scene_bytes(a_header(camera=look))) for look in looks]

    def hear(data: str | bytes) -> None:
        came.extend(re.findall(rb'"scene":"([0-9a-f]{64})"}', data[:200]) if isinstance(data, bytes) else ())

    def show(*scenes: str) -> None:
        for scene in scenes:
            count = len(came)
            with playing(lambda _, scene=scene: agent.pose(*[(0.2, 0.0, 0.25)] * PICTURES, scene=scene)):
                wait_for(lambda count=count: page.title() and len(came) > count, "a scene")

    port = free_ports(1)[0]
    with served(MirrorFolder(shared), port) as (url, _):
        page = pages.open(url)
        page.on("websocket", lambda line: line.on("framereceived", hear))
        page.reload()
        show(first, *others)
    page.locator('[data-line="lost"]').wait_for()
    with served(MirrorFolder(shared), port):
        show(first, last)
        with playing(lambda _: agent.pose(*[(0.2, 0.0, 0.25)] * PICTURES, scene=first, task="again")):
            said(page, "again · step")
            assert tile(page).get_by_text("Its scene is on its way.").count() == 0
            wait_for(lambda: middle_of_red(page), "the box")


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_tiles_fit_a_phone_and_all_is_reached_by_the_keyboard(
    pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str], dark: bool
) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with a_viewer(tmp_path, str(shared), "--width", "600", "--height", "300", env=env) as url, playing(moves(agent)):
        page = pages.open(url, width=360, dark=dark)
        wait_for(lambda: middle_of_red(page), "the box")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        box = tile(page).locator(".view").bounding_box()
        assert abs(box["width"] - 2 * box["height"]) < 2
        assert complaints(page) == []
        assert page.evaluate(
            "() => [...document.querySelectorAll('.tile :is(button, select, canvas), .controls :is(input, select)')]"
            ".every((one) => one.hidden || one.tabIndex >= 0)"
        )


def test_without_webgl_the_numbers_are_told(pages: Pages, shared: Path, tmp_path: Path, env: dict[str, str]) -> None:
    agent = FakeAgent(live_folder(shared, RUN, 0))
    with a_viewer(tmp_path, str(shared), env=env) as url, playing(moves(agent)):
        page = pages.open(url)
        page.add_init_script(
            "const get = HTMLCanvasElement.prototype.getContext;"
            "HTMLCanvasElement.prototype.getContext = function (kind, ...more) {"
            " return kind === 'webgl2' ? null : get.call(this, kind, ...more); };"
        )
        page.reload()
        said(page, "This browser has no WebGL 2")
        said(page, "push-v3 · step")
