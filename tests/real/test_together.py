"""Every line of docs/laptops.md's section on accounts is typed as it stands: four jobs of a group, two laptops, and a
friend's jobs, on one real Slurm and a real sshd. And what a user would look at afterwards.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from accounts import Account, missing_account_parts, throw_away_accounts
from daemons import PATIENCE_S, WORK_S, wait_for
from needs import need
from slurm_cluster import PrivateSlurm
from sshd import Laptop, Sshd, missing_sshd_parts, throw_away_sshd

pytest.importorskip("torch")

from anchorleg.job import attempt_numbers
from syncd import store
from trainer.sharing.journal import Taken, TakenFromPeer, of_line

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

PAGE = (Path(__file__).parents[2] / "docs" / "laptops.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## Share with accounts")[1].split("\n## ")[0]
LINE = re.compile(r"^(ann|laptop|second|eve)\$ (.+)$", re.MULTILINE)
CONFIG = re.compile(r"```json\n(.+?)```", re.DOTALL)
LEFT_RUNNING = ("syncd watch", "trainer actors")
SLOTS = range(4)
LAPTOPS = ("laptop", "second")
#: What makes the page's run a small one.
SMALL: dict[str, Any] = {
    "lead_seconds": 30,
    "poll_seconds": 1,
    "slurm": {"time_limit": "60", "mem": "2G", "cpus_per_task": 1, "gpus": 0},
}
TRAINING: dict[str, Any] = {
    "preset": "tiny",
    "horizon": 50,
    "total_steps": 10_000_000,
    "num_envs": 2,
    "num_workers": 0,
    "batch_size": 32,
    "updates_per_step": 0.05,
    "random_steps": 200,
    "publish_interval": 25,
    "evaluation_goals": 0,
}


class World:
    """A cluster with the accounts of Ann and Eve, and two laptops whose keys Ann's account takes."""

    def __init__(self, ann: Account, eve: Account, group: str, sshd: Sshd, folder: Path) -> None:
        self.accounts = {"ann": ann, "eve": eve}
        self.shared = store.Shared(ann.home / "shared_weights")
        self.run_dir = ann.home / "runs" / "mt10"
        (ann.home / "anchorleg").symlink_to(ann.python.parents[1])  # one of the usual places of an installation
        self.laptops: dict[str, Laptop] = {name: sshd.new_client(name) for name in LAPTOPS}
        self.bin = folder / "bin"
        self.bin.mkdir()
        for program in ("ssh", "sftp"):  # ssh asks the password database for its user's home
            (self.bin / program).write_text(f'#!/bin/sh\nexec {shutil.which(program)} -F "$HOME/.ssh/config" "$@"\n')
            (self.bin / program).chmod(0o755)
        self.group = group
        self.numbers = itertools.count()
        self.typed: dict[str, subprocess.Popen[bytes]] = {}
        self.said: dict[str, Path] = {}
        mine, friends = (json.loads(self.here(text)) for text in CONFIG.findall(SECTION))
        self.write("ann", "cluster_config.json", {**mine, **SMALL, "training": TRAINING})
        self.write("eve", "actors.json", {**friends, **SMALL, "actors": {**friends["actors"], "num_envs": 1}})

    def here(self, text: str) -> str:
        """What the page's folders and its group are called here."""
        return text.replace("/group/mt10/shared_weights", str(self.shared.path)).replace(
            '"group": "mt10"', f'"group": "{self.group}"'
        )

    def write(self, who: str, name: str, value: dict[str, Any]) -> None:
        (self.accounts[who].home / name).write_text(json.dumps(value))

    def type(self, who: str, line: str) -> None:
        """To its end, which is a good one; or left running in a terminal of its own."""
        told = self.here(line)
        if who in self.accounts:
            account = self.accounts[who]
            words = ["runuser", "-u", account.name, "--", "bash", "-c", told]
            env = account.env | {"PATH": f"{self.programs(account)}:{account.env['PATH']}"}
            home = account.home
        else:
            words = ["bash", "-c", f"exec {told}" if line.startswith(LEFT_RUNNING) else told]
            home = self.laptops[who].home
            env = self.laptops[who].env() | {
                "PATH": f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
        out = self.bin.parent / f"said-{next(self.numbers)}.txt"
        self.said[f"{who}$ {line}"] = out
        with open(out, "wb") as file:
            child = subprocess.Popen(
                words, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self.typed[f"{who}$ {line}"] = child
        if not line.startswith(LEFT_RUNNING):
            wait_for(lambda: child.poll() is not None, f"{who}$ {line}")
            assert child.returncode == 0, f"{who}$ {line}\n{out.read_text()}"

    def programs(self, account: Account) -> Path:
        """A folder with the programs that the page names, as this account's Python runs them."""
        folder = account.python.parent
        for name in ("orchestrator", "trainer"):
            if not (folder / name).exists():
                (folder / name).write_text((folder / "syncd").read_text().replace("-m syncd", f"-m {name}"))
                (folder / name).chmod(0o755)
        return folder

    def slot(self, slot: int) -> Path:
        return self.run_dir / "slots" / str(slot)

    def entries(self) -> list[tuple[int, Any]]:
        """(slot, what it took), of all that the learners' journals say."""
        return [(slot, entry) for slot in SLOTS for entry in of_line(self.slot(slot))]

    def contributors(self) -> set[str]:
        return {entry.who for _, entry in self.entries() if isinstance(entry, Taken) and entry.rows > 0}

    def readers(self) -> set[tuple[int, int]]:
        """(slot, of whom it took rows)."""
        return {(slot, entry.peer) for slot, entry in self.entries() if isinstance(entry, TakenFromPeer)}

    def mirrored(self, who: str) -> dict[int, store.Version]:
        """The newest policy of each slot on a laptop."""
        mirror = store.Shared(self.laptops[who].home / "shared_weights")
        newest = {place.slot: store.newest(place) for place in mirror.slots()}
        return {slot: manifest.version for slot, manifest in newest.items() if manifest is not None}

    def hand_over(self, slot: int) -> None:
        """Ask the slot's job to hand over, as it is asked near its walltime."""
        newest = attempt_numbers(self.slot(slot))[-1]
        claim = json.loads((self.slot(slot) / "attempts" / str(newest) / "claim").read_text())
        (self.run_dir / "jobs" / claim["token"] / "hand-over").touch()

    def status(self, who: str, *words: str) -> dict[str, Any]:
        done = self.accounts[who].orchestrator("status", "--json", *words)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def words(self) -> str:
        """What everything has said, for whoever reads why a wait was in vain."""
        return "\n".join(f"{line}\n{out.read_text(errors='replace')[-3000:]}" for line, out in self.said.items())

    def wait_for(self, condition: Any, what: str) -> None:
        wait_for(condition, what, WORK_S, self.words)

    def close(self) -> None:
        for child in self.typed.values():
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
        for child in self.typed.values():
            child.wait(PATIENCE_S)


@pytest.fixture
def world(private_slurm: PrivateSlurm, tmp_path: Path) -> Iterator[World]:
    need("accounts of a test's own", missing_account_parts())
    need("a real sshd", missing_sshd_parts())
    cluster = private_slurm(nodes=5, cpus=2, gpus=0)
    cluster.folder.chmod(0o755)
    with ExitStack() as stack:
        group, (ann, eve) = stack.enter_context(throw_away_accounts("ann", "eve", env=cluster.env()))
        stack.callback(cluster.clear)  # before the accounts go
        sshd = stack.enter_context(throw_away_sshd(account=ann))
        made = World(ann, eve, group, sshd, tmp_path)
        stack.callback(made.close)
        yield made


def test_four_jobs_two_laptops_and_a_friend_come_to_the_end_of_a_run(world: World) -> None:
    lines = LINE.findall(SECTION)
    gives = lines.index(("ann", "syncd contributors /group/mt10/shared_weights")) - 1
    for who, line in lines[:gives]:
        world.type(who, line)
        if line.startswith("orchestrator start --ddp-world-size 4"):
            world.wait_for(lambda: {place.slot for place in world.shared.slots()} == set(SLOTS), "four slots")
    friend = f"user-{world.accounts['eve'].name}"
    world.wait_for(lambda: world.contributors() == {*LAPTOPS, friend}, "rows of all three in the learners' journals")
    world.wait_for(lambda: world.readers() == {(a, b) for a in SLOTS for b in SLOTS if a != b}, "rows of each for each")

    for slot in SLOTS:
        world.hand_over(slot)
    for who in LAPTOPS:
        world.wait_for(
            lambda who=who: {k: v.attempt > 0 for k, v in world.mirrored(who).items()} == dict.fromkeys(SLOTS, True),
            f"policies of later jobs of each slot on the {who}",
        )
    for who, line in lines[gives:]:
        world.type(who, line)
    status = world.said["ann$ orchestrator status mt10"].read_text()
    assert all(word in status for word in ("slot 3", friend)), status
    told = world.said["ann$ syncd contributors /group/mt10/shared_weights"].read_text()
    assert all(who in told for who in (*LAPTOPS, friend)), told
    assert (world.laptops["laptop"].home / "curves.png").read_bytes().startswith(b"\x89PNG")
    for who in LAPTOPS:
        for line in ("syncd watch", "trainer actors --num-envs 2 --contribute"):
            assert world.typed[f"{who}$ {line}"].poll() is None, world.said[f"{who}$ {line}"].read_text()

    assert world.accounts["ann"].orchestrator("stop", "mt10").returncode == 0
    steps = [slot["step"] for slot in world.status("ann", "mt10")["slots"]]
    few = {**TRAINING, "total_steps": max(steps) + 200}
    config = json.loads((world.accounts["ann"].home / "cluster_config.json").read_text())
    world.write("ann", "cluster_config.json", {**config, "training": few})
    world.type("ann", "orchestrator start --ddp-world-size 4")
    assert [slot["state"] for slot in world.status("ann", "mt10")["slots"]] == ["finished"] * len(SLOTS)
    helping = ("--config", "actors.json")
    world.wait_for(lambda: world.status("eve", *helping)["slots"][0]["state"] == "finished", "the friend's jobs to end")
    parents = [json.loads((world.slot(slot) / "attempts/1/parent.json").read_text())["attempt"] for slot in SLOTS]
    assert parents == [0] * len(SLOTS)
