"""What an exported file says of itself: the same JSON in each format, sealed into the file."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from anchorleg.files import read_json_or_none
from anchorleg.places import run_id_of
from syncd import store
from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, STATE, Box, Discrete
from trainer.evaluation.playable import Checkpoint, Found
from trainer.history.read import of_average, read_evaluations
from trainer.history.slots import told_where
from trainer.sharing.policies import score_of

FORMAT = 1
#: The card's name in a file: in ONNX's `metadata_props` and in the header of safetensors; with .json in a .pt2.
NAME = "anchorleg"
#: Golden rows: each task once, and at least so many.
_GOLDEN_ROWS = 8
#: Largest difference of a golden action. Other libraries sum in another order: 5e-6 was the most for the actors of all
#: presets, with fourfold weights, too [measured]. A file that is read wrongly (tasks in another order) is tenths off.
TOLERANCE = 1e-4

#: How actions come of the last layer: its tanh, or itself, both to the bounds and within them; or its largest place.
Head = Literal["tanh", "clip", "argmax"]
#: By the name of the policy's distribution.
HEADS: dict[str, Head] = {"squashed-normal": "tanh", "tanh-noise": "tanh", "normal": "clip", "categorical": "argmax"}

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Numbers(_Model):
    """One input or output, without its first axis N."""

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


class GoldenActions(_Model):
    """Observations, their tasks, and the actions that the file must give for them, up to `tolerance`."""

    observation: tuple[tuple[float, ...], ...]
    task: tuple[int, ...]
    action: tuple[tuple[float, ...], ...]
    tolerance: float = TOLERANCE


class Source(_Model):
    """Where the weights come from; None where it is not known, as of a checkpoint that was copied out of its run.

    `version`: of a publication, whose weights are rounded to bfloat16; None: a checkpoint, in full precision.
    `averaged`: they are the moving average of what was trained, and `score` is that one's.
    """

    run_id: str | None
    slot: int | None
    attempt: int
    step: int
    version: str | None
    identity: str
    score: store.Score | None
    trained_with: dict[str, str]
    averaged: bool = False


class Card(_Model):
    """All that is said of a policy in its file. `tasks[k]` is the name of task k."""

    format: int = FORMAT
    source: Source
    tasks: tuple[str, ...]
    observation: Numbers
    task: Numbers = Numbers(shape=(), dtype="int64")
    action: Numbers
    hidden: tuple[int, ...]
    activation: Literal["relu", "tanh"] = "relu"
    head: Head = "tanh"
    scales_observation: bool = False
    horizon: int
    goal_seed: int
    env: dict[str, Any]
    exported_with: dict[str, str]
    golden: GoldenActions

    @classmethod
    def of(cls, found: Found) -> Self:
        """The card of `found`, with the actions that it gives here. Errors: ConfigError, see `source_of`."""
        spec = found.policy.spec
        (width,), space = spec.spaces.obs[STATE].shape, spec.spaces.action
        obs, task = probes(width, len(spec.spaces.tasks))
        return cls(
            source=source_of(found),
            tasks=spec.spaces.tasks,
            observation=Numbers(shape=(width,), dtype="float32"),
            action=_actions_of(space),
            hidden=spec.network.actor_hidden,
            activation=spec.network.activation,
            head=HEADS[found.policy.net.spec.distribution],
            scales_observation=spec.normalises,
            horizon=spec.spaces.horizon,
            goal_seed=found.goal_seed,
            env={**found.env.model_dump(mode="json"), "version": found.env.VERSION},
            exported_with={"anchorleg": version("anchorleg"), "torch": version("torch")},
            golden=GoldenActions(
                observation=_rows(obs),
                task=tuple(task.tolist()),
                action=_rows(found.policy.act_deterministic({STATE: obs}, task).reshape(len(task), -1)),
            ),
        )

    def deviation(self, actions: npt.NDArray[np.floating]) -> float:
        """The largest difference of `actions` from the golden ones; infinite where they are no such actions at all."""
        wanted = np.array(self.golden.action)
        if actions.shape != (len(wanted), *self.action.shape):
            return math.inf
        largest = float(np.abs(actions.reshape(wanted.shape) - wanted).max())
        return math.inf if math.isnan(largest) else largest


def _actions_of(space: Box | Discrete) -> Numbers:
    if isinstance(space, Discrete):
        return Numbers(shape=(), dtype="int64", low=(0,), high=(space.n - 1,))
    size = space.size
    return Numbers(shape=(size,), dtype="float32", low=(ACTION_LOW,) * size, high=(ACTION_HIGH,) * size)


def probes(obs_dim: int, tasks: int) -> tuple[F32, I64]:
    """Observations [G, obs_dim] and tasks [G] to compare actions for. The same on every machine.

    In [-1, 1], where Meta-World's metres lie, and in steps of 1/64, which are short in JSON.
    """
    rows = max(tasks, _GOLDEN_ROWS)
    numbers = np.random.default_rng(0).integers(-64, 65, (rows, obs_dim))
    return (numbers / 64).astype(np.float32), np.arange(rows, dtype=np.int64) % tasks


def source_of(found: Found) -> Source:
    """What is known of where `found` comes from. Errors: ConfigError where its run's files cannot be read."""
    if isinstance(found.record, store.Manifest):
        return _published(found.record, averaged=found.averaged)
    return _saved(found.record, averaged=found.averaged)


def _published(manifest: store.Manifest, *, averaged: bool) -> Source:
    return Source(
        run_id=manifest.run_id,
        slot=manifest.slot,
        attempt=manifest.attempt,
        step=manifest.step,
        version=str(manifest.version),
        identity=manifest.lineage.identity,
        score=manifest.score,
        trained_with=manifest.suite.packages,
        averaged=averaged,
    )


def _saved(checkpoint: Checkpoint, *, averaged: bool) -> Source:
    ref, manifest = checkpoint
    run_id, slot, score = None, None, None
    folders = ref.path.parents  # checkpoints, <attempt>, attempts, <slot>, slots, the run's
    if len(folders) > 5 and [folders[n].name for n in (0, 2, 4)] == ["checkpoints", "attempts", "slots"]:
        slot_dir, run_dir = folders[3], folders[5]
        with told_where(run_dir):
            run: dict[str, str] = read_json_or_none(run_dir / "run.json") or {"run_id": run_id_of(run_dir)}
            run_id, slot = run["run_id"], int(slot_dir.name)
            rows = read_evaluations(slot_dir)
            row = next((row for row in rows if row["step"] == ref.step), None)
            told = of_average(row) if row is not None and averaged else row
            score = score_of(told) if told is not None else None
    return Source(
        run_id=run_id,
        slot=slot,
        attempt=ref.attempt,
        step=ref.step,
        version=None,
        identity=manifest.identity,
        score=score,
        trained_with=manifest.versions,
        averaged=averaged,
    )


def _rows(array: npt.NDArray[np.floating]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in np.asarray(array, np.float64))
