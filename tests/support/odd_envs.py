"""Environments of Gymnasium's interface, each odd in one way. Importing it registers those with an id."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Line(gym.Env):
    """A mass on a line that a push of a foreign hand moves too: it draws from its generator at each step."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Box(-2.0, 6.0, (1,), np.float32)

    def __init__(self, length: int = 50, render_mode: str | None = None) -> None:
        self.length = length
        self.render_mode = render_mode
        self.place = np.zeros(1)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-0.5, 0.5, 1), 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.move(float(np.asarray(action).ravel()[0]))
        self.steps += 1
        return self.seen(), 1 - abs(self.place[0]), bool(abs(self.place[0]) > 3), self.steps >= self.length, {}

    def move(self, by: float) -> None:
        self.place = self.place + 0.05 * by + self.np_random.normal(0, 0.02, 1)

    def seen(self) -> Any:
        return np.array([self.place[0], self.steps / self.length])

    def render(self) -> Any:
        picture = np.zeros((48, 63, 3), np.uint8)
        picture[20:30, int(np.clip(32 + 8 * self.place[0], 0, 62))] = 255
        return picture


class Teller(Line):
    """Tells of success."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        *rest, info = super().step(action)
        return (*rest, {**info, "is_success": np.bool_(self.steps >= 3)})


class SeldomTeller(Line):
    """Tells of success only where it is reached, which random actions hardly do."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        *rest, info = super().step(action)
        is_far = bool(np.all(np.asarray(action) >= self.action_space.high))
        return (*rest, {**info, "is_success": True} if is_far else info)


class Keeper(Line):
    """Offers its own snapshot: an array, an array's number, numbers, a list."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.path: list[float] = []
        self.energy = np.float32(0)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.path.append(float(self.place[0]))
        del self.path[:-4]
        self.energy = np.float32(0.9) * self.energy + np.float32(np.asarray(action).ravel()[0])
        obs, reward, *rest = super().step(action)
        return obs, reward + sum(self.path) + self.energy, *rest

    def reset(self, **more: Any) -> tuple[Any, dict]:
        self.path, self.energy = [], np.float32(0)
        return super().reset(**more)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "energy": self.energy, "steps": self.steps, "path": self.path}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.energy = state["place"], state["energy"]
        self.steps, self.path = state["steps"], state["path"]


class Forgetful(Keeper):
    """Its snapshot lacks the place."""

    def snapshot(self) -> dict[str, Any]:
        return {key: value for key, value in super().snapshot().items() if key != "place"}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore({**state, "place": self.place})


class Hoarder(Keeper):
    """Its snapshot holds `what` from its 30th step on, which no file can keep: no check of some steps finds it."""

    KINDS: ClassVar[dict[str, Any]] = {"infinite": float("inf"), "a set": {1}, "objects": np.array([None], object)}

    def __init__(self, what: str, **more: Any) -> None:
        super().__init__(**more)
        self.what = what

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "best": self.KINDS[self.what] if self.steps >= 30 else 0.0}


class Emulator:
    """As PyBoy: saves its state into a file."""

    def __init__(self) -> None:
        self.memory = np.zeros(16, np.uint8)

    def tick(self, button: int) -> None:
        self.memory = np.roll(self.memory, 1) + np.uint8(button + 3)

    def save_state(self, file: Any) -> None:
        file.write(b"v1" + self.memory.tobytes())

    def load_state(self, file: Any) -> None:
        data = file.read()
        assert data[:2] == b"v1"
        self.memory = np.frombuffer(data[2:], np.uint8).copy()


class Handheld(gym.Env):
    """A game on an emulator, and a few numbers of its own."""

    observation_space: Any = spaces.Box(0, 255, (4, 4), np.uint8)
    action_space: Any = spaces.Discrete(8)

    def __init__(self, extra: bool = False) -> None:
        self.pyboy = Emulator()
        self.pressed = 0
        self.presses: list[int] = []
        self.frames = np.zeros((3, 16), np.uint8)
        self.palette = np.frombuffer(b"0123", np.uint8)  # which nobody can write to
        if extra:
            self.visited: set[int] = set()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.pyboy.memory = self.np_random.integers(0, 256, 16).astype(np.uint8)
        self.pressed, self.frames = 0, np.zeros((3, 16), np.uint8)
        self.presses.clear()
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.presses.append(int(action))
        self.pressed += int(action) * len(self.presses)
        self.pyboy.tick(int(action) + int(self.np_random.integers(3)))
        self.frames = np.concatenate([self.frames[1:], self.pyboy.memory[None]])
        return self.seen(), float(self.frames.sum() + self.pressed), False, False, {}

    def seen(self) -> Any:
        return self.pyboy.memory.reshape(4, 4)


class Cameras(Line):
    """Nested parts, a picture among them; every part in a form of its own."""

    observation_space: Any = spaces.Dict(
        {
            "eye": spaces.Box(0, 255, (6, 8, 3), np.uint8),
            "body": spaces.Dict({"place": spaces.Box(-9.0, 9.0, (), np.float64), "gear": spaces.Discrete(3, start=1)}),
            "rest": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
        }
    )
    action_space: Any = spaces.MultiBinary(3)

    def seen(self) -> Any:
        eye = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3) + np.uint8(self.steps)
        body = {"place": np.float64(np.clip(self.place[0], -9, 9)), "gear": 1 + self.steps % 3}
        return {"eye": eye, "body": body, "rest": (np.array([1, 0], np.int8), np.array([1, self.steps % 3]))}


class Eyes(Line):
    """Nothing but pictures, by these names."""

    def __init__(self, names: tuple[str, ...], **more: Any) -> None:
        super().__init__(**more)
        picture = spaces.Box(0, 255, (16, 16, 3), np.uint8)
        self.observation_space: Any = spaces.Dict(dict.fromkeys(names, picture))

    def seen(self) -> Any:
        line = np.arange(16, dtype=np.uint8)
        return {
            name: np.broadcast_to((line * (self.steps + number))[:, None], (16, 16))[..., None].repeat(3, -1)
            for number, name in enumerate(self.observation_space.spaces)
        }


class Drawers(Line):
    """Several choices at once, the second of which is counted from 5."""

    action_space: Any = spaces.MultiDiscrete([2, 3], start=[0, 5])

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return super().step(np.array([action[0] - 0.3 * (action[1] - 6)]))


class Painter(Line):
    """Draws as it should not."""

    def __init__(self, fault: str, **more: Any) -> None:
        super().__init__(**more)
        self.fault = fault

    def render(self) -> Any:
        match self.fault:
            case "moves":
                self.place = self.place + 0.01
            case "exits":
                os._exit(3)
            case "raises":
                raise ValueError("no paint")
        return super().render()


class Clock(Line):
    """Says how late it is."""

    def seen(self) -> Any:
        return np.array([self.place[0], time.perf_counter_ns() % 1_000_003])


class Entropy(Line):
    """Moved by what nobody can repeat."""

    def move(self, by: float) -> None:
        self.place = self.place + 0.05 * by + (os.urandom(1)[0] - 127.5) / 1e4


class Late(Line):
    """As `Entropy`, from its 40th step on: no check of some steps finds it."""

    def move(self, by: float) -> None:
        super().move(by + (os.urandom(1)[0] / 1000 if self.steps > 40 else 0.0))


class Naughty(Line):
    """Does one thing wrong at its third step, or at its beginning."""

    def __init__(self, fault: str, **more: Any) -> None:
        if fault == "made":
            raise RuntimeError("there is no display\nand much more")
        super().__init__(**more)
        self.fault = fault
        if fault == "no bounds":
            self.action_space = spaces.Box(-np.inf, 1.0, (2,), np.float32)
        if fault == "text":
            self.observation_space = spaces.Dict({"words": spaces.Text(5)})
        if fault == "many":
            self.action_space = spaces.MultiDiscrete([100, 100])

    def reset(self, **more: Any) -> tuple[Any, dict]:
        obs, info = super().reset(**more)
        return obs if self.fault == "old reset" else (obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps == 40 and self.fault == "hangs":  # after every check
            time.sleep(3600)
        if self.steps == 3:
            match self.fault:
                case "raises":
                    raise ZeroDivisionError("division by nothing")
                case "exits":
                    raise SystemExit(3)
                case "nan":
                    obs[1] = np.nan
                case "nan reward":
                    reward = np.float64("nan")
                case "large reward":
                    reward = 1e300
                case "shape":
                    obs = obs[:1]
                case "words":
                    obs = np.array(["a", "b"])
                case "no reward":
                    reward = None
                case "flag":
                    terminated = "no"
                case "four":
                    return obs, reward, terminated, info
        return obs, reward, terminated, truncated, info


class Parent(Line):
    """Starts processes in each reset; each of them must die of the signal that it sends itself."""

    def reset(self, **more: Any) -> tuple[Any, dict]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            found = subprocess.run(["/bin/sh", "-c", f"kill -{int(number)} $$"], check=False).returncode
            assert found == -number, f"a program that got {number.name} ended with {found}"
        child = multiprocessing.get_context("fork").Process(target=_term_oneself)
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGTERM, f"a process that was forked ended with {child.exitcode}"
        return super().reset(**more)


def _term_oneself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Loud(Line):
    """Prints, in Python and below it."""

    def __init__(self, **more: Any) -> None:
        print("a banner")
        super().__init__(**more)

    def reset(self, **more: Any) -> tuple[Any, dict]:
        os.write(1, b"it begins\n")
        return super().reset(**more)


class Closer(Line):
    """Once `note` exists, it writes there that it was closed, and then fails in that."""

    def __init__(self, note: str, **more: Any) -> None:
        super().__init__(**more)
        self.note = Path(note)

    def close(self) -> None:
        if self.note.exists():
            with self.note.open("a") as file:
                file.write("closed\n")
            raise OSError("it is stuck")


class Outside(Line):
    """Gives numbers that are `times` as large as its space says."""

    observation_space: Any = spaces.Box(-2.0, 2.0, (2,), np.float64)

    def __init__(self, times: float, **more: Any) -> None:
        super().__init__(**more)
        self.times = times

    def seen(self) -> Any:
        return np.array([2.0 * self.times, self.steps / self.length])


class Deaf(Line):
    """Answers the signals of a hand-over itself, and blocks them: from its making on, and after each reset and step."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.deafen()

    def reset(self, **more: Any) -> tuple[Any, dict]:
        self.deafen()
        return super().reset(**more)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.deafen()
        return super().step(action)

    def close(self) -> None:
        self.deafen()

    def deafen(self) -> None:
        numbers = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


class Lingering(Line):
    """Leaves a thread that never ends, and no daemon."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        threading.Thread(target=threading.Event().wait).start()


class Unending(Line):
    """Its `at`-th making or closing in this process never ends."""

    made: ClassVar[dict[str, int]] = {"make": 0, "close": 0}

    def __init__(self, where: str, at: int = 1, **more: Any) -> None:
        super().__init__(**more)
        self.where, self.at = where, at
        self.count("make")

    def close(self) -> None:
        self.count("close")

    def count(self, what: str) -> None:
        self.made[what] += 1
        if what == self.where and self.made[what] >= self.at:
            threading.Event().wait()


class Double(Line):
    """Computes with torch, in double precision by default."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        import torch

        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)


class Undecided(gym.Env):
    """Lacks one of its spaces until its first reset."""

    def __init__(self, lacks: str) -> None:
        for name in {"observation_space", "action_space"} - {lacks}:
            setattr(self, name, getattr(Line, name))


class Rebuilt(Line):
    """MuJoCo's: each reset builds a model anew, with as many bodies as the next of `bodies` says."""

    def __init__(self, bodies: list[int], **more: Any) -> None:
        super().__init__(**more)
        self.bodies = list(bodies)

    def reset(self, **more: Any) -> tuple[Any, dict]:
        import mujoco

        found = super().reset(**more)
        balls = "".join(f"<body pos='{n} 0 0'><geom size='0.1'/></body>" for n in range(self.bodies[0]))
        self.bodies.append(self.bodies.pop(0))
        self.model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{balls}</worldbody></mujoco>")
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        return found


def Stacked(**more: Any) -> gym.Env:
    """In a wrapper that remembers, so that it is played again."""
    return gym.wrappers.FrameStackObservation(Keeper(**more), 3)


def Seeker(**more: Any) -> gym.Env:
    """A robot that is to reach a place."""
    env = gym.make("InvertedPendulum-v5", **more)
    env.unwrapped.goal = np.array([1.0, 2.0, 3.0])
    return env


def Old() -> Any:
    """No environment of Gymnasium's."""
    return object()


if "Drawers-v0" not in gym.registry:
    gym.register("Drawers-v0", f"{__name__}:Drawers", max_episode_steps=14)
