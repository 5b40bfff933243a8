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
PLUGIN = SUPPORT.parent / "plugin"
TRAINING = """
import sys
from pathlib import Path
from point_mass import PointMasses
from train_point_mass import judge, section
from anchorleg.job import Job
from trainer.training.begin import run
from trainer.training.features.progress import TrainingDisplay
job, training = Job.standalone(Path(sys.argv[1])), section(total_steps=200)
run(job, training, TrainingDisplay(), make_envs=PointMasses, evaluator=judge)
print("torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""


def printed(script: str, *words: str) -> list[str]:
    command = [sys.executable, "-c", f"import sys\nsys.path += {[str(SUPPORT), str(PLUGIN)]!r}\n{script}", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_training_brings_neither_torchs_compiler_nor_sympy(tmp_path):
    assert printed(TRAINING, str(tmp_path / "run"))[-1] == "False False"
