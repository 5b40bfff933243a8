"""Ranks of one job on a real Slurm: a dead rank, scancel, the walltime, two nodes: the bits are those of one alone."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from ppo_runs import LOST, PROGRAM, ROOT, SHARDED, attempt
from relay import PATIENT, NewRelay, Relay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm, rows_of

pytest.importorskip("torch")

from slot_digest import slot_digest

from anchorleg.job import HANDED_OVER

pytestmark = [pytest.mark.slurm, pytest.mark.trainer]
LAUNCH = PROGRAM.with_name("launch_ranks.py")


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("one")
    code, words = attempt(folder, {}, SHARDED)
    assert code == 0, words
    return slot_digest(folder / "run/slots/0")


def of_ranks(new_relay: NewRelay, slurm: SlurmCluster, signals: list[dict[str, str]], **section: object) -> Relay:
    return on_slurm(
        new_relay,
        slurm,
        "ranks",
        command=[sys.executable, str(PROGRAM), json.dumps(signals), "train", "--ranks", "2"],
        params=SHARDED,
        slurm={"mem": "4G", "ranks": 2, **section},
        relay=PATIENT,
        lead_seconds=60,
    )


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("leave_code(attempt_dir, 75) if rank == 0 else None", "ended with 75"),
        ("leave_code(attempt_dir, 93) if rank == 0 else None", "ended with 93"),
        ("os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else signal.pause()", "ended with 8"),
        ("print('a place', place, flush=True)", "RankPlace(rank=1, size=2, at=1, here=2, host='127.0.0.1')"),
    ],
)
def test_srun_starts_the_ranks_and_one_that_dies_ends_all(
    tmp_path: Path, slurm: SlurmCluster, code: str, ended: str
) -> None:
    words = shlex.join([sys.executable, str(LAUNCH), str(tmp_path / "run"), code])
    script = f"#!/bin/bash\nexport PYTHONPATH={ROOT}\n{words}\n"
    job = slurm.submit(script, "--ntasks=2", "--ntasks-per-node=2", "--nodes=1", "--mem=200M", "--time=5")
    slurm.wait_for_state(job, "COMPLETED")
    assert ended in slurm.output(job)


def test_a_stalled_job_has_the_ranks_of_srun_print_their_stacks(tmp_path: Path, slurm: SlurmCluster) -> None:
    code = (
        "up = attempt_dir / 'rank-1-is-up'\n"
        "if rank == 1: up.touch()\n"
        "while not up.exists(): time.sleep(0.05)\n"
        "if rank == 0: os.kill(launcher, signal.SIGABRT)\n"
        "signal.pause()"
    )
    words = shlex.join([sys.executable, str(LAUNCH), str(tmp_path / "run"), code])
    script = f"#!/bin/bash\nexport PYTHONPATH={ROOT} PYTHONFAULTHANDLER=1\n{words}\n"
    job = slurm.submit(script, "--ntasks=2", "--ntasks-per-node=2", "--nodes=1", "--mem=200M", "--time=5")
    slurm.wait_for_state(job, "FAILED")
    assert slurm.output(job).count("Fatal Python error: Aborted") == 2


@pytest.mark.long
def test_a_dead_rank_a_scancel_and_the_walltime_change_nothing(
    new_relay: NewRelay, slurm: SlurmCluster, by_one: dict[str, object]
) -> None:
    signals = [{"6": "1 SIGKILL"}, {"5": "PAUSE"}, {"4": "PAUSE"}, {}]
    relay = of_ranks(new_relay, slurm, signals, time_limit="3")

    controller = relay.spawn("start")
    paused = relay.run_dir / "slots/0/attempts/1/paused"
    slurm.wait_for(paused.exists, "the second attempt to wait")
    (row,) = rows_of(slurm, relay)
    slurm.run("scancel", str(row.job_id))
    relay.ended(controller)
    again = relay.spawn("start")

    assert relay.ended(again) == 0, relay.output()
    dead, walltime = (relay.read("exit.json", number) for number in (0, 2))
    assert (dead["code"], dead["asked"]) == (LOST, None)
    assert walltime["code"] == HANDED_OVER
    assert walltime["asked"] in {"deadline", "SIGUSR2"}  # Slurm may signal a minute early
    saved = relay.read("parent.json", 2)
    assert (saved["attempt"], saved["step"]) == (1, 256), "what was cancelled has saved where it stood"
    assert slot_digest(relay.run_dir / "slots/0") == by_one


@pytest.mark.long
def test_ranks_of_two_nodes_meet_and_train_the_same(
    new_relay: NewRelay, slurm: SlurmCluster, by_one: dict[str, object]
) -> None:
    relay = of_ranks(new_relay, slurm, [{}, {}], nodes=2)

    controller = relay.spawn("start")

    assert relay.ended(controller) == 0, relay.output()
    meeting = json.loads(Path(relay.run_dir, "slots/0/attempts/0/ranks.json").read_text())
    assert meeting["host"] != "127.0.0.1"
    assert slot_digest(relay.run_dir / "slots/0") == by_one
