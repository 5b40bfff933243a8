"""kill -9 between updates, also of one rollout: what is trained is what would have been, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ppo_runs import OFF_POLICY, PPO, UPDATES, attempt, train, updates_of
from slot_digest import gaps, slot_digest

pytestmark = pytest.mark.trainer
Digest = dict[str, object]


#: The rest is long.
QUICK = ("ppo", "sac", "td3")
TRAININGS = {**OFF_POLICY, "ppo": PPO}
COUNTS = {**{name: updates_of(name) for name in OFF_POLICY}, "ppo": UPDATES}
PARAMS = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in sorted(TRAININGS)]


@pytest.fixture(scope="module", params=PARAMS)
def uninterrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Digest]:
    """(the algorithm, what it comes to alone)."""
    folder = tmp_path_factory.mktemp(request.param)
    train(folder, training=TRAININGS[request.param])
    found = slot_digest(folder / "run/slots/0")
    assert found["parts"]["run"][1]["updates"] == COUNTS[request.param]
    assert gaps(found["metrics"]) == []
    return request.param, found


def test_kills_and_hand_overs_between_updates_change_nothing(tmp_path: Path, uninterrupted: tuple[str, Digest]) -> None:
    """Killed before there is a checkpoint, handed over (PPO in mid-epoch), killed at the first update after that, and
    twice later.
    """
    name, wanted = uninterrupted
    moments = {9: "SIGKILL"}, {44: "SIGUSR2"}, {1: "SIGKILL"}, {77: "SIGKILL"}, {60: "SIGKILL"}
    said = train(tmp_path, *moments, training=TRAININGS[name])
    assert said.count("before update") == len(moments)
    assert slot_digest(tmp_path / "run/slots/0") == wanted


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_kills_before_any_update_change_nothing(tmp_path: Path, uninterrupted: tuple[str, Digest], seed: int) -> None:
    name, wanted = uninterrupted
    moments = random.Random(seed)
    signals = [moments.choice(("SIGKILL", "SIGKILL", "SIGUSR2")) for _ in range(4)]
    interruptions = ({moments.randrange(1, COUNTS[name] // 5): one} for one in signals)
    train(tmp_path, *interruptions, training=TRAININGS[name])
    assert slot_digest(tmp_path / "run/slots/0") == wanted


@pytest.mark.long
def test_a_replay_may_move_from_one_place_to_the_other(tmp_path: Path) -> None:
    """From the machine's memory to the learner's device and back, at each attempt: the numbers are those of neither."""
    train(tmp_path / "host", training=OFF_POLICY["td3"])
    wanted = slot_digest(tmp_path / "host/run/slots/0")
    moved = tmp_path / "moved"
    for signals, name in (({30: "SIGUSR2"}, "td3"), ({60: "SIGUSR2"}, "device"), ({60: "SIGUSR2"}, "td3")):
        attempt(moved, signals, OFF_POLICY[name])
    train(moved, training=OFF_POLICY["device"])
    assert slot_digest(moved / "run/slots/0") == wanted
