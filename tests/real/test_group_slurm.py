"""Four slots of a group on a real Slurm, killed, handed over, one of them away, one of them lying, and the controller
killed: each comes to the bits of that slot alone, with what its journal says that it took.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from daemons import WORK_S, wait_for
from hurt_on_slurm import Signals, code_of, codes_of, slot_of
from relay import PATIENT, REPOSITORY, SUPPORT, NewRelay, Relay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm

pytest.importorskip("torch")

from forging import ROWS, forge_learners, forge_rows
from slot_digest import slot_digest

from anchorleg.job import HANDED_OVER, attempt_numbers
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.sharing.journal import Adopted, TakenFromPeer, of_line

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

SLOTS = range(4)
LIAR = 2
#: Of the goals. The worst slot follows the liar, as long as that has something to take over, and else another one.
SCORES = (0.5, 0.5, 1.0, 0.0)
WORST = 3
#: The liar is away from the first to the second: a third of the run.
AWAY, BACK, END = 600, 1200, 1800
TRAINING: dict[str, Any] = {
    "preset": "tiny",
    "tasks": ["reach-v3", "push-v3"],
    "horizon": 20,
    "num_envs": 4,
    "num_workers": 0,
    "total_steps": END,
    "actor_hidden": [16],
    "critic_hidden": [16],
    "batch_size": 16,
    "buffer_size": 400,
    "random_steps": 90,
    "updates_per_step": 0.3,
    "publish_interval": 30,
    "checkpoint_interval": 100,
    "metrics_interval": 100,
    "evaluation_interval": 150,
    "evaluation_goals": 50,
    "group": {"rows": True, "every": 1, "adopt": True},
}
PROGRAM = SUPPORT / "group_jobs.py"


def hold(run_dir: Path, step: int) -> None:
    """From now on no slot trains beyond `step`."""
    (run_dir / "held.new").write_text(f"{step}\n")
    (run_dir / "held.new").replace(run_dir / "held")


def is_held(relay: Relay, slot: int, step: int) -> bool:
    newest = max(attempt_numbers(slot_of(relay, slot)), default=0)
    return (relay.attempt_dir(newest, slot) / f"held-{step}").exists()


def givers(relay: Relay, slot: int, *, beyond: int = -1) -> set[int]:
    """Whose episodes a slot took after that step."""
    entries = of_line(slot_of(relay, slot))
    return {entry.peer for entry in entries if isinstance(entry, TakenFromPeer) and entry.step > beyond}


def followed(relay: Relay, slot: int, *, beyond: int = -1) -> list[int]:
    """Whose learners it took over after that step."""
    return [
        entry.adopt for entry in of_line(slot_of(relay, slot)) if isinstance(entry, Adopted) and entry.step > beyond
    ]


def said(relay: Relay, slot: int) -> str:
    """What its jobs have printed."""
    logs = sorted(relay.run_dir.glob(f"jobs/s{slot}-*/job-*.[eo]*"))
    return "\n".join(log.read_text(errors="replace") for log in logs)


def begun_alone(relay: Relay, slot: int) -> subprocess.Popen[str]:
    """A training that takes at the same steps what the slot took, in one go and with no other slot."""
    folder = relay.folder / f"alone-{slot}"
    folder.mkdir()
    schedule = "".join(json.dumps(asdict(entry)) + "\n" for entry in of_line(slot_of(relay, slot)))
    (folder / "journal").write_text(schedule)
    (folder / "training.json").write_text(json.dumps({**TRAINING, "seed": slot, "group": {"rows": True, "every": 1}}))
    shutil.copytree(relay.run_dir / "kept", folder / "run/kept")
    plan = {"signals": [[]], "scores": [SCORES[slot]], "journal": str(folder / "journal")}
    # A job has its node's environment, and there NumPy's products are those of the processor.
    env = {name: value for name, value in relay.env.items() if not name.startswith("OPENBLAS_")}
    words = ("train", "--config", str(folder / "training.json"), "--run-dir", str(folder / "run"))
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(plan), *words], cwd=folder, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**env, "PYTHONPATH": f"{REPOSITORY}:{SUPPORT}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def digest_alone(relay: Relay, slot: int, begun: subprocess.Popen[str]) -> dict[str, Any]:
    """What it has come to."""
    printed, _ = begun.communicate(timeout=WORK_S)
    assert begun.returncode == 0, printed
    assert "gone or damaged" not in printed
    return slot_digest(relay.folder / f"alone-{slot}" / "run/slots/0")


def moments(seed: int) -> list[Signals]:
    """Three interruptions of each slot, two of them kills, each some updates after its job began."""
    chance = random.Random(seed)
    names = [chance.sample(("SIGKILL", "SIGKILL", "SIGUSR2"), 3) for _ in SLOTS]
    return [[{str(chance.randrange(5, 70)): name} for name in of_slot] for of_slot in names]


def test_whatever_becomes_of_its_jobs_each_slot_comes_to_what_its_journal_says(
    new_relay: NewRelay, slurm: SlurmCluster
) -> None:
    def until(condition: Callable[[], object], what: str) -> None:
        wait_for(condition, what, WORK_S, relay.output)  # jobs of four slots, one after another

    signals = moments(0)
    plan = {"signals": signals, "scores": SCORES}
    relay = on_slurm(
        new_relay, slurm, "group", slots=len(SLOTS), params=TRAINING, slurm={"mem": "2G"},
        slot_overrides={str(slot): {"seed": slot} for slot in SLOTS},
        command=[sys.executable, str(PROGRAM), json.dumps(plan), "train"], relay={**PATIENT, "stall_seconds": WORK_S},
    )  # fmt: skip
    relay.run_dir.mkdir(parents=True)
    hold(relay.run_dir, AWAY)
    controller = relay.spawn("start")
    until(lambda: all(is_held(relay, slot, AWAY) for slot in SLOTS), "a third of the run")
    until(lambda: all(givers(relay, k) == set(SLOTS) - {k} for k in SLOTS), "rows of each for each")

    assert relay.run("pause", str(LIAR)).code == 0
    until(lambda: relay.status()["slots"][LIAR]["state"] == "paused", "the liar to be away")
    newest = relay.attempt_dir(relay.attempts(LIAR)[-1], LIAR)
    until((newest / "exit.json").exists, "the end of its job")
    honest = shutil.copytree(slot_of(relay, LIAR), relay.folder / "honest", symlinks=True)
    forged = forge_rows(slot_of(relay, LIAR), spaces_of(resolve(TrainingSection(**TRAINING))))
    forge_learners(slot_of(relay, LIAR))
    others = [slot for slot in SLOTS if slot != LIAR]
    hold(relay.run_dir, BACK)
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    controller = relay.spawn("start")
    until(lambda: all(is_held(relay, slot, BACK) for slot in others), "two thirds of the run")
    until(lambda: all(givers(relay, k, beyond=AWAY) >= set(others) - {k} for k in others), "newer rows")
    for reason in ("name", *ROWS.keys() - {"version_unknown"}):  # for that one it waits, lest the policy turns up
        words = f"an episode of slot {LIAR} is ignored ({reason})"
        until(lambda words=words: all(words in said(relay, slot) for slot in others), words)  # type: ignore[misc]
    assert set(followed(relay, WORST, beyond=AWAY)) & {0, 1}
    assert not [slot for slot in others if LIAR in followed(relay, slot, beyond=AWAY)]

    for path in slot_of(relay, LIAR).glob("attempts/*/episodes-*/*"):
        path.unlink()
    shutil.copytree(honest, slot_of(relay, LIAR), symlinks=True, dirs_exist_ok=True)
    assert relay.run("resume", str(LIAR)).code == 0
    (relay.run_dir / "held").unlink()
    until(lambda: controller.poll() is not None, "the end of the run")
    assert controller.returncode == 0, relay.output()

    replays = [begun_alone(relay, slot) for slot in SLOTS]
    for slot in SLOTS:
        codes = codes_of(relay, slot)
        planned = [code_of(each) for each in signals[slot]]
        assert [code for code in codes[:-1] if code not in planned] == []
        assert len(codes) >= 4
        assert (codes[-1], -9 in codes, HANDED_OVER in codes) == (0, True, True)
        taken = {entry.sha256 for entry in of_line(slot_of(relay, slot)) if isinstance(entry, TakenFromPeer)}
        assert not taken & forged
        assert givers(relay, slot) == set(SLOTS) - {slot}
        assert digest_alone(relay, slot, replays[slot]) == slot_digest(slot_of(relay, slot))
    assert followed(relay, 0) == []
