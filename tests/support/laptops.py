"""Laptops of people who watch and contribute, each with a home, a key and settings; and a training to share."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster
from sshd import Laptop, Sshd

SYNCD = str(Path(sys.executable).parent / "syncd")


@dataclass
class Machine:
    """One laptop with its stored settings, its daemon and its actors."""

    laptop: Laptop
    server: Sshd
    folder: Path
    stack: ExitStack

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A module's program of this laptop in the background; it ends with the test."""
        return self.start_program(name, "-m", *command)

    def start_program(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A Python program of this laptop in the background; it ends with the test."""
        with open(self.laptop.home / f"{name}.txt", "wb") as out:
            child = subprocess.Popen(
                [sys.executable, *command], env=self.env(), stdout=out, stderr=out, cwd=self.laptop.home
            )
        self.stack.callback(end, child)
        return child

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of this laptop, to its end."""
        return subprocess.run(
            [sys.executable, "-m", *command], env=self.env(), cwd=self.laptop.home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def said(self, name: str) -> str:
        return (self.laptop.home / f"{name}.txt").read_text(errors="replace")

    def env(self) -> dict[str, str]:
        return self.laptop.env() | {"OMP_NUM_THREADS": "1"}


def end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(PATIENCE_S)


@contextmanager
def machines(new_sshd: Callable[..., Sshd]) -> Iterator[Callable[..., Machine]]:
    """`make("anna", shared)`: her own home, key, sshd port and settings, as `syncd setup` would store them.

    `gated`: her key may do no more than the gate lets it.
    """
    with ExitStack() as stack:

        def make(name: str, shared: Path, *, gated: bool = False) -> Machine:
            server = new_sshd()
            gate = f'restrict,command="{SYNCD} gate {name} --shared {shared}"'
            laptop = server.new_client(name, options=gate if gated else "")
            folder = laptop.home / "shared_weights"
            settings = {
                "remote": {
                    "path": str(shared),
                    "host": "cluster",
                    "command": SYNCD,
                    "ssh_config": str(laptop.config),
                },
                "folder": str(folder),
                "name": name,
            }
            path = laptop.home / ".config" / "anchorleg" / "syncd.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(settings))
            return Machine(laptop, server, folder, stack)

        yield make


def a_training(new_relay: NewRelay, slurm: SlurmCluster, *, slots: int = 1, **training: Any) -> Relay:
    """A run that trains on reach for ever; `training` replaces fields."""
    return new_relay(
        "reach",
        env=slurm.env(),
        executor="slurm",
        slots=slots,
        lead_seconds=20,
        poll_seconds=1,
        slurm={"time_limit": "30", "mem": "2G", "cpus_per_task": 1, "gpus": 0},
        command=None,
        collaboration={"enabled": True},
        training={
            "preset": "tiny",
            "total_steps": 10_000_000,
            "num_envs": 2,
            "num_workers": 0,
            "updates_per_step": 0.2,
            "random_steps": 200,
            "publish_interval": 50,
            "checkpoint_interval": 1_000,
            "metrics_interval": 500,
            "evaluation_goals": 0,
            **training,
        },
    )
