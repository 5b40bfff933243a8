"""The arm's stepper as Python calls it. `ROW` mirrors `struct row` (row.h), field by field."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.config.suites import Arm
from trainer.envs.native import verdicts
from trainer.envs.native.library import POINTER, SIMULATOR_FAILED, NativeLibrary, SteppedRows, default_folder
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import STATE
from trainer.envs.suite import EpisodeStats, StepFaultError
from trainer.envs.suites.arm.env import COUNTED, ArmEnv
from trainer.envs.suites.arm.shapes import (
    EFFORT,
    JOINTS,
    LEAD,
    OBSERVATION,
    OPEN,
    OPENS,
    REWARDS,
    SHUT,
    SHUTS,
    SOLVED,
    STEEPNESS,
    SUBSTEPS,
    spaces,
)
from trainer.machine.host import processor

SOURCES = Path(__file__).parent
ROW = np.dtype(
    [
        *[(name, POINTER) for name in ("model", "data", "hand", "noise")],
        *[(name, np.float64, JOINTS) for name in ("low", "high", "reach", "target", "held")],
        *[(name, np.float64) for name in ("total", "reward")],
        ("last", np.float32, OBSERVATION),
        *[(name, np.int32) for name in ("steps", "triggered", "delay", "reached", "has_triggered")],
        *[(name, np.int32) for name in ("length", "solved", "stepped")],
        *[(name, np.int32) for name in ("taken", "noise_rows", "pays", "is_legacy", "ends_on_success", "episode")],
        *[(name, np.int32) for name in ("index", "task", "horizon", "stop_at_success", "finished", "fault")],
    ],
    align=True,
)
#: `struct numbers` (row.h).
NUMBERS = (LEAD, SOLVED, SHUTS, OPENS, OPEN, SHUT, EFFORT, STEEPNESS)
#: `enum reward` (row.h).
PAYS = {name: number for number, name in enumerate(REWARDS)}


class ArmLibrary(NativeLibrary):
    """The library of one process. `machine`: the processor, and how its C library computes."""

    row: ClassVar[np.dtype[Any]] = ROW
    faults: ClassVar[Mapping[int, str]] = {1: SIMULATOR_FAILED}  # `enum fault` (row.h)

    def __init__(self, folder: Path) -> None:
        """Find or build it in `folder`. Errors: StepperUnavailableError."""
        super().__init__(SOURCES, folder, SUBSTEPS, "mj_kinematics")
        numbers = np.array(NUMBERS)
        self.held.configure(ctypes.c_void_p(numbers.ctypes.data))
        self.machine = f"{processor()} {_fingerprint()}"


@cache
def load(folder: Path | None = None) -> ArmLibrary:
    """The stepper, once a process. Errors: StepperUnavailableError."""
    return ArmLibrary(folder or default_folder(SOURCES))


def _fingerprint() -> str:
    values = np.array([math.tanh(x) for x in np.random.default_rng(0).uniform(0, 6, 300)])
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


class ArmRows(SteppedRows):
    """The arms of one group that are stepped natively."""

    def __init__(
        self,
        library: ArmLibrary,
        count: int,
        fields: Mapping[str, npt.NDArray[Any]],
        threads: int,
        horizon: int,
        *,
        stop_at_success: bool = False,
    ) -> None:
        super().__init__(library, count, fields, threads)
        self.rows["horizon"], self.rows["stop_at_success"] = horizon, stop_at_success
        self.seen = fields[f"next_obs.{STATE}"].shape[1]

    def bind(self, place: int, index: int) -> ArmBinding:
        return ArmBinding(self, place, index)


class ArmBinding:
    """Row number `place` of `rows`, for environment number `index`; taken or free."""

    def __init__(self, rows: ArmRows, place: int, index: int) -> None:
        self._row = rows.rows[place]
        self._row["index"] = index
        self._seen = rows.seen
        self._env: ArmEnv | None = None
        self._settled: ArmEnv | None = None

    @property
    def taken(self) -> bool:
        return self._env is not None

    def take(self, env: Any, task: int, stats: EpisodeStats) -> None:
        row = self._row
        if env is not self._settled:
            _settle(row, env)
            self._settled = env
        row["target"], row["held"] = env.target, env.held
        for name in COUNTED:
            row[name] = getattr(env, name)
        if env.dynamics is not None:
            row["noise"], row["noise_rows"] = env.dynamics.noise.ctypes.data, len(env.dynamics.noise)
        row["length"], row["total"], row["solved"] = stats.length, stats.total, stats.solved
        row["task"], row["stepped"], row["taken"] = task, 0, 1
        self._env = env

    def read(self) -> tuple[EpisodeStats, dict[str, npt.NDArray[Any]] | None]:
        row = self._row
        stats = EpisodeStats(int(row["length"]), float(row["total"]), bool(row["solved"]))
        if self._env is None or not row["stepped"]:
            return stats, None
        self._env.target, self._env.held = row["target"].tolist(), row["held"].tolist()
        for name in COUNTED:
            setattr(self._env, name, int(row[name]))
        return stats, {STATE: row["last"][: self._seen].copy()}

    def leave(self) -> None:
        self._row["taken"] = self._row["finished"] = self._row["fault"] = 0
        self._env = None


def _settle(row: Any, env: ArmEnv) -> None:
    """What stays of `row` (a ROW) while `env` lives."""
    row["model"], row["data"] = env.model._address, env.data._address  # noqa: SLF001 - made for this
    row["hand"] = env.data.site_xpos[env.grip].__array_interface__["data"][0]
    row["low"], row["high"], row["reach"] = env.low, env.high, env.reach
    row["pays"], row["is_legacy"] = PAYS[env.settings.reward], env.settings.observation == "legacy"
    row["ends_on_success"], row["episode"] = env.settings.end_on_success, env.settings.horizon
    row["noise"], row["noise_rows"] = 0, 0


#: Of each of two episodes.
_STEPS = 60
#: An action lasts so many: enough to reach limits and the table.
_TURN = 10
#: When the goal comes to the hand, and how near, metres.
_MEET, _NEAR = 35, 0.02
#: Packages whose version may change a bit of a step.
_PACKAGES = ("mujoco", "numpy")
_SUITE = Path(__file__).parents[1]

_log = logging.getLogger(__name__)


def name_of(settings: Arm) -> str:
    """What is judged: all that the stepper does differently by `settings`."""
    more = [name for name in ("end_on_success", "randomize") if getattr(settings, name)]
    return " ".join([settings.reward, settings.observation, *more])


def approved(settings: Arm) -> frozenset[str]:
    """The name of `settings` where arms of them step alike on both paths. Errors: StepperUnavailableError."""
    library = load()
    name = name_of(settings)
    return verdicts.approved(library, [name], _PACKAGES, _SUITE, lambda _: steps_alike(library, settings))


def steps_alike(library: ArmLibrary, settings: Arm) -> bool:
    """Two episodes of actions that go one way for a while, and farther than they may, side by side on both paths."""
    settings = settings.model_copy(update={"horizon": _STEPS})
    buffers = SharedBuffers(spaces(settings), 1, measures=len(settings.MEASURES))
    rows = ArmRows(library, 1, buffers.fields, 1, _STEPS)
    binding, ours, theirs = rows.bind(0, 0), ArmEnv(settings), ArmEnv(settings)
    rng = np.random.default_rng(0)
    try:
        for seed in range(2):
            ours.reset(0, seed)
            theirs.reset(0, seed)
            binding.take(ours, 0, EpisodeStats())
            actions = rng.uniform(-1.5, 1.5, (_STEPS // _TURN, JOINTS)).astype(np.float32).repeat(_TURN, axis=0)
            for step, action in enumerate(actions):
                if step == _MEET:  # so that what happens at the goal is compared as well
                    ours.data.mocap_pos[0] = theirs.data.mocap_pos[0] = theirs.data.site_xpos[theirs.grip] + _NEAR
                buffers.fields["actions"][0] = action
                rows.step()
                outcome = theirs.step(action)
                row = rows.rows[0]
                seen = buffers.next_obs[STATE][0].tobytes(), row["reward"].tobytes(), bool(buffers.fields["success"][0])
                if seen != (outcome.obs[STATE].tobytes(), np.float64(outcome.reward).tobytes(), outcome.success):
                    return False
            binding.read()
            if not verdicts.are_same(ours.snapshot(), theirs.snapshot()):
                return False
    except (StepFaultError, ValueError) as error:
        _log.warning("the check of the arm failed: %s", error)
        return False
    finally:
        rows.close()
        buffers.close()
    return True
