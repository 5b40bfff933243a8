"""Ranks as real processes: what they tell each other, and what they say when one of them does not go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import WORK_S

pytest.importorskip("torch")


pytestmark = pytest.mark.trainer
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "group_ranks.py"

SCENES = ("exchange", "differ", "fail", "die", "listen", "freeze")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Scene → what each of three ranks came to."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("ranks")), "3", *SCENES],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_what_ranks_tell_each_other_comes_in_their_order(played: dict[str, list[Any]]) -> None:
    found = played["exchange"]
    assert [one["own"] for one in found] == [[0, 1], [2, 3], [4, 5]]
    assert [one["gathered"] for one in found] == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 3
    assert [one["told"] for one in found] == [5, 5, 5]
    assert [one["shared"] for one in found] == ["from 0"] * 3
    assert [one["collected"] for one in found] == [[0, 100_000, 200_000], [], []]


@pytest.mark.long
def test_ranks_that_differ_are_named_by_all(played: dict[str, list[Any]]) -> None:
    words = "the parameters of ranks 1, 2 differ from those of rank 0"
    assert played["differ"] == [["RanksError", 8, words]] * 3


@pytest.mark.parametrize(
    ("scene", "end"), [("fail", ["EnvironmentFailedError", 6, "environment 3 (reach-v3) failed"]), ("die", None)]
)
def test_a_rank_that_fails_or_is_killed_ends_the_others(played: dict[str, list[Any]], scene: str, end: Any) -> None:
    *others, last = played[scene]
    assert last == end
    for kind, code, words in others:
        assert (kind, code) == ("RanksError", 8)
        assert words.startswith("one of the 3 ranks ended")


def test_the_store_of_one_node_listens_on_its_loopback_address_and_the_owner_alone_reads_where(
    played: dict[str, list[Any]],
) -> None:
    for *addresses, mode in played["listen"]:
        assert [address.partition(":")[0] for address in addresses] == ["0100007F"]
        assert mode == "600"


def test_a_rank_0_that_is_frozen_is_given_up_by_the_others(played: dict[str, list[Any]]) -> None:
    assert played["freeze"][0] is None
    for kind, code, words in played["freeze"][1:]:
        assert (kind, code) == ("RanksError", 8)
        assert words.startswith("one of the 3 ranks was silent for")


@pytest.mark.long
def test_who_trains_alone_needs_no_torch_that_is_distributed() -> None:
    code = "import torch.distributed as d; del d.TCPStore, d.PrefixStore; import trainer.algorithms.base"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=WORK_S
    )
    assert done.returncode == 0, done.stderr
