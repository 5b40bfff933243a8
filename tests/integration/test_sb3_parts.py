"""What the callback for stable-baselines3 brings along beside the model, in one process: many jobs against one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_frameworks import assert_same_tensors

from anchorleg.job import HANDED_OVER, Job

pytestmark = pytest.mark.trainer
sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

from orchestrator.integrations.sb3 import HandOver  # noqa: E402


def sac(hand_over: HandOver) -> Any:
    """With a normalized Pendulum."""
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=3))
    new = {"seed": 3, "learning_starts": 20, "train_freq": 8, "batch_size": 16, "buffer_size": 200}
    small: dict[str, Any] = {"device": "cpu", "policy_kwargs": {"net_arch": [16]}}
    return hand_over.load(sb3.SAC, env, device="cpu") or sb3.SAC("MlpPolicy", env, **new, **small)


def trained(make: Callable[[HandOver], Any], run_dir: Path, total: int, *, asked: bool) -> Any:
    """What `make` makes, in jobs of one rollout each if `asked`; returns the last job's model."""
    codes: list[Any] = []
    while len(codes) < total:
        attempt = Job.standalone(run_dir).attempt
        job = Job(run_dir, 0, attempt, deadline=0.0 if asked else None)
        hand_over = HandOver(job, total=total)
        model = make(hand_over)
        try:
            hand_over.learn(model)
        except SystemExit as left:
            codes.append(left.code)
        else:
            assert codes == [HANDED_OVER] * (4 if asked else 0)
            return model
    raise AssertionError("it never ended")


def test_sac_goes_on_with_its_replay_buffer_and_its_normalization(tmp_path: Path) -> None:
    one, other = (trained(sac, tmp_path / name, 80, asked=name == "jobs") for name in ("jobs", "whole"))
    assert_same_tensors(one.get_parameters(), other.get_parameters())
    assert one.replay_buffer.size() == other.replay_buffer.size() == 40
    assert one.get_env().obs_rms.mean.tolist() == other.get_env().obs_rms.mean.tolist()
    assert one.get_env().ret_rms.var == other.get_env().ret_rms.var
