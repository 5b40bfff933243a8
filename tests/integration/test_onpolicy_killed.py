"""kill -9 of PPO between the updates of a rollout: what is trained is what would have been, bit for bit."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ppo_runs import UPDATES, train
from slot_digest import gaps, slot_digest

pytestmark = pytest.mark.trainer


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder)
    found = slot_digest(folder / "run/slots/0")
    assert found["parts"]["run"][1]["updates"] == UPDATES
    assert gaps(found["metrics"]) == []
    return found


def test_hand_overs_and_kills_between_the_updates_of_a_rollout_change_nothing(
    tmp_path: Path, uninterrupted: dict[str, object]
) -> None:
    """Killed, handed over in mid-epoch, killed at the first update after that, and once more from the same place."""
    said = train(tmp_path, {45: "SIGKILL"}, {44: "SIGUSR2"}, {1: "SIGKILL"}, {30: "SIGKILL"}, {77: "SIGTERM"})
    places = re.findall(r"(\d+) of 256 steps into epoch (\d)", said)
    assert len(places) == 5
    # Where an attempt goes on depends on how far the saving was when the one before was killed; the first is certain.
    assert places[0][0] != "0"
    assert slot_digest(tmp_path / "run/slots/0") == uninterrupted


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_kills_before_any_update_change_nothing(tmp_path: Path, uninterrupted: dict[str, object], seed: int) -> None:
    moments = random.Random(seed)
    signals = [moments.choice(("SIGKILL", "SIGKILL", "SIGUSR2")) for _ in range(4)]
    train(tmp_path, *({moments.randrange(1, UPDATES // 5): name} for name in signals))
    assert slot_digest(tmp_path / "run/slots/0") == uninterrupted
