"""Agents in a terminal: a line a second each, pictures as half blocks, and nothing that a terminal would obey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_agents import FakeAgent, live_folder
from policies import RUN, a_draft, tensors

from anchorleg.live.batches import FACTS
from syncd import store
from viewer import showing
from viewer.lines import AgentLines
from viewer.live.hub import Hub
from viewer.live.shown import AgentNews, CheckedBatch
from viewer.sources.found import find_source


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    place = store.Shared(tmp_path).slot(RUN, 0)
    store.publish(place, a_draft(place, 1, 1), store.rounded(tensors(0)))
    return tmp_path


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub(every_s=0.01)
    yield made
    made.close()


def said(
    shared: Path, hub: Hub, capsys: pytest.CaptureFixture[str], write: Callable[[FakeAgent], object], *words: str
) -> str:
    """What is printed until all `words` were."""
    agent, told = FakeAgent(live_folder(shared, RUN, 0)), ""
    write(agent)
    while not all(word in told for word in words):
        showing.print_lines(find_source(str(shared)), hub, every_s=0.3, rounds=2)
        told += capsys.readouterr().out
    return told


def test_facts_are_told_and_escapes_are_not_obeyed(shared: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(shared, hub, capsys, lambda agent: agent.facts(map="\x1b[2J\nPallet", x=3), "Pallet")
    assert "\x1b" not in told
    assert "map \\x1b[2J Pallet, x 3" in told


class Told:
    """A hub whose page gets a batch whenever it asks, a tenth of a second later."""

    def __init__(self) -> None:
        self.now, self.step = 0.0, 0

    def enter(self) -> Told:
        return self

    def take(self, timeout_s: float) -> tuple[int, AgentNews]:
        self.now, self.step = self.now + 0.1, self.step + 1
        header = {"origin": "training", "task": "", "step": self.step, "return": 0.0, "success": None, "facts": {}}
        return self.step, AgentNews(0, "any", (CheckedBatch(FACTS, header, b""),))

    def seen(self, number: int) -> None:
        assert number == self.step


def test_an_agent_has_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    AgentLines(told, clock=lambda: told.now).say_for(4.95)  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("agent: ") == 5
