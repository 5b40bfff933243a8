"""Small policies for tests of what lies between a publisher and its readers."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from syncd.store import (
    Draft,
    Golden,
    Lineage,
    Manifest,
    PolicyFields,
    Score,
    Shared,
    SlotPlace,
    SuiteFields,
    publish,
    rounded,
)

RUN = "demo-0123abcd"
#: A 256 x 256 MT10 actor has 80,000 numbers; these have 900, or as many as a test asks for.
HIDDEN = (16,)
SPACES = {
    "obs": {"state": {"shape": [39], "dtype": "float32", "low": None, "high": None}},
    "action": {"box": 4},
    "tasks": ["reach-v3"],
    "horizon": 500,
}


def tensors(seed: int, wide: int = HIDDEN[0]) -> dict[str, npt.NDArray[np.float32]]:
    """Weights, drawn from `seed`."""
    random = np.random.default_rng(seed)
    return {
        "hidden.weight": random.standard_normal((wide, 39)).astype(np.float32),
        "out.bias": random.standard_normal(8).astype(np.float32),
    }


def a_draft(place: SlotPlace, attempt: int, seq: int, *, step: int = 0, created_at: float | None = None) -> Draft:
    """What a learner says of such a policy."""
    return Draft(
        run_id=place.run_id,
        run_name=place.run_id.rpartition("-")[0],
        slot=place.slot,
        attempt=attempt,
        seq=seq,
        step=step or 1000 * seq,
        updates=500 * seq,
        created_at=time.time() if created_at is None else created_at,
        policy=PolicyFields(spaces=SPACES, network={"actor_hidden": list(HIDDEN)}, distribution="squashed-normal"),
        suite=SuiteFields(
            name="metaworld",
            version="1",
            settings={"name": "metaworld", "tasks": ["reach-v3"], "horizon": 500},
            seed=7,
            packages={"metaworld": "3.1.1", "mujoco": "3.3.0"},
        ),
        lineage=Lineage(identity="f" * 64),
        golden=Golden(seed=seq, action=((0.5, -0.5, 0.0, 0.0),), tolerance=0.02),
        score=Score(step=1000 * seq, mean_success=0.25, goals_per_task=5),
    )


def publish_one(
    shared: Shared,
    attempt: int,
    seq: int,
    *,
    run: str = RUN,
    slot: int = 0,
    wide: int = HIDDEN[0],
    created_at: float | None = None,
    averaged: bool = False,
) -> Manifest:
    """Publish one; its weights depend on the version alone. `averaged`: among the slot's averaged ones."""
    place = shared.slot(run, slot)
    place = place.averaged if averaged else place
    draft = a_draft(place, attempt, seq, created_at=created_at)
    return publish(place, draft, rounded(tensors(1000 * attempt + seq, wide)))
