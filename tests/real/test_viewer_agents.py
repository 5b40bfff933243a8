"""Agents at play in a real browser: what a ring says is on its canvas, what nobody can draw is a sentence."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents_on_page import PICTURES, a_mirror, middle_of_red, moves, playing, said, tile
from browser import Pages, complaints
from daemons import wait_for
from fake_agents import EVERY_KIND, FakeAgent, a_header, a_jpeg, live_folder, put_scene, scene_bytes
from policies import RUN
from ports import free_ports
from viewer_entrance import served

from anchorleg.live import wanted
from anchorleg.live.batches import POSE
from viewer.live.hub import HubSettings
from viewer.sources.mirror import MirrorFolder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return a_mirror(tmp_path / "mirror", 2)


@pytest.fixture
def url(shared: Path) -> Iterator[str]:
    with served(MirrorFolder(shared)) as (address, _):
        yield address


@pytest.fixture
def agent(shared: Path) -> FakeAgent:
    return FakeAgent(live_folder(shared, RUN, 0))


def still(agent: FakeAgent, place: tuple[float, float, float] = (0.2, 0.0, 0.25), **more: Any) -> Any:
    """It stands there."""
    return playing(lambda _: agent.pose(*[place] * PICTURES, **more))


@pytest.mark.long
def test_a_box_that_moves_moves_on_the_canvas_and_keys_turn_it(pages: Pages, url: str, agent: FakeAgent) -> None:
    places: list[float] = []

    def sees_it_move() -> bool:
        found = middle_of_red(page)
        places.extend([found[0]] if found else [])
        return bool(places) and max(places) - min(places) > 60

    page = pages.open(url)
    with playing(moves(agent)):
        said(page, "in training · slot 0")
        said(page, "push-v3 · step")
        wait_for(sees_it_move, "the box to move")
        said(page, "s behind")
    with still(agent, (0.6, 0.0, 0.25)):
        wait_for(lambda: distance(middle_of_red(page), middle_of_red(page) or (0, 0)) < 1, "the box at rest")
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
    said(page, "in training · delayed")


def distance(one: tuple[float, float] | None, other: tuple[float, float]) -> float:
    return 1e9 if one is None else ((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2) ** 0.5


@pytest.mark.long
def test_every_kind_of_geom_and_a_goal_are_drawn(pages: Pages, url: str, agent: FakeAgent) -> None:
    page, facts = pages.open(url), {"goal_x": 0.8, "goal_y": 0.0}
    with playing(lambda _: agent.pose((0, 0, 0), facts=facts)):
        wait_for(lambda: colours(page) == {"red", "blue"}, "the box")
    with playing(lambda _: agent.pose((0, 0, 0), facts={**facts, "goal_z": 0.3})):
        wait_for(lambda: colours(page) == {"red", "blue", "yellow"}, "the ball")
    scene = put_scene(agent.folder, scene_bytes(a_header(EVERY_KIND)))
    with playing(lambda _: agent.pose((0, 0, 0), scene=scene)):
        wait_for(lambda: colours(page) == {"red", "blue", "green", "yellow", "pink"}, "all of them")


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


BAD: tuple[tuple[Callable[[FakeAgent], object], str], ...] = (
    (lambda agent: agent.ring.write(POSE, b"\0\2{}"), "A batch of this agent cannot be shown: it cannot be read"),
    (lambda agent: agent.pose((0, 0, 0), place=[0, 0, 1e12]), "too far away to be drawn"),
    (lambda agent: agent.pose((0, 0, 0), bodies=2), "it has 2 bodies, its scene 1"),
    (lambda agent: agent.pose((0, 0, 0), scene=64 * "a"), "Its scene is loading."),
    (lambda agent: agent.pose((0, 0, 0), scene=put_scene(agent.folder, b"evil")), "of its scene, it cannot be read"),
    (lambda agent: agent.jpeg(a_jpeg()[:300]), "Its picture cannot be decoded."),
)


@pytest.mark.long
def test_what_cannot_be_drawn_is_a_sentence_and_the_next_good_one_is_drawn(
    pages: Pages, url: str, agent: FakeAgent
) -> None:
    page = pages.open(url)
    for write, words in BAD:
        with playing(lambda _, write=write: write(agent)):
            said(page, words)
        with still(agent):
            wait_for(lambda: middle_of_red(page), "the box")
            tile(page).get_by_text(words).first.wait_for(state="hidden")


def test_a_body_without_a_rotation_is_drawn_upright(pages: Pages, url: str, agent: FakeAgent) -> None:
    with still(agent, quat=(0, 0, 0, 0)):
        page = pages.open(url)
        wait_for(lambda: middle_of_red(page), "the box")


def test_pictures_and_facts_and_words_of_strangers(pages: Pages, url: str, shared: Path, agent: FakeAgent) -> None:
    name = '<img src=x onerror="document.title=1">'
    other = FakeAgent(live_folder(shared, RUN, 1))

    def write(k: int) -> None:
        agent.jpeg(a_jpeg(200 if k % 2 else 90), origin=name, success=True)
        other.facts(**{name: "<b>bold</b>", "map": 12, "x": 3.25})

    page, seen = pages.open(url), set[int]()
    pixel = "(canvas) => canvas.width && canvas.getContext('2d').getImageData(5, 5, 1, 1).data[0]"

    def sees_two() -> bool:
        seen.add(round(tile(page).locator("canvas").nth(1).evaluate(pixel) / 100))
        return {1, 2} <= seen

    with playing(write):
        said(page, f"by {name}")
        tile(page).locator(".badge", has_text="success").wait_for()
        assert tile(page).get_attribute("data-success") == "true"
        wait_for(sees_two, "two pictures")
        said(page, "<b>bold</b>", 1)
        said(page, "3.25", 1)
        said(page, "cannot be drawn live", 1)
        assert tile(page).get_by_text("cannot be drawn live").is_hidden()
        assert tile(page).locator("img, b").count() == tile(page, 1).locator("img, b").count() == 0


def test_a_contributors_agent_is_chosen_on_the_tile_and_called_by_whose_it_is(
    pages: Pages, url: str, shared: Path, agent: FakeAgent
) -> None:
    """Whatever its batches say of themselves; the job's agent comes back by another choice."""
    guest = FakeAgent(shared.joinpath(*wanted.folder_of(RUN, 0, "any@training")))

    def write(_: int) -> None:
        agent.facts(of="the job")
        guest.facts(of="the guest")

    page = pages.open(url)
    with playing(write):
        said(page, "the job")
        said(page, "in training")
        choice = tile(page).get_by_label("what to show of slot 0")
        choice.select_option("by training")
        said(page, "the guest")
        tile(page).locator(".badge", has_text="by training").wait_for()
        choice.select_option("any")
        said(page, "the job")
        tile(page).locator(".badge", has_text="in training").wait_for()


@pytest.mark.long
def test_a_hidden_tab_asks_for_nothing_and_draws_nothing(
    pages: Pages, url: str, shared: Path, agent: FakeAgent
) -> None:
    frames: list[int] = []
    asked = partial(asked_in, shared)
    page = pages.open(url)
    page.on("websocket", lambda line: line.on("framereceived", lambda _: frames.append(1)))
    page.reload()
    with playing(moves(agent)) as batches:
        said(page, "in training")
        hide(page, hidden=True)
        wait_for(lambda: page.title() and not asked(), "the withdrawal")

        def is_quiet(count: int) -> bool:
            """Whether nothing comes while the agent writes so many batches that nobody wants."""
            came, written = len(frames), batches[0]
            wait_for(lambda: page.title() and batches[0] > written + count, "more batches")
            return len(frames) == came

        wait_for(lambda: is_quiet(5), "the last frame that was under way")
        assert is_quiet(15)
        came = len(frames)
        hide(page, hidden=False)
        wait_for(lambda: page.title() and len(frames) > came + 3, "what comes again")
        assert asked()


def hide(page: Any, *, hidden: bool) -> None:
    """As if another tab were in front of it: a browser without a screen never hides one."""
    page.evaluate(
        f"() => {{ Object.defineProperty(document, 'hidden', {{ value: {str(hidden).lower()}, configurable: true }});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )


def says(page: Any, change: str) -> None:
    """Load the page anew; from now on `change` is made to every `value` that the viewer sends it."""
    page.add_init_script(
        f"const p = JSON.parse; JSON.parse = (...text) => {{ const value = p(...text); {change}; return value; }}"
    )
    page.reload()


def test_the_header_calls_a_run_live_while_it_is(pages: Pages, url: str) -> None:
    page = pages.open(url)
    says(page, "if (value?.is?.run) value.is.run.state = 'finished'")
    page.locator('header .badge[data-state="finished"]').wait_for()
    assert page.locator('header [data-line="live"]').inner_text().strip() == "connected"


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
        page.get_by_label("show live").uncheck()
        wait_for(lambda: asked() == set(), "nobody")
        page.get_by_label("show live").check()
        tile(page, 2).wait_for()
    page.locator('[data-line="lost"]').wait_for()
    with served(MirrorFolder(shared), port):
        wait_for(lambda: page.title() and asked() == {(2, "any")}, "the same over another connection")


@pytest.mark.long
def test_tiles_fit_a_phone_and_all_is_reached_by_the_keyboard(pages: Pages, shared: Path, agent: FakeAgent) -> None:
    with served(MirrorFolder(shared), settings=HubSettings(width=600, height=300)) as (url, _), playing(moves(agent)):
        page = pages.open(url, width=360, dark=True)
        wait_for(lambda: middle_of_red(page), "the box")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        box = tile(page).locator(".view").bounding_box()
        assert abs(box["width"] - 2 * box["height"]) < 2
        assert complaints(page) == []
        assert page.evaluate(
            "() => [...document.querySelectorAll('.tile :is(button, select, canvas), .controls :is(input, select)')]"
            ".every((one) => one.hidden || one.tabIndex >= 0)"
        )


def test_without_webgl_the_numbers_are_told(pages: Pages, url: str, agent: FakeAgent) -> None:
    with playing(moves(agent)):
        page = pages.open(url)
        page.add_init_script(
            "const get = HTMLCanvasElement.prototype.getContext;"
            "HTMLCanvasElement.prototype.getContext = function (kind, ...more) {"
            " return kind === 'webgl2' ? null : get.call(this, kind, ...more); };"
        )
        page.reload()
        said(page, "This browser has no WebGL 2")
        said(page, "push-v3 · step")


@pytest.mark.long
def test_who_trains_no_more_is_not_said_to_be_in_training(pages: Pages, url: str, agent: FakeAgent) -> None:
    page = pages.open(url)
    says(page, "for (const tile of value?.shown?.tiles ?? []) tile.at_work = false")
    with playing(moves(agent)):
        said(page, "s behind")  # what comes is shown, whatever is known of the job
    tile(page).locator('.badge[data-state="stopped"]').wait_for()
    assert "in training" not in tile(page).locator("figcaption").inner_text()
