"""Each line of tests/support/typed_pages.txt, in its order: in two homes, on a real Slurm, through a real sshd.

`test_page_commands.py` finds every command of the pages in that file, or where else it is typed.
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
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from slurm_cluster import SlurmCluster
from sshd import Sshd

from syncd import store
from syncd.shared.counts import counts
from trainer.history.read import best_left, read_evaluations

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "tests/support/typed_pages.txt").read_text(encoding="utf-8")
SESSIONS = dict(re.findall(r"^## (\w+)\n(.+?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
LINE = re.compile(r"^(\S+)\$ (.+?)(?:  +(\^C|&|=) (.+))?$")
SLURM = {"gpus": 0, "mem": "2G", "cpus_per_task": 1, "time_limit": "0:30:00"}
TINY = {
    "preset": "tiny", "tasks": ["reach-v3"], "num_envs": 2, "num_workers": 0, "total_steps": 10_000_000,
    "updates_per_step": 0.1, "random_steps": 200, "publish_interval": 50, "evaluation_interval": 2000,
    "evaluation_goals": 1, "checkpoint_interval": 1000, "metrics_interval": 200, "batch_size": 64, "device": "cpu",
}  # fmt: skip
COUNTER = """import json, os, time
attempt, step = os.environ["ANCHORLEG_ATTEMPT_DIR"], 0
while not os.path.exists(os.environ["ANCHORLEG_HANDOVER_FILE"]):
    step += 1
    with open(f"{attempt}/progress.tmp", "w") as file:
        json.dump({"step": step, "total": 10**9, "checkpoint_step": 0, "score": -step}, file)
    os.replace(f"{attempt}/progress.tmp", f"{attempt}/progress.json")
    time.sleep(0.1)
raise SystemExit(75)
"""


def on_page(page: str, words: str, language: str = "json") -> str:
    """The block of a page that contains these words."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    [block] = [one for one in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if words in one]
    return str(block)


def config_of(page: str, words: str, **fields: Any) -> str:
    return json.dumps(json.loads(on_page(page, words)) | fields)


class World:
    """A cluster with a folder for each run, and a laptop with a home of its own."""

    def __init__(self, sshd: Sshd, slurm: SlurmCluster, tmp_path: Path) -> None:
        self.slurm, self.user = slurm, sshd.user
        programs = Path(sys.executable).parent
        self.people = {name: sshd.new_client(name, options=None) for name in ("cluster", "laptop")}
        home = self.people["cluster"].home
        for person in self.people.values():
            sshd.add_key(person.public_key, f'environment="PATH={programs}:/usr/bin:/bin"')
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for program in ("ssh", "sftp"):  # ssh asks the password database for its user's home: both share one account
            (self.bin / program).write_text(f'#!/bin/sh\nexec {shutil.which(program)} -F "$HOME/.ssh/config" "$@"\n')
            (self.bin / program).chmod(0o755)
        self.path = f"{self.bin}:{programs}"
        self.project, self.mirror = home / "project", self.people["laptop"].home / "shared_weights"
        self.typed: list[subprocess.Popen[bytes]] = []
        mt10 = {"run_name": "mt10", "poll_seconds": 1, "lead_seconds": 30, "slurm": SLURM, "training": TINY}
        steps = {"total_steps": 2000, "evaluation_interval": 1000, "evaluation_goals": 1}
        training = {"env": {"name": "arm", "observation": "both"}, "algorithm": "sac"}
        files = {
            "project/cluster_config.json": json.dumps(mt10 | {"collaboration": {"enabled": True}}),
            "project/corridor.py": on_page("environments.md", "class Corridor", "python"),
            "project/arm.json": on_page("environments.md", '"run_name": "arm"'),
            "project/pendulum.json": on_page("environments.md", '"run_name": "pendulum"'),
            "project/training.json": json.dumps({**training, "network": {"encoder": {"arch": "nature"}}}),
            "project/compare.json": config_of(
                "algorithms.md", '"run_name": "compare"', training=steps,
                experiments={"preset": ["arm-ppo", "arm-a2c"], "seed": [0, 1]},
            ),
            "sweep/cluster_config.json": config_of(
                "experiments.md", '"run_name": "sweep"', slurm=SLURM | {"max_jobs": 4}, poll_seconds=1
            ),
            "sweep/more.jsonl": "".join(json.dumps({"rate": 0.1, "seed": seed}) + "\n" for seed in range(5)),
        }  # fmt: skip
        for name in ("sweep", "mine", "local"):
            files[f"{name}/train.py"] = COUNTER
        for name in ("mine", "local"):
            command = {"command": ["python3", "./train.py"], "params": {"total": 9, "NAME": "a"}}
            run = {"run_name": "demo" if name == "mine" else name, "slurm": SLURM, "poll_seconds": 1}
            files[f"{name}/cluster_config.json"] = json.dumps(run | command)
        for name, text in files.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")

    @property
    def shared(self) -> store.Shared:
        return store.Shared(self.project / "runs/mt10/shared")

    def real(self, who: str, line: str) -> str:
        """The line with names that are here."""
        there, compared = f"cluster:{self.project}/runs/mt10", "compare" in line
        names = {
            "cluster:runs/mt10": there, "anna@hpc:runs/mt10": there, "HOST:RUN": there, "--fork NAME": "--fork again",
            "NAME=…": "NAME=b", "NAME": "demo" if who == "mine" else "mt10", "SLOT": "0", "STEP": "1000000",
            "RUN": f"runs/{'compare' if compared else 'mt10'}", "FILE": "cluster_config.json", "FOLDER": "lerobot",
            "DIR": str(self.shared.path), "ben": self.contributor,
        }  # fmt: skip
        pattern = "|".join(rf"(?<![\w.]){re.escape(name)}(?![\w=.])" for name in names)
        return re.sub(pattern, lambda found: names[found[0]], line)

    @property
    def contributor(self) -> str:
        found = [inbox.who for inbox in store.Inbox.all_of(self.shared)] if self.shared.path.exists() else []
        return found[0] if found else "ben"

    def env(self, machine: str) -> dict[str, str]:
        of_slurm = self.slurm.env()
        return self.people[machine].env() | {
            "SLURM_CONF": of_slurm["SLURM_CONF"], "OMP_NUM_THREADS": "1", "PATH": f"{self.path}:{of_slurm['PATH']}",
            "XDG_STATE_HOME": str(self.people[machine].home / "state"), "USER": self.user, "PROJECT": str(self.project),
        }  # fmt: skip

    def type(self, who: str, line: str, mark: str, awaited: str) -> None:
        """Errors: AssertionError, with what was said."""
        machine = "laptop" if who == "laptop" else "cluster"
        home, told = self.people[machine].home, self.real(who, line)
        folder = home if machine == "laptop" else home / who
        folder.mkdir(exist_ok=True)
        out = home / f"said-{len(self.typed)}.txt"
        shell = f"exec {told}" if mark in {"^C", "&"} and ";" not in told else told  # Ctrl-C is for it, not for bash
        with open(out, "wb") as file:
            child = subprocess.Popen(
                ["bash", "-c", shell], cwd=folder, env=self.env(machine),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.typed.append(child)

        def said() -> str:
            return f"{who}$ {told}\n{out.read_text()}"

        if mark in {"^C", "&"}:
            wait_for(lambda: child.poll() is not None or re.search(awaited, out.read_text()), awaited, said=said)
            assert child.poll() is None, said()
        if mark == "&":
            return
        if mark == "^C":
            child.send_signal(signal.SIGINT)
        wait_for(lambda: child.poll() is not None, "its end", said=said)
        codes = {"^C": {0, 75, 130}, "=": {int(awaited)} if mark == "=" else set()}.get(mark, {0})
        assert child.returncode in codes, said()
        assert "Traceback" not in out.read_text(), said()

    def policies(self) -> bool:
        return len([place for place in self.shared.slots() if store.newest(place)]) == 4

    def accepted(self) -> bool:
        return any(counts(inbox.path).accepted for inbox in store.Inbox.all_of(self.shared))

    def evaluated(self) -> bool:
        slots = [self.project / "runs/mt10/slots" / str(k) for k in range(4)]
        return all(best_left(slot, read_evaluations(slot)) is not None for slot in slots)

    def close(self) -> None:
        for child in self.typed:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(PATIENCE_S)
        for config in self.project.parent.glob("*/cluster_config.json"):
            subprocess.run(
                ["orchestrator", "stop", "--now"], cwd=config.parent, env=self.env("cluster"), timeout=PATIENCE_S,
                check=False, capture_output=True,
            )  # fmt: skip


@pytest.fixture
def world(new_sshd: Callable[..., Sshd], slurm: SlurmCluster, tmp_path: Path) -> Iterator[World]:
    world = World(new_sshd(PermitUserEnvironment="yes"), slurm, tmp_path)
    try:
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("session", SESSIONS)
def test_every_line_does_what_it_says(world: World, session: str) -> None:
    for line in SESSIONS[session].split("\n"):
        if line.startswith("wait "):
            wait_for(getattr(world, line.removeprefix("wait ")), line)
        elif line:
            match = LINE.match(line)
            assert match, line
            who, words, mark, awaited = match.groups()
            world.type(who, words, mark or "", awaited or "")
