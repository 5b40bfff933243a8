"""An episode for a page that is a file: the best slot's, whole or cut, and small; else why there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from viewer.live import recording
from viewer.live.recording import NoEpisodeError, record
from viewer.live.troupe import Role
from viewer.model import AgentRow, LiveFacts

PLAYER = Path(__file__).parents[2] / "support" / "fake_player.py"
FACTS = LiveFacts(
    run_id="demo-0123abcd",
    shared="/nowhere",
    agents=(
        AgentRow(slot=0, success=0.4, has_policy=True),
        AgentRow(slot=1, success=0.9, has_policy=True, at_work=False),
        AgentRow(slot=2, success=1.0),
    ),
)


def play(role: Role, folder: Path) -> list[str]:
    words = ["live", str(role.shared), role.run_id, str(role.slot), "--ring", str(folder), "--lane", role.lane]
    return [sys.executable, str(PLAYER), *words]


def test_the_best_published_policy_plays_until_it_is_long_enough() -> None:
    found = record(FACTS, command=play, longest_s=0.5)
    assert found.agent.slot == 1, "a job that is over has a policy all the same, and slot 2 has none"
    assert {batch.header["facts"]["slot"] for batch in found.batches} == {"1"}
    times = [batch.header["at"] for batch in found.batches]
    assert times == sorted(times)
    assert times[-1] - times[0] >= 0.5
    assert found.scene is not None
    assert {batch.header["scene"] for batch in found.batches} == {found.scene.sha256}


def test_one_episode_is_kept_and_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PLAYER", "short")
    found = record(FACTS, command=play, longest_s=1e9)
    assert len({batch.header["episode"] for batch in found.batches}) == 1
    assert 1 <= len(found.batches) <= 5


def test_what_would_make_a_large_file_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(FACTS, command=play, longest_s=0.1)
    assert whole.scene is not None
    monkeypatch.setattr(recording, "MOST_BYTES", len(whole.scene.data) + 3 * len(whole.batches[0].body))
    assert len(record(FACTS, command=play, longest_s=1e9).batches) == 3
    monkeypatch.setattr(recording, "MOST_BYTES", len(whole.scene.data) - 1)
    with pytest.raises(NoEpisodeError, match="its scene is too large for a file"):
        record(FACTS, command=play, longest_s=0.1)


@pytest.mark.parametrize(
    ("mode", "words"), [("dies", "slot 3 has published no policy"), ("facts", "its environment cannot be drawn")]
)
def test_who_shows_nothing_says_why(monkeypatch: pytest.MonkeyPatch, mode: str, words: str) -> None:
    monkeypatch.setenv("FAKE_PLAYER", mode)
    with pytest.raises(NoEpisodeError, match=words):
        record(FACTS, command=play, longest_s=0.1)


def test_a_player_that_shows_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "WAIT_S", 0.5)
    with pytest.raises(NoEpisodeError, match="nothing came of it within"):
        record(FACTS, command=lambda *_: [sys.executable, "-c", "import sys; sys.stdin.read()"], longest_s=0.0)


def test_without_a_policy_nobody_plays() -> None:
    with pytest.raises(NoEpisodeError, match="no slot has published a policy"):
        record(FACTS.model_copy(update={"agents": FACTS.agents[2:]}), command=play)
    with pytest.raises(NoEpisodeError, match="cannot be started here"):
        record(FACTS, command=lambda *_: ["/nowhere/python"])
