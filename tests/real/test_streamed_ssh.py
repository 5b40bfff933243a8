"""A contributor's agents at play, from its laptop over a real sshd to the page of whoever watches the training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import wait_for

pytest.importorskip("metaworld")

from laptops import Machine
from published import RUN, publish, training_of

from anchorleg.live.batches import POSE
from anchorleg.live.ring import newest_number
from anchorleg.live.wanted import FILE, folder_of, read
from syncd import store
from viewer.live.hub import Hub, HubSettings
from viewer.live.shown import AgentNews, AgentsShown, LiveChoice, Mailbox, SceneFile
from viewer.model import ViewChoice
from viewer.sources.mirror import MirrorFolder

pytestmark = pytest.mark.trainer
LANE = "any@ben"


class Page:
    """Somebody's page of what lies in `folder`, as the viewer's server makes it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.hub = MirrorFolder(folder), Hub(HubSettings())
        self.box: Mailbox = self.hub.enter()
        self.news: list[Any] = []

    def look(self) -> None:
        """The viewer's other thread looks, and the page takes what came."""
        self.hub.tell("", self.source.look(ViewChoice(), time.time()))
        while (found := self.box.take(0.05)) is not None:
            self.box.seen(found[0])
            self.news.append(found[1])

    def until(self, fits: Callable[[Any], object], what: str) -> Any:
        """The first news that fits."""

        def look() -> Any:
            self.look()
            return next((one for one in self.news if fits(one)), None)

        wait_for(look, what)
        return next(one for one in self.news if fits(one))

    def until_offered(self, *who: str) -> None:
        self.news.clear()
        self.until(lambda one: others_of(one) == list(who), f"the offer of {who}")


def others_of(news: Any) -> list[str] | None:
    tiles = news.value["tiles"] if isinstance(news, AgentsShown) else []
    return tiles[0]["others"] if tiles else None


@pytest.fixture
def new_page() -> Iterator[Callable[[Path], Page]]:
    made: list[Page] = []

    def make(folder: Path) -> Page:
        made.append(Page(folder))
        return made[-1]

    yield make
    for page in made:
        page.hub.close()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    publish(tmp_path / "shared", training=training_of(horizon=100))
    return tmp_path / "shared"


def plays(machine: Machine, *words: str) -> None:
    """Its syncd and its actors run."""
    machine.start("watch", "syncd", "watch")
    wait_for(lambda: store.Shared(machine.folder).slots(), f"the mirror; {machine.said('watch')}")
    machine.start("actors", "trainer", "actors", "--shared-dir", str(machine.folder), "--num-envs", "2", *words)


def sent_by(machine: Machine) -> int:
    from syncd.outbox import read_contributions

    return read_contributions(machine.folder).sent


def place(root: Path, lane: str = LANE) -> Path:
    return root.joinpath(*folder_of(RUN, 0, lane))


@pytest.mark.long
def test_who_watches_sees_a_contributors_agents_and_unwatched_nothing_is_sent(
    new_machine: Callable[..., Machine], new_page: Callable[[Path], Page], shared: Path
) -> None:
    ben, anna = new_machine("ben", shared, gated=True), new_machine("anna", shared)
    plays(ben, "--contribute", "--stream")
    anna.start("watch", "syncd", "watch")
    wait_for(lambda: place(shared).is_dir(), f"the offer; {ben.said('watch')}")
    wait_for(lambda: sent_by(ben) > 0, f"segments; {ben.said('actors')}")
    own = ben.folder / "outbox" / "live" / RUN / "0"
    assert [path.name for path in own.iterdir()] == ["beat"], "nobody watches: nothing is written here, or there"
    assert not list(place(shared).iterdir())

    page = new_page(anna.folder)
    page.until_offered("ben")
    assert not (own / "any.ring").exists(), "the training is watched, and not this contributor"
    page.hub.change(page.box, choice=LiveChoice(lanes=((0, LANE),)))
    news = page.until(lambda one: isinstance(one, AgentNews) and one.lane == LANE, "a batch")
    batch = news.batches[-1]
    assert (batch.kind, batch.header["origin"]) == (POSE, "ben")
    assert page.until(lambda one: isinstance(one, SceneFile), "the scene").sha256 == batch.header["scene"]

    ring = place(shared) / "any.ring"
    number, before = newest_number(ring), sent_by(ben)
    wait_for(lambda: (page.look(), newest_number(ring) >= number + 3)[1], "three more batches")
    meanwhile = sent_by(ben) - before

    def is_quiet() -> bool:
        """Whether no batch comes while as many segments do as came beside three batches."""
        number, before = newest_number(ring), sent_by(ben)
        wait_for(lambda: sent_by(ben) > before + meanwhile, "more segments")
        return newest_number(ring) == number

    page.hub.change(page.box, asleep=True)
    wait_for(lambda: not read(ben.folder / "outbox" / "live" / RUN / FILE), "the wish's end at the contributor")
    wait_for(is_quiet, "the last batch that was under way")
    assert is_quiet()

    number = newest_number(ring)
    page.hub.change(page.box, asleep=False)
    wait_for(lambda: (page.look(), newest_number(ring) > number)[1], "batches again")
    store.hold(store.Inbox.of(store.Shared(shared), "ben").path, "most of it was refused", now=time.time())
    page.until_offered()
    wait_for(lambda: not place(shared).exists(), "the end of what was shown")


@pytest.mark.long
def test_without_the_consent_nothing_is_offered(
    new_machine: Callable[..., Machine], new_page: Callable[[Path], Page], shared: Path
) -> None:
    ben = new_machine("ben", shared, gated=True)
    plays(ben, "--contribute")
    page = new_page(shared)
    page.hub.change(page.box, choice=LiveChoice(lanes=((0, LANE),)))
    page.until(lambda one: isinstance(one, AgentsShown) and one.value["tiles"], "the page")
    wait_for(lambda: (page.look(), sent_by(ben) > 0)[1], "segments")
    assert not (ben.folder / "outbox" / "live").exists()
    assert not place(shared).exists()
    assert not any(isinstance(one, AgentNews) for one in page.news)
