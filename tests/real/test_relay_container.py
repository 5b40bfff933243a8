"""Inside a container no signal arrives: the hand-over file alone does it."""

from __future__ import annotations

from typing import Any

import pytest
from container import Container
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster


def contained(new_relay: NewRelay, container: Container, **settings: Any) -> Relay:
    """A run of the counting program inside the image."""
    total = settings.pop("total")
    section = {"image": str(container.image), "runtime": "ch-run", "binds": list(container.binds)}
    command = [container.python, "./count.py", str(total)]
    return new_relay(total=total, container=section, command=command, **settings)


@pytest.mark.long
def test_a_program_in_a_container_is_handed_over_by_the_file_alone(container: Container, new_relay: NewRelay) -> None:
    relay = contained(new_relay, container, total=80, training={"max_runtime_seconds": 1.5})

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(80)
    assert len(relay.attempts()) >= 2


@pytest.mark.long
@pytest.mark.slurm
def test_a_container_on_slurm_is_handed_over_too(
    slurm: SlurmCluster, container: Container, new_relay: NewRelay
) -> None:
    section = {"time_limit": "30", "mem": "100M", "cpus_per_task": 1, "gpus": 0}
    relay = contained(
        new_relay, container, total=120, env=slurm.env(), executor="slurm", slurm=section, poll_seconds=0.5,
        training={"max_runtime_seconds": 2},
    )  # fmt: skip

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(120)
    assert len(relay.attempts()) >= 2
