"""Every line of docs/laptops.md before the section on accounts is typed as it stands: three home folders, and a real
sshd between them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from sshd import Laptop, Sshd

from syncd import store
from syncd.shared.counts import counts

pytestmark = [pytest.mark.trainer, pytest.mark.long]

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^(cluster|laptop|friend)\$ (.+)$", re.MULTILINE)
#: What a reader leaves running in a terminal of its own, and what they end with Ctrl-C after a while.
LEFT_RUNNING = "syncd watch"
WATCHED = ("trainer actors", "viewer")
#: Some lines train until a job is handed over.
LINE_TIMEOUT_S = 2 * PATIENCE_S


def lines_of_the_page() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "laptops.md").read_text(encoding="utf-8")
    return LINE.findall(page.split("\n## Share with accounts")[0])


class World:
    """`machine$ line`: the folder that the line is typed in, and the home of who types it."""

    def __init__(self, sshd: Sshd, tmp_path: Path) -> None:
        self.project = tmp_path / "project"
        self.project.mkdir()
        self.people: dict[str, Laptop] = {
            "cluster": sshd.new_client("cluster", options=None),
            "laptop": sshd.new_client("laptop"),
            "friend": sshd.new_client("friend", options=None),
        }
        self.sshd = sshd
        self.typed: list[subprocess.Popen[bytes]] = []
        # ssh asks the password database for its user's home: these three share one account.
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for program in ("ssh", "sftp"):
            found = shutil.which(program)
            (self.bin / program).write_text(f'#!/bin/sh\nexec {found} -F "$HOME/.ssh/config" "$@"\n')
            (self.bin / program).chmod(0o755)
        value = {
            "run_name": "mt10",
            "executor": "local",
            "lead_seconds": 5,
            "slurm": {"time_limit": "0:30:00"},
            "collaboration": {"enabled": True},
            "training": {
                "preset": "tiny", "tasks": ["reach-v3"], "num_envs": 2, "num_workers": 0, "total_steps": 10_000_000,
                "updates_per_step": 0.1, "random_steps": 200, "publish_interval": 50, "evaluation_goals": 0,
            },
        }  # fmt: skip
        (self.project / "cluster_config.json").write_text(json.dumps(value))

    def env(self, machine: str) -> dict[str, str]:
        return self.people[machine].env() | {
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.people[machine].home / "state"),
        }

    def folder(self, machine: str) -> Path:
        return self.project if machine == "cluster" else self.people[machine].home

    def type(self, machine: str, line: str, enough: Callable[[], object]) -> str:
        """Type it, as it stands but for the folder that `project` means; returns what was said.

        `enough`: what a person waits for who watches, before they press Ctrl-C.
        """
        told = line.replace("cluster:project", f"cluster:{self.project}")
        if line.startswith((LEFT_RUNNING, *WATCHED)):
            told = f"exec {told}"  # Ctrl-C is for the program, not for bash
        with open(self.people[machine].home / f"said-{len(self.typed)}.txt", "w+") as out:
            child = subprocess.Popen(
                ["bash", "-c", told], cwd=self.folder(machine), env=self.env(machine), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            self.typed.append(child)
            if line.startswith(LEFT_RUNNING):
                return ""
            if line.startswith(WATCHED):
                wait_for(lambda: child.poll() is not None or enough(), f"{machine}$ {line}")
                child.send_signal(signal.SIGINT)
            child.wait(LINE_TIMEOUT_S)
            out.seek(0)
            said = out.read()
        assert child.returncode in ({0, 130} if line.startswith(WATCHED) else {0}), f"{machine}$ {line}\n{said}"
        return said

    def close(self) -> None:
        for child in self.typed:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
        for child in self.typed:
            child.wait(PATIENCE_S)
        subprocess.run(
            ["orchestrator", "stop", "--now"],
            cwd=self.project,
            env=self.env("cluster"),
            timeout=PATIENCE_S,
            check=False,
        )


@pytest.fixture
def world(sshd: Sshd, tmp_path: Path) -> Iterator[World]:
    world = World(sshd, tmp_path)
    try:
        yield world
    finally:
        world.close()


def has_begun(shared: Path) -> bool:
    """Whether there is something to see: a reader takes a minute to get from part 1 to part 2."""
    return any(store.newest(place) and store.read_metrics(place, "metrics") for place in store.Shared(shared).slots())


def accepted(shared: Path, who: str | None) -> int:
    """How many segments the learner took, of everybody or of one."""
    inboxes = [inbox for inbox in store.Inbox.all_of(store.Shared(shared)) if who in {None, inbox.who}]
    return sum(counts(inbox.path).accepted for inbox in inboxes)


def is_served(world: World) -> bool:
    """Whether the last command printed the address of a page."""
    return "http://127.0.0.1:" in (world.people["laptop"].home / f"said-{len(world.typed) - 1}.txt").read_text()


def test_every_line_of_the_page_does_what_it_says(world: World) -> None:
    shared = world.project / "runs" / "mt10" / "shared"
    said: dict[str, str] = {}
    for machine, line in lines_of_the_page():
        who = "ben" if machine == "friend" else None
        before = accepted(shared, who) if line.startswith(WATCHED) else 0
        said[f"{machine}$ {line}"] = world.type(
            machine,
            line,
            lambda: is_served(world) if line == "viewer" else accepted(shared, who) > before,  # noqa: B023
        )
        if "ssh-keygen" in line:  # sent by mail
            shutil.copy(world.people["friend"].home / "friend_key.pub", world.people["laptop"].home)
        if "--friend-key" in line:  # pasted by the account's owner
            allowed = re.search(r"^restrict,.+$", said[f"{machine}$ {line}"], re.MULTILINE)
            assert allowed is not None
            with open(world.sshd.authorized_keys, "a", encoding="utf-8") as file:
                file.write(allowed.group() + "\n")
        if line.startswith("orchestrator start"):
            wait_for(lambda: has_begun(shared), "a first policy and the first curves")
    laptop = world.people["laptop"].home
    assert (laptop / "reach.mp4").stat().st_size > 10_000
    assert (laptop / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert store.Inbox.of(store.Shared(shared), "ben").is_dropped
