"""Environments that change the process they are stepped in, or keep it: the training hands over and ends anyway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")

from slot_digest import slot_digest

from anchorleg.job import HANDED_OVER
from trainer.errors import EnvironmentFailedError
from trainer.history.read import read_evaluations

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
TRAINING = {
    "preset": "debug",
    "algorithm": "sac",
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "num_envs": 2,
    "batch_size": 16,
    "buffer_size": 1000,
    "random_steps": 40,
    "total_steps": 160,
    "checkpoint_interval": 80,
    "metrics_interval": 40,
    "evaluation_goals": 0,
}
LONG, FAILED = pytest.mark.long, EnvironmentFailedError.exit_code
#: Seconds: more than a small environment takes for anything on a busy machine.
LIMIT_S = "10"


def trained(folder, env, *launcher, workers=0, more=None, **kwargs):
    """(exit code, all that it said) of a training that `launcher` starts."""
    fields = {**TRAINING, "num_workers": workers, **(more or {})}
    fields["env"] = {"name": "gymnasium", "id": f"odd_envs:{env}", "kwargs": kwargs}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"run_name": "odd", "training": fields}))
    program, *words = launcher or ("-m", "trainer")
    program = [program] if program == "-m" else [str(SUPPORT / program)]
    done = subprocess.run(
        [sys.executable, *program, *words, "train", "-c", "config.json", "--run-dir", "run"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT)))},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "workers"),
    [("SIGTERM", 0), pytest.param("SIGUSR2", 0, marks=LONG), pytest.param("SIGINT", 1, marks=LONG)],
)
def test_one_that_answers_signals_itself_is_handed_over(tmp_path, number, workers):
    assert trained(tmp_path, "Deaf", "handing_over.py", f"30:{number}", workers=workers)[0] == HANDED_OVER


@pytest.mark.long
@pytest.mark.parametrize(("workers", "goals"), [(0, 0), pytest.param(1, 0, marks=LONG), pytest.param(0, 1, marks=LONG)])
def test_a_thread_that_one_leaves_keeps_no_job_that_has_ended(tmp_path, workers, goals):
    """Nor an evaluation beside it."""
    code, said = trained(tmp_path, "Lingering", "handing_over.py", "30:SIGUSR2", workers=workers)
    assert code == HANDED_OVER, said
    if goals:
        code, said = trained(tmp_path, "Lingering", more={"evaluation_goals": goals, "evaluation_interval": 80})
        assert code == 0, said
        assert len(read_evaluations(tmp_path / "run" / "slots" / "0")) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "at", "code"),
    [
        pytest.param("make", 1, FAILED, marks=LONG),  # while its spaces are looked at
        pytest.param("make", 4, FAILED, marks=LONG),  # while its states are tried
        pytest.param("close", 1, FAILED, marks=LONG),
        ("close", 5, 0),  # when all is trained and saved
    ],
)
def test_one_whose_making_or_closing_hangs_ends_in_a_sentence(tmp_path, where, at, code):
    found, said = trained(tmp_path, "Unending", "short_limits.py", LIMIT_S, where=where, at=at)
    assert found == code, said
    assert "an environment (Unending" in said.splitlines()[-1], said
    assert "count" in said, said  # its stacks


@pytest.mark.long
def test_torch_is_as_it_was_after_one_that_changes_it(tmp_path):
    code, said = trained(tmp_path / "odd", "Double")
    assert code == 0, said
    assert [said.count(call) for call in ("torch.set_default_dtype(", "torch.set_grad_enabled(")] == [1, 1], said
    assert trained(tmp_path / "plain", "Line")[0] == 0
    odd, plain = (slot_digest(tmp_path / name / "run" / "slots" / "0") for name in ("odd", "plain"))
    assert odd["parts"]["algorithm"] == plain["parts"]["algorithm"]


def test_signals_are_answered_again_after_foreign_code():
    code = """
import signal
from anchorleg.signals import HAND_OVER_SIGNALS, answer_again, answer_hand_over
heard = []
answer_again()
answer_hand_over(lambda number, frame: heard.append(number))
for number in HAND_OVER_SIGNALS:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, HAND_OVER_SIGNALS)
answer_again()
for number in HAND_OVER_SIGNALS:
    signal.raise_signal(number)
assert heard == list(HAND_OVER_SIGNALS), heard
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=WORK_S)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
