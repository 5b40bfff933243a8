"""Every command line of the cluster-and-laptop guide, in its order, with our names, on a real Slurm and a real sshd.

The guide's tunnel is not here: the viewer takes its place (docs/laptops.md). `git pull` and activating `.venv` are
about a checkout, and lines that only open a shell on the cluster are what `cluster` means here. `ssh-copy-id`, which
asks for a password, is typed in `test_setup.py`.
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
from daemons import PATIENCE_S, WORK_S, started_at, wait_for
from keepalive import LABEL, PLIST, Agent, install_launchctl
from slurm_cluster import SlurmCluster
from sshd import Sshd

from syncd import store
from syncd.laptop.status import Holder, holder
from syncd.outbox import Outbox

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

START = "orchestrator start --config cluster_config.json --partition gpu --ddp-world-size 4"
PULL_LOOP = 'syncd pull "" ~/shared_weights 5'
MAKES_PLIST = f"cat > ~/Library/LaunchAgents/{LABEL}.plist << 'EOF'\n{PLIST}EOF\n"
#: (who types it, the line, what it does: a method of `Guide`).
LINES: tuple[tuple[str, str, str], ...] = (
    # Quick start
    ("laptop", 'ssh-keygen -t ed25519 -f ~/.ssh/id_ed25519 -N ""', "makes_a_key"),
    ("cluster", START, "keeps_four_slots_going"),
    ("laptop", "syncd pull", "asks_for_a_remote"),
    ("laptop", 'SYNC_CLUSTER_USER="$CLUSTER_USER" SYNC_CLUSTER_HOST=cluster syncd pull', "pulls_without_settings"),
    ("laptop", "trainer actors --shared-dir ~/shared_weights --num-envs auto --autotune", "plays"),
    # SSH key
    ("laptop", "ssh cluster \"echo 'SSH key works!'\"", "works_without_a_password"),
    ("laptop", "syncd setup", "wants_to_hear_where_the_run_is"),
    ("friend", 'export SYNC_CLUSTER_USER="$CLUSTER_USER"; syncd pull', "pulls_as_somebody_else"),
    # On the cluster
    ("cluster", "orchestrator status --config cluster_config.json", "shows_four_slots"),
    ("cluster", "orchestrator stop --config cluster_config.json", "ends_the_jobs"),
    ("cluster", "squeue -u $USER", "is_not_ours"),
    ("cluster", "tail -f runs/slim_run/logs/slurm-*.out", "shows_the_output"),
    # The laptop contributes
    ("laptop", "trainer autotune --user-id $(hostname)", "keeps_a_profile"),
    ("laptop", PULL_LOOP, "pulls_for_ever"),
    ("laptop", "trainer actors --shared-dir ~/shared_weights --num-envs auto --contribute", "fills_the_outbox"),
    ("laptop", "trainer actors --num-envs 4 --device cpu", "plays"),
    # Weights
    ("laptop", "syncd pull", "pulls_once"),
    ("laptop", "syncd push", "sends_what_waits"),
    ("laptop", "syncd bidirectional", "pulls_once"),
    ("laptop", f"{PULL_LOOP} &", "pulls_in_the_background"),
    ("laptop", MAKES_PLIST, "is_not_ours"),
    ("laptop", f"launchctl load ~/Library/LaunchAgents/{LABEL}.plist", "runs_for_ever"),
    ("laptop", f"launchctl unload ~/Library/LaunchAgents/{LABEL}.plist", "ends_for_good"),
    # Troubleshooting
    ("laptop", "ls -la ~/.ssh/id_ed25519", "is_not_ours"),
    ("cluster", "cat runs/slim_run/logs/slurm-*.err", "is_not_ours"),
    ("cluster", "sinfo -p gpu", "is_not_ours"),
    ("laptop", "which rsync", "is_not_ours"),
    ("laptop", "rsync -avz cluster:$PROJECT/test.txt ./", "is_not_ours"),
    ("laptop", "trainer actors --num-envs 2", "plays"),
    ("laptop", "trainer autotune --user-id $(hostname)", "keeps_a_profile"),
)


class World:
    """A cluster with a project folder, and the homes of two people."""

    def __init__(self, sshd: Sshd, slurm: SlurmCluster, tmp_path: Path) -> None:
        self.sshd, self.slurm = sshd, slurm
        self.project, self.launchd = tmp_path / "project", tmp_path / "launchd"
        self.project.mkdir()
        (self.project / "test.txt").write_text("arrived")
        programs = Path(sys.executable).parent
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for program in ("ssh", "sftp"):  # ssh asks the password database for its user's home: all share one account
            (self.bin / program).write_text(f'#!/bin/sh\nexec {shutil.which(program)} -F "$HOME/.ssh/config" "$@"\n')
            (self.bin / program).chmod(0o755)
        install_launchctl(self.bin, self.launchd)
        self.people = {name: sshd.new_client(name, options=None) for name in ("cluster", "laptop", "friend")}
        # Where people put `syncd` on the PATH of their account over there.
        self.key_options = f'environment="PATH={programs}:/usr/bin:/bin"'
        sshd.add_key(self.people["friend"].public_key, self.key_options)
        home = self.people["laptop"].home
        (home / "Library" / "LaunchAgents").mkdir(parents=True)
        (home / "anchorleg").mkdir()
        (home / "anchorleg" / ".venv").symlink_to(sys.prefix)
        for name in ("id_ed25519", "id_ed25519.pub"):
            (home / ".ssh" / name).unlink()
        self.path = f"{self.bin}:{programs}"
        self.shared = store.Shared(self.project / "shared_weights")
        self.mirror = home / "shared_weights"
        self.typed: list[subprocess.Popen[bytes]] = []
        value = {
            "run_name": "slim_run",
            "run_dir": "runs/slim_run",
            "lead_seconds": 30,
            "poll_seconds": 1,
            "slurm": {"time_limit": "30", "mem": "2G", "cpus_per_task": 1, "gpus": 0},
            "training": {
                "preset": "tiny", "tasks": ["reach-v3"], "num_envs": 2, "num_workers": 0, "total_steps": 10_000_000,
                "updates_per_step": 0.1, "random_steps": 200, "publish_interval": 50, "evaluation_goals": 0,
                "batch_size": 64, "device": "cpu",
            },
            "collaboration": {"enabled": True, "shared_dir": str(self.shared.path)},
        }  # fmt: skip
        (self.project / "cluster_config.json").write_text(json.dumps(value))

    def env(self, machine: str) -> dict[str, str]:
        of_slurm = self.slurm.env()
        return self.people[machine].env() | {
            "SLURM_CONF": of_slurm["SLURM_CONF"],
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.path}:{of_slurm['PATH']}",
            "XDG_STATE_HOME": str(self.people[machine].home / "state"),
            "USER": self.sshd.user,
            "CLUSTER_USER": self.sshd.user,
            "PROJECT": str(self.project),
            "FAKE_LAUNCHD_PATH": str(self.bin),
        }

    def folder(self, machine: str) -> Path:
        return self.project if machine == "cluster" else self.people[machine].home

    def begin(self, machine: str, line: str, **variables: str) -> tuple[subprocess.Popen[bytes], Path]:
        """The line at work, and the file with what it says."""
        out = self.people[machine].home / f"said-{len(self.typed)}.txt"
        with open(out, "wb") as file:
            child = subprocess.Popen(
                ["bash", "-c", line], cwd=self.folder(machine), env=self.env(machine) | variables,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.typed.append(child)
        return child, out

    def type(self, machine: str, line: str, code: int = 0, **variables: str) -> str:
        """To its end; what was said."""
        child, out = self.begin(machine, line, **variables)
        child.wait(PATIENCE_S)
        assert child.returncode == code, f"{machine}$ {line}\n{out.read_text()}"
        return out.read_text()

    def leave(
        self, machine: str, line: str, seen: Callable[[str], object], timeout_s: float = PATIENCE_S
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Left running in a terminal of its own, once `seen(what it said)`. Ctrl-C will be for it, not for bash."""
        child, out = self.begin(machine, f"exec {line}")
        try:
            wait_for(lambda: child.poll() is not None or seen(out.read_text()), line, timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it said\n{out.read_text()}") from None
        assert child.poll() is None, f"{machine}$ {line}\nended with {child.returncode}\n{out.read_text()}"
        return child, out

    def end(self, left: tuple[subprocess.Popen[bytes], Path]) -> str:
        """Ctrl-C; what was said."""
        child, out = left
        child.send_signal(signal.SIGINT)
        wait_for(lambda: child.poll() is not None, f"the end of what said\n{out.read_text()}", PATIENCE_S)
        assert child.returncode in {0, 130, -signal.SIGINT}, out.read_text()
        return out.read_text()

    def keeper(self) -> Holder:
        """Who keeps the laptop's mirror, as soon as somebody does."""
        found: list[Holder | None] = []

        def is_there() -> bool:
            found.append(holder(self.mirror))  # of a new one the pid stands there a moment after its lock
            return found[-1] is not None and started_at(found[-1].pid) is not None

        wait_for(is_there, "somebody who keeps the mirror")
        assert found[-1] is not None
        return found[-1]

    def close(self) -> None:
        if (self.launchd / f"{LABEL}.json").exists():
            self.type("laptop", f"launchctl unload ~/Library/LaunchAgents/{LABEL}.plist")
        for child in self.typed:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(PATIENCE_S)
        command = ["orchestrator", "stop", "--now"]
        subprocess.run(
            command, cwd=self.project, env=self.env("cluster"), timeout=PATIENCE_S, check=False, capture_output=True
        )


def slots(folder: Path) -> list[int]:
    """The slots with a policy in a shared folder or mirror."""
    return sorted(place.slot for place in store.Shared(folder).slots() if store.newest(place))


@pytest.fixture
def world(new_sshd: Callable[..., Sshd], slurm: SlurmCluster, tmp_path: Path) -> Iterator[World]:
    world = World(new_sshd(PermitUserEnvironment="yes"), slurm, tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_every_line_of_the_guide_does_what_it_says(world: World) -> None:
    guide = Guide(world)
    for machine, line, does in LINES:
        getattr(guide, does)(machine, line)


class Guide:
    """What the lines are to do."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop: tuple[subprocess.Popen[bytes], Path] | None = None

    def makes_a_key(self, machine: str, line: str) -> None:
        self.world.type(machine, line)
        public = self.world.people[machine].home / ".ssh" / "id_ed25519.pub"
        self.world.sshd.add_key(public.read_text().strip(), self.world.key_options)  # as ssh-copy-id does

    def keeps_four_slots_going(self, machine: str, line: str) -> None:
        def all_train(_said: str) -> bool:
            return slots(self.world.shared.path) == [0, 1, 2, 3]

        _, out = self.world.leave(machine, line, all_train, WORK_S)
        assert [row.state for row in self.world.slurm.squeue()] == ["RUNNING"] * 4
        assert "--ddp-world-size 4: " in out.read_text()
        logs = self.world.project / "runs" / "slim_run" / "logs"
        assert [len(list(logs.glob(f"slurm-*.{end}"))) for end in ("out", "err")] == [4, 4]

    def asks_for_a_remote(self, machine: str, line: str) -> None:
        said = self.world.type(machine, line, 2)
        assert said.count("\n") == 1
        assert "[remote.none]" in said

    def pulls_without_settings(self, machine: str, line: str) -> None:
        assert "[remote.none]" in self.world.type(machine, line, 2)
        self.world.type(machine, line, SYNC_CLUSTER_PATH=str(self.world.shared.path))
        assert slots(self.world.mirror) == [0, 1, 2, 3]

    def plays(self, machine: str, line: str) -> None:
        before = Outbox(self.world.mirror).count()
        said = self.world.end(self.world.leave(machine, line, lambda said: re.search(r"[1-9][\d,]* steps, ", said)))
        assert "stopped: " in said
        assert "Traceback" not in said
        assert Outbox(self.world.mirror).count() == before, "without --contribute nothing is kept"

    def works_without_a_password(self, machine: str, line: str) -> None:
        assert self.world.type(machine, line) == "SSH key works!\n"

    def wants_to_hear_where_the_run_is(self, machine: str, line: str) -> None:
        assert "[remote.none]" in self.world.type(machine, line, 2)
        self.world.type(machine, f"{line} cluster:$PROJECT/runs/slim_run")
        stored = json.loads((self.world.people[machine].home / ".config/anchorleg/syncd.json").read_text())
        assert stored["remote"]["path"] == str(self.world.shared.path), "the run's config names its shared folder"

    def pulls_as_somebody_else(self, machine: str, line: str) -> None:
        self.world.type(machine, "syncd setup cluster:$PROJECT/runs/slim_run")
        assert "refused the key" in self.world.type(machine, line, 5, CLUSTER_USER="nobody")
        self.world.type(machine, line)
        assert slots(self.world.people[machine].home / "shared_weights") == [0, 1, 2, 3]

    def shows_four_slots(self, machine: str, line: str) -> None:
        said = self.world.type(machine, line)
        assert all(f"slot {k}" in said for k in range(4)), said

    def ends_the_jobs(self, machine: str, line: str) -> None:
        self.world.type(machine, line)
        self.world.slurm.wait_until_empty()

    def shows_the_output(self, machine: str, line: str) -> None:
        said = self.world.end(self.world.leave(machine, line, lambda said: said.count("==> runs/slim_run/logs/") == 4))
        assert "No such file" not in said

    def keeps_a_profile(self, machine: str, line: str) -> None:
        assert "recommended: " in self.world.type(machine, line)
        found = list((self.world.people[machine].home / ".cache" / "anchorleg").glob("autotune-*.json"))
        assert [path.name for path in found] == [f"autotune-{os.uname().nodename}.json"]

    def pulls_for_ever(self, machine: str, line: str) -> None:
        self.loop = self.world.leave(machine, line, lambda said: "connected to" in said)

    def fills_the_outbox(self, machine: str, line: str) -> None:
        self.world.end(self.world.leave(machine, line, lambda _: Outbox(self.world.mirror).count() > 0))
        assert self.loop is not None
        assert self.loop[0].poll() is None, "it pulls all the while"
        self.world.end(self.loop)

    def pulls_once(self, machine: str, line: str) -> None:
        assert "slot" in self.world.type(machine, line)
        assert slots(self.world.mirror) == [0, 1, 2, 3]

    def sends_what_waits(self, machine: str, line: str) -> None:
        waiting = Outbox(self.world.mirror).count()
        assert waiting > 0
        self.world.type(machine, line)
        assert Outbox(self.world.mirror).count() == 0
        [inbox] = store.Inbox.all_of(self.world.shared)
        assert len([path for path in (inbox.path / "new").rglob("*") if path.is_file()]) == waiting

    def pulls_in_the_background(self, machine: str, line: str) -> None:
        self.world.type(machine, line)  # bash comes back at once
        pid = self.world.keeper().pid
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: started_at(pid) is None, "its end")

    def runs_for_ever(self, machine: str, line: str) -> None:
        self.world.type(machine, line)
        first = self.world.keeper().pid
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: self.world.keeper().pid != first, "launchd's next")

    def ends_for_good(self, machine: str, line: str) -> None:
        self.world.type(machine, line)
        assert holder(self.world.mirror) is None
        plist = self.world.people[machine].home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        assert len(Agent(self.world.launchd, plist).codes()) == 2

    def is_not_ours(self, machine: str, line: str) -> None:
        said = self.world.type(machine, line)
        assert "No such file" not in said
        if line.startswith("rsync"):
            assert (self.world.people[machine].home / "test.txt").read_text() == "arrived"
