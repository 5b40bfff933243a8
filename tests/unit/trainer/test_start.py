"""What a job does not import before its first update."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")
pytestmark = pytest.mark.trainer

SUPPORT = Path(__file__).parents[2] / "support"
OPTIMIZER = """
import sys, torch
from trainer.machine.device import set_deterministic
set_deterministic(1)
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.AdamW([parameter], fused=True)
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


TRAINING = """
import sys
from pathlib import Path
from point_mass import PointMasses
from train_point_mass import judge, section
from anchorleg.job import Job
from trainer.training.begin import run
from trainer.training.progress import TrainingDisplay
with TrainingDisplay(live=False) as display:
    run(Job.standalone(Path(sys.argv[1])), section(total_steps=200), display, make_envs=PointMasses, evaluator=judge)
print("torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""


def printed(script: str, *words: str) -> list[str]:
    command = [sys.executable, "-c", f"import sys\nsys.path.append({str(SUPPORT)!r})\n{script}", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout.splitlines()[-1].split()


def test_an_optimizer_brings_no_compiler():
    assert printed(OPTIMIZER) == ["False"]


def test_a_training_brings_neither_torchs_compiler_nor_sympy(tmp_path):
    assert printed(TRAINING, str(tmp_path / "run")) == ["False", "False"]
