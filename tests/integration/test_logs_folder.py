"""`tail -f <run_dir>/logs/slurm-*.out`, as people type it, on this machine's jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from relay import NewRelay, Relay

#: Typed where the config is.
TAIL = "tail -n +1 runs/*/logs/slurm-*.out"


def linked(relay: Relay) -> dict[str, Path]:
    """Name of each link → the file that it leads to."""
    return {path.name: path.resolve(strict=True) for path in (relay.run_dir / "logs").iterdir()}


@pytest.mark.long
def test_every_jobs_output_is_found_in_one_folder(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, slots=2)
    relay.hold_at(20)
    relay.spawn("start")
    for slot in (0, 1):
        relay.wait_for_step(1, slot)  # the links are its job's first act
    started = {path.name for path in (relay.run_dir / "jobs").glob("*/job-*.out")}
    assert {name.replace("job-", "slurm-") for name in started} <= set(linked(relay)), "while it runs"
    relay.release()
    relay.wait_for(lambda: relay.children[0].poll() is not None, "the end of the run")
    files = list((relay.run_dir / "jobs").glob("*/job-*.*"))
    assert {path.name.replace("job-", "slurm-"): path.resolve() for path in files} == linked(relay)
    assert len(files) >= 4
    typed = subprocess.run(
        ["bash", "-c", TAIL], cwd=relay.folder, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert typed.stdout.count("==> runs/") == len(files) / 2
