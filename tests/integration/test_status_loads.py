"""What `status` loads: it is asked often, on login nodes that are shared. What it costs says bench/status_cpu.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from relay import NewRelay, Relay

#: The command, and on its standard error the modules that it has loaded at its end.
TOLD = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from orchestrator.cli import main
main()
"""
#: Of no use to somebody who asks how a run stands. Each takes tenths of a second of a slow processor.
NEEDLESS = {"asyncio", "ctypes", "http", "matplotlib", "numpy", "paramiko", "pygments", "ssl", "torch", "watchdog"}


def loaded(relay: Relay, cwd: Path, *words: str) -> set[str]:
    """The modules that a command loads."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD, *words],
        cwd=cwd, env=relay.env, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture
def relay(new_relay: NewRelay) -> Relay:
    """A run that has ended."""
    relay = new_relay(total=3, slots=2)
    assert relay.run("start").code == 0
    return relay


@pytest.mark.long
def test_status_loads_what_it_shows_and_no_controller(relay: Relay) -> None:
    for cwd, words in ((relay.folder, ("status",)), (Path("/"), ("status", "toy", "--json"))):
        modules = loaded(relay, cwd, *words)
        assert modules & NEEDLESS == set()
        assert modules & {"orchestrator.controller", "orchestrator.executors.slurm", "orchestrator.doctor"} == set()
        assert "orchestrator.screens.reading" in modules


def test_help_loads_no_models(relay: Relay) -> None:
    modules = loaded(relay, Path("/"), "--help")
    assert modules & (NEEDLESS | {"pydantic", "orchestrator.config"}) == set()
    assert "orchestrator.cli" in modules
