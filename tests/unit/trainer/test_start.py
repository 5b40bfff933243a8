"""What a job does not import before its first update."""

from __future__ import annotations

import json
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


#: As `trainer train` begins, as far as its import of torch.
BEGINNING = """
import sys
from trainer.envs import suite as early
from trainer.envs.suites.metaworld import resets as models
begin = early.begin_early
def watched(*given):
    begin(*given)
    print("torch" in sys.modules, len(models._ahead))
    sys.exit()
early.begin_early = watched
from trainer.cli import app
app(["train", "--preset", "guide", "--run-dir", sys.argv[1]])
"""


#: One of each family, and of those that see: fresh ones, as far as their third update.
LEARNING = """
import json, torch
from trainer.config.section import TrainingSection, resolve
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.machine.device import set_deterministic
from trainer.training.run import advance, fresh
set_deterministic(1)
for given in json.loads(sys.argv[1]):
    training = resolve(TrainingSection(**given, num_envs=4))
    with VectorEnv(VectorSpec(suite_of(training), training.num_envs, training.seed)) as envs:
        run = fresh(training, torch.device("cpu"), envs)
        while run.updates < 3:
            advance(run)
    print(training.algorithm.name, "torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""
POINTS = {"name": "anchorleg_toys.points:Points"}
SEEN = {**POINTS, "observation": "both", "image_size": 16}
SOON = {"random_steps": 20, "batch_size": 12, "buffer_size": 300}
LEARNERS = [
    {"env": POINTS, "algorithm": {"name": "ppo", "rollout_steps": 5, "batch_size": 10}},
    {"env": POINTS, "algorithm": {"name": "a2c"}},
    {"env": POINTS, "algorithm": {"name": "td3", **SOON}},
    {"env": POINTS, "algorithm": {"name": "mtsac", **SOON}},
    {"env": SEEN, "algorithm": {"name": "sac", **SOON}, "network": {"encoder": {"arch": "impala"}}},
    {"env": SEEN, "algorithm": {"name": "drqv2", **SOON}, "network": {"encoder": {"arch": "drq"}}},
]


def printed(script: str, *words: str) -> list[str]:
    command = [sys.executable, "-c", f"import sys\nsys.path += {[str(SUPPORT), str(PLUGIN)]!r}\n{script}", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout.splitlines()


@pytest.mark.long
def test_no_learner_brings_torchs_compiler_or_sympy():
    told = printed(LEARNING, json.dumps(LEARNERS))
    assert told == [f"{learner['algorithm']['name']} False False" for learner in LEARNERS]


@pytest.mark.long
def test_a_training_brings_neither_torchs_compiler_nor_sympy(tmp_path):
    assert printed(TRAINING, str(tmp_path / "run"))[-1] == "False False"


@pytest.mark.long
def test_models_are_compiled_while_torch_is_imported(tmp_path):
    assert printed(BEGINNING, str(tmp_path / "run"))[-1] == "False 8", "MT10 has eight"
