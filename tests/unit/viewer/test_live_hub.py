"""Agents on their way to pages: asked for while somebody looks, checked, one newest batch each, nothing afterwards."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from builders import NOW
from daemons import PATIENCE_S, wait_for
from fake_agents import FakeAgent, a_header, a_jpeg, live_folder, put_scene, scene_bytes, swing
from watched_runs import a_watched_run

from anchorleg.job import Job
from anchorleg.live import wanted
from anchorleg.live.batches import POSE, packed
from viewer.live.hub import CROWDED, AgentPlace, Hub, HubSettings, film_command, on_screen
from viewer.live.shown import (
    UNSEEN_BYTES,
    UNSEEN_MESSAGES,
    AgentNews,
    AgentsShown,
    LiveChoice,
    Mailbox,
    SceneFile,
)
from viewer.model import AgentRow, LiveFacts, PageSnapshot, RunPage, ViewChoice
from viewer.pacing import NO_END, Pacer
from viewer.sources.runs import RunFolders
from viewer.sources.shared import SHARED_S

RUN = "demo-0123abcd"


def facts(shared: Path, slots: int = 3, run: str = RUN, **more: Any) -> PageSnapshot:
    agents = [AgentRow(slot=k, success=0.9 - 0.2 * k, has_policy=True) for k in range(slots)]
    live = LiveFacts(run_id=run, shared=str(shared), agents=tuple(agents), **more)
    return PageSnapshot(source="mirror", place="x", run=RunPage(run_id=run, name="demo", live=live))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    for slot in range(6):
        live_folder(tmp_path, RUN, slot).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def new_hub() -> Iterator[Callable[..., Hub]]:
    made: list[Hub] = []

    def make(**more: Any) -> Hub:
        made.append(Hub(HubSettings(**more), every_s=0.01))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


def take(box: Mailbox, kind: type[Any], fits: Callable[[Any], object] = lambda _: True) -> Any:
    """The next news of that kind; all before it are taken, and said to be seen."""
    while True:
        found = box.take(PATIENCE_S)
        assert found is not None, f"no {kind.__name__} came"
        number, news = found
        box.seen(number)
        if isinstance(news, kind) and fits(news):
            return news


def tiles(box: Mailbox, fits: Callable[[list[dict[str, Any]]], object] = bool) -> list[dict[str, Any]]:
    return take(box, AgentsShown, lambda news: fits(news.value["tiles"])).value["tiles"]


def wishes(shared: Path) -> set[tuple[int, str]]:
    found = wanted.read(shared / "v1" / "runs" / RUN / wanted.FILE)
    return {(wish.slot, wish.lane) for one in found.values() for wish in one.wishes}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "live"]


def test_the_best_are_asked_for_and_their_newest_batch_and_its_scene_come(
    shared: Path, new_hub: Callable[..., Hub]
) -> None:
    hub = new_hub()
    box = hub.enter()
    hub.tell("", facts(shared))
    assert [tile["slot"] for tile in tiles(box)] == [0, 1]
    wait_for(lambda: wishes(shared) == {(0, "any"), (1, "any")}, "the wishes")
    agent = FakeAgent(live_folder(shared, RUN, 1))
    agent.pose(swing(0))
    scene = take(box, SceneFile)
    assert scene.sha256 == agent.scene
    news = take(box, AgentNews)
    assert (news.slot, news.batches[0].header["step"]) == (1, 6)
    agent.pose(swing(1))
    found = box.take(PATIENCE_S)
    assert found is not None
    assert isinstance(found[1], AgentNews), "the scene is sent once"


def test_a_page_is_shown_no_run_before_it_says_which(shared: Path, new_hub: Callable[..., Hub]) -> None:
    hub = new_hub()
    for run in ("", "b"):
        hub.tell(run, facts(shared))
    page, other = hub.enter(None), hub.enter()
    assert tiles(other)
    assert page.take(0) is None
    assert len(threads()) == 1
    hub.leave(other)
    wait_for(lambda: not wishes(shared) and not threads(), "an end where only a page is that has not said which run")
    hub.change(page, run="b")
    assert tiles(page)


def test_ctrl_c_while_its_thread_starts_ends_it(
    shared: Path, new_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = new_hub()
    hub.tell("", facts(shared))
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        hub.enter()
    hub.close()


def test_nobody_looks_nothing_is_asked_for_and_no_thread_is_there(shared: Path, new_hub: Callable[..., Hub]) -> None:
    hub = new_hub()
    hub.tell("", facts(shared))
    assert not threads()
    box = hub.enter()
    wait_for(lambda: wishes(shared), "the wishes")
    hub.change(box, asleep=True)
    wait_for(lambda: not wishes(shared) and not threads(), "the withdrawal of who hides")
    hub.change(box, asleep=False)
    assert not threads(), "nobody has read anything of the run since it hid"
    hub.tell("", facts(shared))
    wait_for(lambda: wishes(shared), "the wishes of who is back")
    hub.change(box, choice=LiveChoice(on=False))
    wait_for(lambda: not wishes(shared) and not threads(), "the withdrawal of who wants none")
    hub.change(box, choice=LiveChoice())
    wait_for(lambda: wishes(shared), "the wishes again")
    hub.leave(box)
    wait_for(lambda: not wishes(shared) and not threads(), "the withdrawal of who is gone")


@pytest.mark.parametrize("plays", [False, True])
def test_what_waits_of_one_run_comes_to_no_tile_of_the_next(
    shared: Path, new_hub: Callable[..., Hub], plays: bool
) -> None:
    hub, next_run = new_hub(top_k=1), "next-4567cdef"
    box = hub.enter("a")
    hub.tell("a", facts(shared))
    FakeAgent(live_folder(shared, RUN, 0)).pose(swing(0), task="the first run's")
    wait_for(box.waiting, "what it does")
    next_agent = FakeAgent(live_folder(shared, next_run, 0))
    if plays:
        next_agent.pose(swing(1), task="the next run's")
    hub.tell("b", facts(shared, run=next_run))
    hub.change(box, run="b")
    wait_for(lambda: (box._shown or {}).get("run") == next_run, "the next run's tiles")
    assert take(box, AgentsShown).value["run"] == next_run
    if not plays:
        assert box.take(0) is None
        next_agent.pose(swing(1), task="the next run's")
    assert take(box, AgentNews).batches[0].header["task"] == "the next run's"


def test_a_program_of_ones_own_is_watched_once_a_page_looks(
    tmp_path: Path, new_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanted, "LOOK_EVERY_S", 0.0)
    run_dir = a_watched_run(tmp_path / "own", NOW, name="own", slots=2, jobs=1, command=["./play"])
    source = RunFolders([run_dir.path], "own", pacer=Pacer(0.0, NO_END, monotonic=lambda: 0.0))
    hub = new_hub()
    box = hub.enter()
    seen = source.look(ViewChoice(), NOW)
    assert seen.run is not None
    assert seen.run.live is None, "it does not show itself, as far as is known"
    job = Job(run_dir.attempt(1, 0), 1, 0, run_id=seen.run.run_id, shared_dir=run_dir.path / "shared")
    assert job.watched() == 0
    hub.tell("", source.look(ViewChoice(), NOW + SHARED_S))
    assert [tile["slot"] for tile in tiles(box)] == [1]
    wait_for(job.watched, "the wish")
    assert job.show({"badges": 3})
    assert take(box, AgentNews).batches[0].header["facts"] == {"badges": 3}


def test_four_lanes_a_run_at_most_whoever_asks(shared: Path, new_hub: Callable[..., Hub]) -> None:
    hub = new_hub()
    one, other = hub.enter(), hub.enter()
    hub.change(one, choice=LiveChoice(pins=(0, 1, 2, 3)))
    hub.change(other, choice=LiveChoice(pins=(4, 5)))
    hub.tell("", facts(shared, slots=6))
    noted = tiles(other, lambda them: any(tile["note"] for tile in them))
    assert {tile["note"] for tile in noted} == {CROWDED}
    assert wishes(shared) == {(slot, "any") for slot in range(4)}


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda agent: agent.ring.write(POSE, b"\0\2{}"), "it cannot be read"),
        (lambda agent: agent.ring.write(9, packed(agent.header())), "its kind is unknown"),
        (lambda agent: agent.pose(swing(0), unit=1e5), "too far away"),
        (lambda agent: agent.pose(swing(0), place=[0, 1e300, 0]), "too far away"),
        (lambda agent: agent.jpeg(b"\xff\xd8nonsense"), "too large, or has no size"),
        (lambda agent: agent.jpeg(a_jpeg(size=(4000, 2))), "too large"),
        (lambda agent: agent.pose(swing(0), bodies=3), "3 bodies, its scene 1"),
        (lambda agent: agent.pose(swing(0), scene=put_scene(agent.folder, b"no scene")), "of its scene, it cannot"),
        (
            lambda agent: agent.pose(swing(0), scene=put_scene(agent.folder, scene_bytes(a_header(version=9)))),
            "of its scene, it has another version",
        ),
    ],
)
def test_what_cannot_be_shown_is_counted_and_named_and_the_next_good_one_is_shown(
    shared: Path, new_hub: Callable[..., Hub], write: Callable[[FakeAgent], object], why: str
) -> None:
    hub = new_hub(top_k=1)
    box = hub.enter()
    hub.tell("", facts(shared))
    agent = FakeAgent(live_folder(shared, RUN, 0))
    write(agent)
    told = tiles(box, lambda them: them and them[0]["bad"])[0]
    assert why in told["why"]
    assert told["bad"] == 1
    agent.pose(swing(1))
    assert tiles(box, lambda them: not them[0]["why"])[0]["bad"] == 1
    assert take(box, AgentNews).batches[0].kind == POSE


def test_a_job_that_is_over_and_goes_on_writing_is_not_shown(shared: Path, new_hub: Callable[..., Hub]) -> None:
    hub = new_hub(top_k=1)
    box = hub.enter()
    hub.tell("", facts(shared))
    agent = FakeAgent(live_folder(shared, RUN, 0))
    agent.pose(swing(0), attempt=4, task="successor")
    assert take(box, AgentNews).batches[-1].header["task"] == "successor"
    agent.pose(swing(1), attempt=3, task="ghost")
    agent.pose(swing(2), attempt=4, task="successor")
    news = take(box, AgentNews, lambda one: one.batches[-1].header["step"] == 18)
    assert {batch.header["task"] for batch in news.batches} == {"successor"}


def test_a_page_that_takes_nothing_has_one_entry_an_agent(shared: Path, new_hub: Callable[..., Hub]) -> None:
    hub = new_hub(top_k=2)
    slow, quick = hub.enter(), hub.enter()
    hub.tell("", facts(shared))
    agents = [FakeAgent(live_folder(shared, RUN, slot)) for slot in (0, 1)]
    for k in range(20):
        for slot, agent in enumerate(agents):
            agent.pose(swing(k))
            take(quick, AgentNews, lambda news, slot=slot: news.slot == slot)
    assert slow.waiting() == 2
    last = [take(slow, AgentNews) for _ in agents]
    assert {news.batches[-1].header["step"] for news in last} == {120}


@pytest.mark.parametrize(("size", "most"), [(40_000, -(-UNSEEN_BYTES // 40_000)), (1_000, UNSEEN_MESSAGES)])
def test_a_slow_line_gets_no_more_than_it_has_room_for(
    shared: Path, new_hub: Callable[..., Hub], size: int, most: int
) -> None:
    hub = new_hub(top_k=1)
    box = hub.enter()
    hub.tell("", facts(shared))
    tiles(box)
    agent, sent = FakeAgent(live_folder(shared, RUN, 0)), 0
    for _ in range(30):
        agent.jpeg(a_jpeg() + bytes(size))
        wait_for(box.waiting, "the next one")
        found = box.take(0)
        if found is None:
            break
        last, sent = found[0], sent + 1
    assert sent == most
    box.seen(last)
    assert box.take(PATIENCE_S) is not None


AGENT = AgentPlace(Path("/data/my runs/shared"), "mt10-0123abcd", 3, "any")
EVIL = "evil; rm -rf ~/'$(x)"


@pytest.mark.parametrize(("said", "task"), [({"task": "push-v3"}, "push-v3"), ({"task": EVIL}, EVIL), ({}, "reach-v3")])
def test_the_command_of_a_film_is_for_a_shell_whatever_strangers_wrote(said: dict[str, Any], task: str) -> None:
    words = shlex.split(film_command(AGENT, said, ("reach-v3", EVIL, "push-v3")))
    assert words[:5] == ["trainer", "play", "mt10-0123abcd/3", "--shared-dir", "/data/my runs/shared"]
    assert words[5:8] == ["--task", task, "--out"]
    assert "/" not in words[8]
    assert film_command(AGENT, said, ()) == ""


def agent(slot: int, success: float | None, **more: Any) -> AgentRow:
    return AgentRow(slot=slot, success=success, **more)


SCORES = (agent(0, None, step=9), agent(1, 0.2, training=0.9), agent(2, None, training=0.5), agent(3, 0.1))


@pytest.mark.parametrize(
    ("before", "agents", "seats", "pins", "shown"),
    [
        ((), SCORES, 4, (), (2, 1, 3, 0)),  # an evaluation counts before training, training before steps
        ((), (*SCORES, agent(4, 1.0, at_work=False)), 9, (), (2, 1, 3, 0)),
        ((0, 1), (agent(0, 0.5), agent(1, 0.4), agent(2, 0.44)), 2, (), (0, 1)),  # not by so little
        ((0, 1), (agent(0, 0.5), agent(1, 0.4), agent(2, 0.46)), 2, (), (0, 2)),
        ((2, 1, 0), (agent(0, 0.1), agent(1, 0.3), agent(2, 0.2)), 2, (), (2, 1)),  # places stay
        ((2, 1), SCORES, 1, (0, 3), (0, 3)),
        ((2, 1), SCORES, 2, (7,), (2, 1)),
    ],
)
def test_the_best_are_on_screen_and_whom_the_user_pinned(
    before: tuple[int, ...], agents: tuple[AgentRow, ...], seats: int, pins: tuple[int, ...], shown: tuple[int, ...]
) -> None:
    assert on_screen(before, agents, seats, pins) == shown


# --- as bytes ---------------------------------------------------------------------------------------------------------


def others(shared: Path, who: str = "ben", slot: int = 0) -> Path:
    """The folder of a contributor's agents."""
    folder = shared.joinpath(*wanted.folder_of(RUN, slot, f"any@{who}"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def with_others(shared: Path, *who: str) -> PageSnapshot:
    """The first slot is also played by these."""
    agents = (AgentRow(slot=0, success=0.9, others=who), AgentRow(slot=1, success=0.7))
    live = LiveFacts(run_id=RUN, shared=str(shared), agents=agents)
    return PageSnapshot(source="mirror", place="x", run=RunPage(run_id=RUN, name="demo", live=live))


def test_what_a_contributor_left_who_may_not_be_watched_is_not_shown(shared: Path, new_hub: Callable[..., Hub]) -> None:
    FakeAgent(others(shared)).facts(of="ben")
    hub = new_hub()
    box = hub.enter()
    hub.change(box, choice=LiveChoice(lanes=((0, "any@ben"),)))
    hub.tell("", with_others(shared))
    (told, _) = tiles(box, lambda them: them[0]["note"])
    assert told["note"] == "ben shows nothing now."
    wait_for(lambda: (0, "any@ben") in wishes(shared), "the wish, should he come back")
    assert AgentPlace(shared, RUN, 0, "any@ben") not in hub._streams
    hub.tell("", with_others(shared, "ben"))
    assert take(box, AgentNews).lane == "any@ben"


def test_what_a_hidden_page_last_saw_is_not_shown_to_others(shared: Path, new_hub: Callable[..., Hub]) -> None:
    """By another word for the same run: a contributor who was dropped meanwhile would be offered for days."""
    hub = new_hub()
    page, hidden = hub.enter(RUN), hub.enter("")
    for run in (RUN, ""):
        hub.tell(run, with_others(shared, "ben"))
    assert tiles(page)[0]["others"] == ["ben"]
    hub.change(hidden, asleep=True)
    hub.tell(RUN, with_others(shared))
    assert tiles(page, lambda them: not them[0]["others"])
