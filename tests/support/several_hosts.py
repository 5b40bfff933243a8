"""A guest kernel (user-mode Linux) with several hosts: a login node and two compute nodes that share a folder by NFS.

    with several_hosts() as guest:
        guest.ask("login", "sbatch", "job.sh", folder="/home/home")

Each host has a network, a name, mounts and an NFS client of its own (guest_agent.py makes them); Slurm and Python are
those of debian_root.py, and the checkout is at /checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from daemons import PATIENCE_S, wait_for
from debian_root import ROOT, SITE, debian_root, entering
from guest_agent import MARK
from relay import PROGRAMS, Relay

#: What all hosts share, by NFS.
HOME = "/home/home"
ENV = {"PYTHONPATH": f"/checkout:{SITE}", "PYTHONDONTWRITEBYTECODE": "1"}
#: The agent's own answer comes later than its command's end.
ANSWER_S = PATIENCE_S + 60.0


class Guest:
    """`out`: a folder of this machine that every host has at /mnt."""

    def __init__(self, out: Path, options: str) -> None:
        self.out = out
        self._said: deque[str] = deque(maxlen=200)
        self._answers: deque[str] = deque()
        boot = f"mount -t proc proc /proc; exec python3 /checkout/tests/support/guest_agent.py {options}"
        kernel = ["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "mem=1500M", "quiet"]
        console = ["con0=fd:0,fd:1", "con=null", "ssl=null", "init=/bin/sh", "--", "-c", f'"{boot}"']
        words = entering(
            debian_root(),
            {ROOT: "/checkout", out: "/mnt"},
            ["TMPDIR=/dev/shm", "/usr/bin/linux.uml", *kernel, *console],
        )
        self._kernel = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until_up(self) -> None:
        """Wait until Slurm's nodes are idle. Errors: RuntimeError where the guest died."""
        self._answer()
        self.wait_for(lambda: self.ask("login", "sinfo", "-hNo", "%t").split() == ["idle"] * 2, "two idle nodes")

    def run(
        self, host: str, *words: str, folder: str = "/", env: Mapping[str, str] = ENV, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host (`server`: outside of all), one at a time. 124: it took longer."""
        asked = {"host": host, "words": words, "folder": folder, "env": dict(env), "timeout_s": timeout_s}
        assert self._kernel.stdin is not None
        self._kernel.stdin.write(f"{json.dumps(asked)}\n".encode())
        self._kernel.stdin.flush()
        answer = json.loads(self._answer())
        return subprocess.CompletedProcess(words, answer["code"], answer["out"], answer["err"])

    def ask(self, host: str, *words: str, folder: str = "/") -> str:
        """As `run`, of a command that must succeed. Errors: AssertionError with what it said."""
        done = self.run(host, *words, folder=folder)
        assert done.returncode == 0, f"{host}: {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def wait_for(self, condition: object, what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for anything. Errors: TimeoutError with the console's last lines."""
        wait_for(condition, what, timeout_s, lambda: "\n".join(self._said))  # type: ignore[arg-type]

    def cut(self, host: str, *, cut: bool = True) -> None:
        """Pull a host's cable, or put it in again."""
        self.ask("server", "ip", "link", "set", f"v{host}", "down" if cut else "up")

    def close(self) -> None:
        """Switch it off."""
        assert self._kernel.stdin is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._kernel.stdin.close()  # the agent's word to end
            self._kernel.wait(PATIENCE_S / 20)
        self._kernel.kill()
        self._kernel.wait()

    def _answer(self) -> str:
        self.wait_for(lambda: self._answers or self._kernel.poll() is not None, "the guest's answer", ANSWER_S)
        if not self._answers:
            raise RuntimeError("the guest died:\n" + "\n".join(self._said))
        return self._answers.popleft()

    def _listen(self) -> None:
        assert self._kernel.stdout is not None
        for line in self._kernel.stdout:
            text = line.decode(errors="replace").rstrip()
            (self._answers if text.startswith(MARK) else self._said).append(text.removeprefix(MARK))


@contextlib.contextmanager
def several_hosts(out: Path, options: str = "vers=4.2") -> Iterator[Guest]:
    """A guest, up. `options`: of its NFS mounts (nfs(5))."""
    guest = Guest(out, options)
    try:
        guest.wait_until_up()
        yield guest
    finally:
        guest.close()


class GuestRun:
    """A run of the counting program on a guest's hosts, in a folder that they share. Each writes its journal to a disk
    of its own: two clients that append to one file of NFS overwrite each other's lines.
    """

    def __init__(self, guest: Guest, name: str, total: int, *, pace_s: float = 0.03, **config: object) -> None:
        self.guest, self.name = guest, name
        self.folder = f"{HOME}/{name}"
        made = guest.out / name
        (made / "data").mkdir(parents=True)
        shutil.copy(PROGRAMS / "count.py", made)
        (made / "data" / "pace.txt").write_text(f"{pace_s}\n")
        (made / "journal.txt").symlink_to(f"/opt/{name}.txt")
        slurm = {"time_limit": "30", "mem": "100M", "cpus_per_task": 1, "gpus": 0}
        value = {
            "run_name": "toy", "executor": "slurm", "poll_seconds": 2, "lead_seconds": 2, "slurm": slurm,
            "relay": {"retry_delays_seconds": [0], "failure_budget": 100}, "training": {},
            "command": ["python3", "./count.py", str(total)],
        }  # fmt: skip
        (made / "cluster_config.json").write_text(json.dumps(value | config))
        guest.ask("login", "cp", "-a", f"/mnt/{name}", self.folder)

    def orchestrator(self, *words: str) -> str:
        """`orchestrator WORDS` on the login node."""
        return self.guest.ask("login", "python3", "-m", "orchestrator", *words, folder=self.folder)

    def hold_at(self, step: int) -> None:
        """From now on no slot counts beyond `step`; its job lives on."""
        self.guest.ask("login", "sh", "-c", f"echo {step} >data/new && mv data/new data/held", folder=self.folder)

    def release(self) -> None:
        """All slots count to their end."""
        self.guest.ask("login", "rm", "data/held", folder=self.folder)

    def slots(self) -> list[dict[str, object]]:
        """Of `status --json`."""
        return list(json.loads(self.orchestrator("status", "--json"))["slots"])

    def wait_for(self, condition: object, what: str) -> None:
        """Wait for something that `slots()` says."""
        self.guest.wait_for(lambda: condition(self.slots()), what)  # type: ignore[operator]

    def kept(self) -> Relay:
        """What is left of it when it has ended, for the proofs: its folder, and the hosts' journals, by attempt."""
        copy = self.guest.out / f"{self.name}.kept"
        self.guest.ask("login", "cp", "-a", self.folder, f"/mnt/{self.name}.kept")
        self.guest.ask("server", "sh", "-c", f"cat /run/local/*/{self.name}.txt >/mnt/{self.name}.journal")
        (copy / "journal.txt").unlink()
        lines = (self.guest.out / f"{self.name}.journal").read_text().splitlines()
        lines.sort(key=lambda line: int(line.split()[1]))  # an attempt runs on one host
        (copy / "journal.txt").write_text("\n".join(lines) + "\n")
        (copy / "runs" / "toy").rename(copy / "runs" / copy.name)
        return Relay(copy, dict(os.environ))
