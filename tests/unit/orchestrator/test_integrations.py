"""The parts that the frameworks' callbacks share: when a loop saves and leaves, streams of chance, environments."""

from __future__ import annotations

import json
import math
import random
from enum import Enum, Flag
from pathlib import Path
from typing import Any

import pytest

from anchorleg.job import HANDED_OVER, Job
from orchestrator.decisions.evidence import Progress
from orchestrator.integrations.checkpointer import Checkpointer


class Phase(Enum):
    FAR = "far"
    NEAR = "near"


class Held(Flag):
    KEY = 1
    LAMP = 2


def a_checkpointer(run_dir: Path, *, asked: bool = False, **more: Any) -> Checkpointer:
    """Of the next attempt of `run_dir`."""
    before = Job.standalone(run_dir)
    hand_over = run_dir / f"hand-over-{before.attempt}"
    if asked:
        hand_over.touch()
    return Checkpointer(Job(run_dir, 0, before.attempt, hand_over_file=hand_over), **{"total": 10} | more)


def saved(run_dir: Path) -> list[str]:
    return sorted(f"{p.parts[-3]}/{p.name}" for p in run_dir.glob("slots/0/attempts/*/checkpoints/*"))


def writer(text: str) -> Any:
    return lambda folder: (folder / "state").write_text(text)


class TestCheckpointer:
    def test_a_job_that_is_asked_makes_one_step_saves_it_and_leaves(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path, asked=True)
        keeper.step_done(0, writer("nothing"))
        assert saved(tmp_path) == []
        with pytest.raises(SystemExit) as left:
            keeper.step_done(1, writer("one"))
        assert left.value.code == HANDED_OVER
        assert json.loads((keeper.job.attempt_dir / "progress.json").read_text())["checkpoint_step"] == 1
        again = a_checkpointer(tmp_path)
        assert again.start is not None
        assert (again.start_step, (again.start.path / "state").read_text()) == (1, "one")

    def test_what_is_asked_between_save_and_leave_is_for_the_next_step(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path)
        times = iter([9.9, *[10.1] * 100])
        keeper.job = Job(tmp_path, 0, 0, deadline=10.0, clock=lambda: next(times))
        keeper.step_done(1, writer("one"))  # in time; the deadline passes right after it was asked
        assert saved(tmp_path) == []
        with pytest.raises(SystemExit):
            keeper.step_done(2, writer("two"))
        assert saved(tmp_path) == ["0/2"]

    def test_after_the_last_step_there_is_nothing_to_hand_over(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path, asked=True)
        keeper.step_done(10, writer("10"))
        keeper.finish(10, writer("10"))
        assert saved(tmp_path) == ["0/10"]

    def test_what_is_no_finite_number_any_more_is_no_metric_any_more(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path)
        keeper.tell({"loss": 0.5, "score": 1.0, "cost": 2.0})
        keeper.tell({"loss": float("nan"), "score": float("inf"), "cost": -math.inf})
        keeper.report(1, at_once=True)
        text = (keeper.job.attempt_dir / "progress.json").read_text()
        assert not {"NaN", "Infinity"} & set(text.replace(",", " ").replace("}", " ").split())
        told = Progress.model_validate_json(text)
        found = told.model_extra or {}
        assert [found.get(name) is not None for name in ("loss", "score", "cost", "other")] == [True, True, True, False]
        assert [told.metric(name) for name in ("loss", "score", "cost")] == [None] * 3
        keeper.tell({"loss": "0.25", "nothing": None, "many": [1, 2]})
        keeper.report(2, at_once=True)
        again = json.loads((keeper.job.attempt_dir / "progress.json").read_text())
        assert again["loss"] == 0.25
        assert not {"nothing", "many"} & again.keys()
        with pytest.raises(ValueError, match='"step" is reserved'):
            keeper.tell({"step": 3})


class TestChance:
    def test_every_stream_goes_on_where_it_was(self) -> None:
        np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
        from orchestrator.integrations.rng import random_state, restore_random_state

        def drawn() -> list[float]:
            return [
                random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal(),
                torch.rand(()).item(), torch.randn(()).item(), random.gauss(0, 1), np.random.standard_normal(),
            ]  # fmt: skip

        drawn()
        random.gauss(0, 1)
        np.random.standard_normal()
        state = json.loads(json.dumps(random_state()))
        first = drawn()
        assert drawn() != first
        restore_random_state(state)
        assert drawn() == first


class TestEnvironments:
    @pytest.mark.parametrize("vector", [False, True])
    def test_what_has_two_names_is_one_thing_again(self, *, vector: bool) -> None:
        gym, np = pytest.importorskip("gymnasium"), pytest.importorskip("numpy")
        from orchestrator.integrations.envs import env_state, restore_env

        class Dice(gym.Env):
            observation_space, action_space = gym.spaces.Box(0, 1, (3,), np.float64), gym.spaces.Discrete(2)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                self.rng, self.board, self.cards = self.np_random, np.zeros(3), [0.0]
                self.noise, self.shown = np.random.Generator(self.rng.bit_generator), {"board": self.board}
                self.hand, self.phase, self.held = self.cards, Phase.FAR, Held(0)
                return self.board.copy(), {}

            def step(self, action: Any) -> Any:
                self.cards.append(self.noise.random())
                self.phase, self.held = Phase.NEAR, Held.KEY | Held.LAMP
                self.board += (self.rng.random(), self.np_random.random(), self.hand[-1])
                return self.shown["board"].copy(), 0.0, False, False, {}

        def made(seed: int) -> Any:
            env = gym.vector.SyncVectorEnv([Dice, Dice]) if vector else gym.wrappers.TimeLimit(Dice(), 99)
            env.reset(seed=seed)
            return env

        env, other = made(1), made(2)
        action = [0, 0] if vector else 0
        env.step(action)
        state = json.loads(json.dumps(env_state(env)))
        expected = [env.step(action)[0].tolist() for _ in range(3)]
        restore_env(other, state)
        assert [other.step(action)[0].tolist() for _ in range(3)] == expected
        inner = other.envs[1] if vector else other.unwrapped
        assert inner.rng is inner.np_random
        assert (inner.phase, inner.held) == (Phase.NEAR, Held.KEY | Held.LAMP)
        assert inner.shown["board"] is inner.board
        again = made(3)
        restore_env(again, json.loads(json.dumps(env_state(other))))  # what was restored is saved as well
        assert again.step(action)[0].tolist() == other.step(action)[0].tolist()

    def test_what_does_not_lie_in_python_is_refused_by_its_name(self) -> None:
        gym = pytest.importorskip("gymnasium")
        pytest.importorskip("mujoco")
        from orchestrator.integrations.envs import env_state, restore_env

        env = gym.make("InvertedPendulum-v5")
        env.reset(seed=1)
        with pytest.raises(TypeError, match=r"^InvertedPendulumEnv\.\w+ is a mujoco\..* cannot be saved$"):
            env_state(env)
        with pytest.raises(ValueError, match=r"has 1 layers, but this one"):
            restore_env(env, [{}])
