"""A training with demonstrations beside its own rows, as users start it: handed over, its folder gone, another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("av")

from point_demos import POINTS, recorded
from slot_digest import slot_digest
from typed_trainings import HANDING_OVER
from typed_trainings import train as typed

from anchorleg.job import HANDED_OVER
from trainer.errors import ConfigError, OtherIdentityError

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
TRAINING = {
    "preset": "debug",
    "env": {"name": POINTS},
    "algorithm": {
        "name": "td3", "n_step": 2, "batch_size": 12, "buffer_size": 90, "random_steps": 30, "updates_per_step": 0.2
    },
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "num_envs": 3,
    "total_steps": 180,
    "checkpoint_interval": 60,
    "evaluation_goals": 0,
    "num_workers": 0,
}  # fmt: skip


def train(folder: Path, demos: Path, *command: str, expected: int = 0) -> str:
    algorithm = {**TRAINING["algorithm"], "demos": str(demos)}
    return typed(folder, {**TRAINING, "algorithm": algorithm}, *command, expected=expected)


@pytest.mark.long
def test_demonstrations_that_are_gone_change_no_bit_and_others_are_another_training(tmp_path: Path) -> None:
    demos = recorded(tmp_path / "demos").folder
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(whole, demos)
    train(broken, demos, HANDING_OVER, "31", expected=HANDED_OVER)
    moved = demos.rename(tmp_path / "moved")
    recorded(demos, seed=1)
    said = train(broken, demos, expected=OtherIdentityError.exit_code)
    assert "belongs to another training (demos_sha256 " in said
    assert len(list((broken / "run/slots/0/demos").iterdir())) == 1
    shutil.rmtree(demos)
    assert "continuing at step 93 of attempt 0" in train(broken, demos)
    assert slot_digest(broken / "run/slots/0") == slot_digest(whole / "run/slots/0")
    said = train(tmp_path / "new", demos, expected=ConfigError.exit_code)
    assert "[start.no-demos]" in said
    manifest = json.loads((moved / "demos.json").read_text())
    del manifest["source"]["paid_by"]  # as of an import
    (moved / "demos.json").write_text(json.dumps(manifest))
    train(tmp_path / "new", moved)
    assert slot_digest(tmp_path / "new/run/slots/0") == slot_digest(whole / "run/slots/0")
