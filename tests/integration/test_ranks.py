"""Several processes train one slot to the bits that one comes to, whatever is killed and however many go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ppo_runs import LOST, SHARDED, SHARDED_UPDATES, attempt
from slot_digest import gaps, slot_digest

from anchorleg.job import HANDED_OVER

pytestmark = pytest.mark.trainer
SLOT = "run/slots/0"


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Four shards in one process."""
    folder = tmp_path_factory.mktemp("one")
    code, words = attempt(folder, {}, SHARDED)
    assert code == 0, words
    found = slot_digest(folder / SLOT)
    assert found["parts"]["run"][1]["updates"] == SHARDED_UPDATES
    assert gaps(found["metrics"]) == []
    return found


def test_two_ranks_that_hand_over_lose_one_and_go_on_as_one_change_nothing(
    tmp_path: Path, by_one: dict[str, object]
) -> None:
    code, words = attempt(tmp_path, {20: "SIGUSR2"}, SHARDED, ranks=2)
    assert code == HANDED_OVER, words
    code, words = attempt(tmp_path, {11: "1 SIGKILL"}, SHARDED, ranks=2)
    assert code == LOST, words
    assert "rank 1 was killed by SIGKILL: the ranks end, the last checkpoint is good" in words
    assert "Traceback" not in words
    code, words = attempt(tmp_path, {}, SHARDED)
    assert code == 0, words
    assert slot_digest(tmp_path / SLOT) == by_one


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_any_number_of_ranks_that_divides_the_shards_trains_the_bits_of_one(
    tmp_path: Path, by_one: dict[str, object], ranks: int
) -> None:
    code, words = attempt(tmp_path, {}, SHARDED, ranks=ranks)
    assert code == 0, words
    assert slot_digest(tmp_path / SLOT) == by_one


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_kills_of_random_ranks_and_other_numbers_of_ranks_change_nothing(
    tmp_path: Path, by_one: dict[str, object], seed: int
) -> None:
    moments = random.Random(seed)
    for _ in range(3):
        ranks = moments.choice((2, 4))
        who = moments.randrange(ranks)
        code, words = attempt(tmp_path, {moments.randrange(1, 20): f"{who} SIGKILL"}, SHARDED, ranks=ranks)
        assert code == LOST, words
    code, words = attempt(tmp_path, {}, SHARDED, ranks=2)
    assert code == 0, words
    assert slot_digest(tmp_path / SLOT) == by_one
