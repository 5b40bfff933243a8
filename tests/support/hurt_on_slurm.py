"""Trainings on a test Slurm whose jobs are hurt between two updates (`killed_between_updates.py`): killed, and asked to
hand over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_runs import KILLED, PROGRAM
from relay import PATIENT, NewRelay, Relay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm

from anchorleg.job import HANDED_OVER, attempt_numbers

#: One object for each attempt: an update of it → the signal just before that.
Signals = Sequence[Mapping[str, str]]


def hurt_jobs(
    new_relay: NewRelay, slurm: SlurmCluster, name: str, training: Mapping[str, Any], signals: Signals, **job: Any
) -> Relay:
    """A run of one slot whose attempts get `signals`, to its end; every job ended as it was to. `job`: fields of the
    section `slurm`.
    """
    relay = on_slurm(
        new_relay,
        slurm,
        name,
        command=[sys.executable, str(PROGRAM), json.dumps(signals), "train"],
        params=training,
        slurm={"mem": "2G", **job},
        relay=PATIENT,
    )
    controller = relay.spawn("start")
    assert relay.ended(controller) == 0, relay.output()
    assert attempt_numbers(slot_of(relay)) == list(range(len(signals) + 1))
    assert codes_of(relay)[:-1] == [code_of(each) for each in signals]
    return relay


def slot_of(relay: Relay, slot: int = 0) -> Path:
    """Its folder."""
    return relay.run_dir / "slots" / str(slot)


def codes_of(relay: Relay, slot: int = 0) -> list[int]:
    """How its attempts ended, oldest first."""
    return [relay.read("exit.json", number, slot)["code"] for number in attempt_numbers(slot_of(relay, slot))]


def code_of(signals: Mapping[str, str]) -> int:
    """How an attempt ends that gets them."""
    return KILLED if "SIGKILL" in signals.values() else HANDED_OVER
