"""Policies for tests: small nets, published through the real store as a learner publishes them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from syncd import store
from trainer.algorithms.base import Context
from trainer.buffers.experience import Experience
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.sharing.policies import Policy, actor_tensors, golden_of, suite_fields

RUN = "toy-0123abcd"
TASKS = ("reach-v3", "push-v3")


def training_of(tasks=TASKS, horizon=40, hidden=(16, 16), seed=3):
    """A resolved training section with a small actor."""
    section = TrainingSection(preset="tiny", tasks=tuple(tasks), horizon=horizon, actor_hidden=hidden, seed=seed)
    return resolve(section)


def fresh_algorithm(training):
    """Whatever learns, at step 0."""
    spaces = spaces_of(training)
    experience = Experience(training, spaces) if training.uses_experience else None
    context = Context(training, spaces, training.num_envs, torch.device("cpu"), experience)
    return find(ALGORITHMS, training.algorithm.name)(context)


def fresh_policy(training):
    """Of a fresh learner; one that keeps a scale has seen something."""
    algorithm = fresh_algorithm(training)
    rng = np.random.default_rng(0)
    for moments in getattr(algorithm, "_moments", {}).values():
        moments.add(rng.standard_normal((50, len(moments.mean))) * 3 + 1)
    return algorithm.policy


def spec_of(training):
    """What the policy of `training` is built from."""
    return fresh_policy(training).spec


def nets_for(training, seed=0):
    """The policy's tensors of a fresh learner."""
    return actor_tensors(fresh_policy(training.model_copy(update={"seed": seed})))


def draft_of(
    training, tensors, *, run_id=RUN, slot=0, attempt=1, seq=1, step=100, created_at=None, success=None, **more
):
    """What a learner says of `tensors`; golden actions are those of the rounded weights."""
    policy = Policy(spec_of(training), store.rounded(tensors))
    fields = {
        "run_id": run_id,
        "run_name": run_id.rpartition("-")[0],
        "slot": slot,
        "attempt": attempt,
        "seq": seq,
        "step": step,
        "updates": step,
        "created_at": time.time() if created_at is None else created_at,
        "policy": store.PolicyFields.model_validate(policy.spec.as_json()),
        "suite": suite_fields(training.env, training.seed),
        "lineage": store.Lineage(identity="0" * 64),
        "golden": golden_of(policy, seq, 1e-3),
        "score": None if success is None else store.Score(step=step, mean_success=success, goals_per_task=50),
    }
    return store.Draft(**{**fields, **more})


def publish(folder: Path, *, training=None, seed=0, change=lambda draft: draft, **fields):
    """Publish a fresh net below `folder`; `change` may spoil the draft. Returns the manifest."""
    training = training or training_of()
    tensors = nets_for(training, seed)
    draft = change(draft_of(training, tensors, **fields))
    place = store.Shared(folder).slot(draft.run_id, draft.slot)
    return store.publish(place, draft, store.rounded(tensors))
