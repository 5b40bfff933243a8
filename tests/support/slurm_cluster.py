"""A real Slurm of several fake nodes on this machine, isolated, gone without a trace when its owner ends.

    with throw_away() as cluster:
        subprocess.run(["sbatch", "job.sh"], env=cluster.env())

From a shell: `slurm_cluster.py start DIR [--nodes 4]`, `eval "$(slurm_cluster.py env DIR)"`, `… stop DIR`.

Own ports, munge key and folder; everything listens on 127.0.0.1; root is not needed. The daemons run in the
foreground in sessions of their own and are stopped by pid and start time. What they or their jobs leave behind is
found by its SLURM_CONF. A guard process stops the cluster also when its owner is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import slurm_accounting
from daemons import PATIENCE_S, Daemons, sweep, wait_for
from ports import free_ports, listens
from slurm_accounting import ACCOUNT, AccountingDaemons
from slurm_conf import CGROUP_CONF, Layout, Site, gres_conf, slurm_conf

#: Debian keeps the daemons where an ordinary user's PATH does not look.
SYSTEM_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")
#: unix(7): a socket's path has 108 bytes; the longest of ours ends in `/munge/socket` or `/spool/n1/n1_4294967295.0`.
LONGEST_FOLDER = 75


@dataclass(frozen=True)
class JobRow:
    """One line of squeue: `state` as Slurm spells it (`RUNNING`), `reason` why it waits, `node` where it runs."""

    job_id: int
    state: str
    reason: str
    node: str
    name: str
    work_dir: str


def missing_commands(*, accounting: bool = False) -> list[str]:
    """What of Slurm and munge (and slurmdbd with its database) this machine lacks."""
    needed = (*NEEDED, *slurm_accounting.NEEDED) if accounting else NEEDED
    return [name for name in needed if shutil.which(name, path=_path()) is None]


class SlurmCluster:
    """A cluster in `folder`. Partitions: `gpu` (default, no limit) and `short` (1 minute). `beside`: another one, with
    accounting, to which this one is the second of its site.
    """

    def __init__(self, folder: Path, beside: SlurmCluster | None = None) -> None:
        self._beside = beside
        self.folder = folder.absolute()
        if len(str(self.folder)) > LONGEST_FOLDER:
            raise ValueError(f"{self.folder} is too long for Unix sockets: use a folder of at most {LONGEST_FOLDER}")
        self.daemons = Daemons(self.folder, self.env())
        self.accounting = AccountingDaemons(self.folder, self.daemons, _path())
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> Path:
        """The slurm.conf: its path is also what marks every process of this cluster."""
        return self.folder / "slurm.conf"

    # --- life -----------------------------------------------------------------------------------------------------

    def start(
        self, layout: Layout = Layout(), overrides: Mapping[str, str] | None = None, *, guarded: bool = False
    ) -> None:
        """Start everything and wait until all nodes are idle. What was in the folder before is wiped.

        `guarded`: the cluster ends with this process, however that ends.
        Errors: RuntimeError with the daemon's last lines; FileExistsError where the folder holds something else.
        """
        if self.folder.exists() and any(self.folder.iterdir()):
            if not self.conf.exists():
                raise FileExistsError(f"{self.folder} is not empty and holds no cluster")
            self.stop()
            shutil.rmtree(self.folder)
        for name in ("munge", "state", "run", "log", "dev", *(f"spool/{node}" for node in layout.node_names())):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        try:
            site = self._write_configuration(layout, overrides or {})
            if guarded:
                self._start_guard()
            if self._beside is None:
                self._start_munged()
            if layout.accounting:
                self._start_accounting(site)
            self.start_controller()  # first: a slurmd that meets no slurmctld backs off for 1, 2, 4 … 60 s
            for node in layout.node_names():
                self.start_node(node)
            wait_for(lambda: self._idle_nodes() == layout.nodes, "all nodes to be idle")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGKILL the daemons and every process of their jobs; the folder stays. Twice, or without it, is no error."""
        self.daemons.kill_all()
        sweep("SLURM_CONF", str(self.conf), self.folder)

    def remove(self) -> None:
        """Stop, delete the folder and dismiss the guard."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    # --- commands -------------------------------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands talk to this cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "SLURM_CONF": str(self.conf), "PATH": _path()}

    def run(self, *command: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a command in this cluster's environment; the result says how it ended."""
        return subprocess.run(
            command,
            env=self.env(),
            text=True,
            errors="surrogateescape",  # a test's folder may have a name of any bytes
            capture_output=True,
            timeout=timeout_s,
            check=False,
            cwd=self.folder,
        )

    def ask(self, *command: str) -> str:
        """The standard output of a command that must succeed. Errors: RuntimeError with its standard error."""
        done = self.run(*command)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, script: str, *options: str) -> int:
        """Submit the text of a shell script; returns the job's id. It writes `<folder>/job-<id>.out`."""
        where = ("--parsable", f"--chdir={self.folder}", f"--output={self.folder}/job-%j.out", *options)
        path = self.folder / f"script-{random.randrange(10**9)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        return int(self.ask("sbatch", *where, str(path)))

    def output(self, job_id: int) -> str:
        """What a job of `submit` has written so far."""
        path = self.folder / f"job-{job_id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- looking --------------------------------------------------------------------------------------------------

    def squeue(self) -> list[JobRow]:
        """The jobs that wait, run or are ending."""
        return self._rows("squeue", "-h", "-r")

    def jobs(self) -> list[JobRow]:
        """All jobs that the controller remembers, the ended ones too (for MinJobAge after their end)."""
        return self._rows("squeue", "-h", "-r", "-t", "all")

    def job(self, job_id: int) -> JobRow | None:
        """One of `jobs()`."""
        return next((row for row in self.jobs() if row.job_id == job_id), None)

    def ended(self) -> list[dict[str, str]]:
        """Every end so far, oldest first, also of purged jobs: JobId, JobState, StartTime, EndTime, ExitCode, …"""
        try:
            lines = (self.folder / "log" / "jobcomp.log").read_text(errors="surrogateescape").splitlines()
        except FileNotFoundError:
            return []
        return [dict(word.partition("=")[::2] for word in line.split()) for line in lines]

    def wait_for(self, condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for anything. Errors: TimeoutError that names it and shows the queue."""

        def queue() -> str:
            told = self.run("squeue", "-t", "all")
            return f"{told.stdout}{told.stderr}"

        wait_for(condition, what, timeout_s, queue)

    def wait_for_state(self, job_id: int, *states: str, timeout_s: float = PATIENCE_S) -> JobRow:
        """Wait until a job is in one of `states`."""
        rows: list[JobRow] = []

        def there() -> bool:
            rows[:] = [row for row in self.jobs() if row.job_id == job_id and row.state in states]
            return bool(rows)

        self.wait_for(there, f"job {job_id} to be {' or '.join(states)}", timeout_s)
        return rows[0]

    def wait_until_empty(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until no job waits, runs or is ending."""
        self.wait_for(lambda: not self.squeue(), "an empty queue", timeout_s)

    def clear(self) -> None:
        """Cancel whatever is in the queue, hard, and wait until the nodes are free."""
        ids = [str(row.job_id) for row in self.squeue()]
        if ids:
            self.run("scancel", "--full", "--signal=KILL", *ids)
            self.run("scancel", *ids)
            self.wait_until_empty()

    # --- faults ---------------------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self.daemons.start("slurmctld", [_where("slurmctld"), "-D", "-f", str(self.conf)])
        port = self.value_of("SlurmctldPort")

        def answers() -> bool:
            if self.daemons.pid("slurmctld") is None:
                raise RuntimeError(f"slurmctld ended:\n{self.daemons.output('slurmctld')}")
            # A command that meets a closed port blocks for seconds; a connect does not.
            return listens(port) and self.run("scontrol", "ping").returncode == 0

        wait_for(answers, "slurmctld to answer")

    def stop_controller(self) -> None:
        """End slurmctld cleanly: it saves its state."""
        self.daemons.end("slurmctld", signal.SIGTERM)

    def kill_controller(self) -> None:
        """SIGKILL slurmctld: what it had not saved is lost."""
        self.daemons.end("slurmctld")

    def suspend_controller(self) -> None:
        """SIGSTOP: commands connect and time out; what they asked for may still be done on `resume_controller`."""
        self.daemons.send("slurmctld", signal.SIGSTOP)

    def resume_controller(self) -> None:
        """SIGCONT after `suspend_controller`."""
        self.daemons.send("slurmctld", signal.SIGCONT)

    def value_of(self, name: str) -> int:
        """A number of its slurm.conf."""
        lines = self.conf.read_text().splitlines()
        return next(int(line.partition("=")[2]) for line in lines if line.startswith(f"{name}="))

    def start_node(self, node: str) -> None:
        """Start the slurmd of `n1`, `n2`, …; does not wait for its registration."""
        self.daemons.start(f"slurmd.{node}", [_where("slurmd"), "-D", "-N", node, "-f", str(self.conf)])

    def kill_node(self, node: str) -> None:
        """SIGKILL one slurmd. Its jobs' processes live on: to Slurm the node is down after SlurmdTimeout."""
        self.daemons.end(f"slurmd.{node}")

    # --- inside ---------------------------------------------------------------------------------------------------

    def _rows(self, *command: str) -> list[JobRow]:
        rows: list[JobRow] = []
        try:
            told = self.ask(*command, "-o", "%A|%T|%r|%N|%j|%Z")
        except RuntimeError as error:
            if "Socket timed out" not in str(error):
                raise
            # A busy slurmctld, where a test has shortened Slurm's patience. One that hangs is not asked for ever.
            told = self.ask(*command, "-o", "%A|%T|%r|%N|%j|%Z")
        for line in told.splitlines():
            fields = line.split("|", 5)
            if len(fields) == 6:  # a work folder's name may go on in the next line
                rows.append(JobRow(int(fields[0]), *fields[1:]))
        return rows

    def _idle_nodes(self) -> int:
        return self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").stdout.split().count("idle")

    def _write_configuration(self, layout: Layout, overrides: Mapping[str, str]) -> Site:
        host = socket.gethostname().split(".")[0]
        user = pwd.getpwuid(os.geteuid()).pw_name
        ports, beside = free_ports(2 + layout.nodes), self._beside
        if beside is not None:
            ports[1] = beside.value_of("AccountingStoragePort")
        site = Site(self.folder, user, host, ports, os.geteuid() == 0, beside.folder if beside else None)
        for number in range(layout.gpus):
            (self.folder / "dev" / f"nvidia{number}").symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(gres_conf(layout, site))
        (self.folder / "cgroup.conf").write_text(CGROUP_CONF)
        self.conf.write_text(slurm_conf(layout, site, overrides))
        return site

    def _start_accounting(self, site: Site) -> None:
        if self._beside is None:
            self.accounting.start(port=site.ports[1], host=site.host, munge_socket=site.munge_socket)
            wait_for(lambda: listens(site.ports[1]), "slurmdbd to listen")
        where = f"Cluster={site.name}"
        self.ask("sacctmgr", "-i", "add", "cluster", site.name)
        self.ask("sacctmgr", "-i", "add", "account", ACCOUNT, where)
        self.ask("sacctmgr", "-i", "add", "user", site.user, f"Account={ACCOUNT}", where)

    def _start_munged(self) -> None:
        folder = self.folder / "munge"
        folder.chmod(0o755)
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        # --force: parents of the socket (a temp folder) may be owned by others.
        options = {
            "key-file": key,
            "socket": folder / "socket",
            "pid-file": folder / "pid",
            "seed-file": folder / "seed",
            "log-file": self.folder / "log" / "munged.log",
            "num-threads": 2,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self.daemons.start("munged", [_where("munged"), "--foreground", "--force", *words])
        wait_for((folder / "socket").exists, "munged's socket")

    def _start_guard(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, __file__, "guard", str(self.folder)],
            stdin=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "SLURM_CONF"},
            start_new_session=True,
        )


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}".lstrip(":")


def _where(name: str) -> str:
    found = shutil.which(name, path=_path())
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run tests/real/install.sh")
    return found


#: What the fixture `private_slurm` is: starts clusters that the test may harm (see conftest.py).
PrivateSlurm = Callable[..., SlurmCluster]


@contextlib.contextmanager
def throw_away(
    layout: Layout = Layout(), overrides: Mapping[str, str] | None = None, beside: SlurmCluster | None = None
) -> Iterator[SlurmCluster]:
    """A guarded cluster in a temporary folder, removed at the end."""
    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="anchorleg-slurm-")), beside)
    try:
        cluster.start(layout, overrides, guarded=True)
        yield cluster
    finally:
        cluster.remove()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="a throw-away Slurm on this machine")
    parser.add_argument("verb", choices=("start", "stop", "env", "guard"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=Layout.nodes)
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd: sacct and limits work")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf")
    asked = parser.parse_args()
    cluster = SlurmCluster(asked.folder)
    if asked.verb == "start":
        if missing := missing_commands(accounting=asked.accounting):
            sys.exit(f"not installed: {', '.join(missing)}; run tests/real/install.sh")
        overrides = dict(line.partition("=")[::2] for line in asked.set)
        cluster.start(Layout(nodes=asked.nodes, accounting=asked.accounting), overrides)
    elif asked.verb == "stop":
        cluster.stop()
    elif asked.verb == "guard":
        sys.stdin.buffer.read()  # returns when the owner has closed the pipe, by whatever death
        cluster.remove()
    if asked.verb in ("start", "env"):
        print(f"export SLURM_CONF={shlex.quote(str(cluster.conf))}")


if __name__ == "__main__":
    main()
