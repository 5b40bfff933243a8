"""The parts that the frameworks' callbacks share: when a loop saves and leaves, streams of chance, environments."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from anchorleg.job import HANDED_OVER, Job
from orchestrator.integrations.checkpointer import Checkpointer


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

    def test_it_also_saves_every_so_many_steps_and_says_so(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path, every=4)
        for step in range(1, 10):
            keeper.step_done(step, writer(str(step)))
        assert saved(tmp_path) == ["0/4", "0/8"]
        keeper.finish(10, writer("10"))
        assert saved(tmp_path) == ["0/10", "0/4", "0/8"]
        told = json.loads((keeper.job.attempt_dir / "progress.json").read_text())
        assert (told["step"], told["total"], told["checkpoint_step"]) == (10, 10, 10)

    def test_what_it_is_told_stands_in_every_report(self, tmp_path: Path) -> None:
        keeper = a_checkpointer(tmp_path)
        keeper.tell({"loss": 0.5, "reward": "3", "nothing": float("nan"), "many": [1, 2], "word": "x"})
        keeper.tell({"loss": 0.25})
        keeper.finish(10, writer("10"))
        told = json.loads((keeper.job.attempt_dir / "progress.json").read_text())
        assert (told["loss"], told["reward"]) == (0.25, 3.0)
        assert not {"nothing", "many", "word"} & told.keys()
        with pytest.raises(ValueError, match='"step" is the report\'s own'):
            keeper.tell({"step": 3})

    def test_where_nothing_is_left_to_do_nothing_is_saved_again(self, tmp_path: Path) -> None:
        a_checkpointer(tmp_path).finish(10, writer("10"))
        keeper = a_checkpointer(tmp_path)
        keeper.finish(10, writer("never"))
        assert saved(tmp_path) == ["0/10"]
        assert json.loads((keeper.job.attempt_dir / "progress.json").read_text())["checkpoint_step"] == 10


class TestSavingACheckpoint:
    def test_what_fails_in_the_middle_leaves_nothing(self, tmp_path: Path) -> None:
        def fails(folder: Path) -> None:
            (folder / "half").write_text("x")
            raise OSError(28, "No space left on device")

        job = Job.standalone(tmp_path)
        with pytest.raises(OSError, match="No space"):
            job.save_checkpoint(3, fails)
        assert saved(tmp_path) == []
        assert job.save_checkpoint(3, writer("whole")).name == "3"
        assert job.save_checkpoint(3, writer("another")).joinpath("state").read_text() == "whole"

    def test_what_a_kill_left_is_no_checkpoint_and_in_nobodys_way(self, tmp_path: Path) -> None:
        job = Job.standalone(tmp_path)
        (job.attempt_dir / "checkpoints" / ".3.unfinished" / "deep").mkdir(parents=True)
        assert list(Job(tmp_path, 0, 1).candidates()) == []
        job.save_checkpoint(3, writer("whole"))
        assert saved(tmp_path) == ["0/3"]
        assert [p.name for p in (job.attempt_dir / "checkpoints" / "3").iterdir()] == ["state"]

    def test_who_is_superseded_publishes_nothing_and_leaves(self, tmp_path: Path) -> None:
        job = Job.standalone(tmp_path)
        Job.standalone(tmp_path)
        with pytest.raises(SystemExit) as left:
            job.save_checkpoint(3, writer("late"))
        assert (left.value.code, saved(tmp_path)) == (HANDED_OVER, [])

    def test_a_program_without_params_has_none(self, tmp_path: Path) -> None:
        assert Job.standalone(tmp_path).settings() == {}
        (tmp_path / "config.json").write_text('{"lr": 0.1}')
        assert Job(tmp_path, 0, 0, config=tmp_path / "config.json").settings() == {"lr": 0.1}


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
    @pytest.mark.parametrize(
        "name",
        ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "Blackjack-v1"],
    )
    @pytest.mark.parametrize("vector", [False, True])
    def test_another_one_of_the_same_making_goes_on_with_the_same_bits(self, name: str, *, vector: bool) -> None:
        gym, np = pytest.importorskip("gymnasium"), pytest.importorskip("numpy")
        from orchestrator.integrations.envs import env_state, restore_env

        def made(seed: int) -> Any:
            env = gym.make_vec(name, num_envs=2, vectorization_mode="sync") if vector else gym.make(name)
            env = env if vector else gym.wrappers.RecordEpisodeStatistics(env)
            env.reset(seed=seed)
            return env

        def played(env: Any, actions: list[Any]) -> list[Any]:
            rows = []
            for action in actions:
                obs, reward, terminated, truncated, _ = env.step(action)
                if not vector and (terminated or truncated):
                    obs, _ = env.reset()
                rows.append(np.concatenate([np.ravel(np.asarray(part, float)) for part in (obs, reward, terminated)]))
            return np.concatenate(rows).tolist()

        env = made(3)
        env.action_space.seed(7)
        actions = [env.action_space.sample() for _ in range(150)]
        played(env, actions[:50])
        state = json.loads(json.dumps(env_state(env)))
        first = played(env, actions[50:])
        other = made(4)
        restore_env(other, state)
        assert played(other, actions[50:]) == first

    def test_what_does_not_lie_in_python_is_refused_by_its_name(self) -> None:
        gym = pytest.importorskip("gymnasium")
        pytest.importorskip("mujoco")
        from orchestrator.integrations.envs import env_state, restore_env

        env = gym.make("InvertedPendulum-v5")
        env.reset(seed=1)
        with pytest.raises(TypeError, match=r"^InvertedPendulumEnv\.\w+ is a mujoco\..* cannot be saved as it stands$"):
            env_state(env)
        with pytest.raises(ValueError, match=r"has 1 layers, and this one"):
            restore_env(env, [{}])
