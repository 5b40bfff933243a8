"""Inside a container no signal arrives: the hand-over file alone does it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from container import Container
from needs import need
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster


def contained(new_relay: NewRelay, container: Container, **settings: Any) -> Relay:
    """A run of the counting program inside the image."""
    total = settings.pop("total")
    section = {"image": str(container.image), "runtime": "ch-run", "binds": list(container.binds)}
    section |= settings.pop("runtime", {})
    command = [container.python, "./count.py", str(total)]
    return new_relay(total=total, container=section, command=command, **settings)


@pytest.mark.long
def test_a_program_in_a_container_is_handed_over_by_the_file_alone(container: Container, new_relay: NewRelay) -> None:
    relay = contained(new_relay, container, total=80, training={"max_runtime_seconds": 1.5})

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(80)
    assert len(relay.attempts()) >= 2


#: What this machine's podman can do: runc counts in groups of its own, and raises no limits.
RUNC = ["--cgroups=no-conmon", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]


@pytest.mark.long
def test_a_program_in_podman_is_handed_over_too(container: Container, new_relay: NewRelay, tmp_path: Path) -> None:
    need("podman", [name for name in ("podman", "runc") if shutil.which(name) is None])
    podman = tmp_path / "bin/podman"
    podman.parent.mkdir()
    podman.write_text(f'#!/bin/sh\nexec {shutil.which("podman")} --runtime=runc --cgroup-manager=cgroupfs "$@"\n')
    podman.chmod(0o755)
    relay = contained(
        new_relay, container, total=200, runtime={"runtime": "podman", "options": RUNC}, slurm={"gpus": 0},
        env={**os.environ, "PATH": f"{podman.parent}:{os.environ['PATH']}"}, training={"max_runtime_seconds": 2},
    )  # fmt: skip

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(200)
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
