"""A run of the counting program under the real commands, and what its files prove afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S, sweep, wait_for

from orchestrator.decisions.models import Submit, make_token
from orchestrator.executors.base import JobRequest, Submitted
from orchestrator.run.rundir import RunDir, load_run, make_executor
from orchestrator.run.submission import make_job_folder

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests" / "integration" / "programs"
#: On the PYTHONPATH of programs that import this module.
SUPPORT = REPOSITORY / "tests" / "support"
#: A command that takes longer hangs. Some go on to a run's end.
COMMAND_TIMEOUT_S = 2 * PATIENCE_S
#: Where jobs are handed over by the clock, one on a busy machine may not get as far as a step: that is no reason to
#: wait, or to give up.
PATIENT = {"retry_delays_seconds": [0], "failure_budget": 100}
#: The usual budget of failures, and no delay between them.
AT_ONCE = {"retry_delays_seconds": [0]}
#: In this order an attempt may be seen, and never backwards. `waiting` and `stopped`: it is over.
ORDER = (
    "queued", "submitted", "pending", "starting", "running", "handing over", "waiting", "stopped", "finished",
)  # fmt: skip


@dataclass
class Relay:
    """`folder`: of the config and the program. `env`: of every command; its TMPDIR marks every process of the run."""

    folder: Path
    env: dict[str, str]
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        total: int = 60,
        pace_s: float = 0.03,
        held_at: int | None = None,
        own_code: bool = False,
        env: Mapping[str, str] | None = None,
        **config: Any,
    ) -> Relay:
        """A fresh folder "somewhere else" with the program, its data and a config; `config` replaces fields.

        `held_at`: as after `hold_at`, from the beginning. `own_code`: run a copy of the packages, to edit.
        """
        (folder / "data").mkdir(parents=True)
        shutil.copy(PROGRAMS / "count.py", folder)
        (folder / "data" / "pace.txt").write_text(f"{pace_s}\n")
        code = folder / "code" if own_code else REPOSITORY
        for name in ("anchorleg", "orchestrator", "trainer", "syncd", "templates") if own_code else ():
            shutil.copytree(REPOSITORY / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
        scratch = tempfile.mkdtemp(prefix="al-")
        relay = cls(
            folder,
            {
                **(env or os.environ),
                "PYTHONPATH": str(code),
                "XDG_STATE_HOME": str(folder / "state"),
                "TMPDIR": scratch,
            },
        )
        value = {
            "run_name": folder.name,
            "executor": "local",
            "lead_seconds": 2,
            "slurm": {"time_limit": "1:00:00"},
            "relay": PATIENT,
            "training": {},
            "command": ["python3", "./count.py", str(total)],
        }
        relay.config.write_text(json.dumps(value | config))
        if held_at is not None:
            relay.hold_at(held_at)
        return relay

    @property
    def config(self) -> Path:
        return self.folder / "cluster_config.json"

    @property
    def run_dir(self) -> Path:
        return self.folder / "runs" / self.folder.name

    # --- commands -------------------------------------------------------------------------------------------------

    def run(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S, cwd: Path | None = None) -> Done:
        """`orchestrator WORDS`, to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=cwd or self.folder, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def spawn(self, *words: str, driver: Sequence[str] = ("-m", "orchestrator")) -> subprocess.Popen[str]:
        """`orchestrator WORDS` in the background, its output (both kinds) in `<folder>/output-<n>.txt`."""
        with open(self.output_file(len(self.children)), "w") as out:
            child = subprocess.Popen(
                [sys.executable, *driver, *words],
                cwd=self.folder, env=self.env, stdout=out, stderr=out, text=True, start_new_session=True,
            )  # fmt: skip
        self.children.append(child)
        return child

    def killed(self, where: str, *words: str, call: int = 1) -> None:
        """`orchestrator WORDS` that SIGKILLs itself at the `call`-th time that it comes to `where` (see killed.py)."""
        child = self.spawn(*words, driver=(str(PROGRAMS / "killed.py"), where, str(call)))
        child.wait(COMMAND_TIMEOUT_S)
        assert child.returncode == -signal.SIGKILL, self.output()

    def hurried(self, *words: str) -> Done:
        """`orchestrator WORDS` that believes after 2 s, not minutes, that an intent never became a job."""
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "killed.py"), "never", "0", *words],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def output_file(self, number: int) -> Path:
        return self.folder / f"output-{number}.txt"

    def output(self) -> str:
        """What the newest background command has printed."""
        return self.output_file(len(self.children) - 1).read_text()

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.code == 0, done.words
        return dict(json.loads(done.out))

    @contextlib.contextmanager
    def watched(self, *, every_s: float = 0.3) -> Iterator[list[dict[str, Any]]]:
        """`status --json` of another process again and again; checks at the end that it told one story."""
        seen: list[dict[str, Any]] = []
        enough = threading.Event()

        def watch() -> None:
            while not enough.wait(every_s):
                if self.run_dir.joinpath("run.json").exists():
                    seen.append(self.status())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            enough.set()
            thread.join()
        seen.append(self.status())
        check_story(seen)

    def wait_for(self, condition: Any, what: str) -> None:
        """Wait for anything. Errors: TimeoutError with the newest output."""
        wait_for(condition, what, said=lambda: self.output() if self.children else "")

    def wait_for_step(self, step: int, slot: int = 0) -> None:
        self.wait_for(lambda: self.counted(slot) >= step, f"step {step} of slot {slot}")

    def wait_for_supervisors(self) -> None:
        """Those of the local executor write once more after the end of their job, by which a run is finished."""

        def have_ended() -> bool:
            records = self.run_dir.glob("jobs/*/local.json")
            return all(json.loads(record.read_text())["raw_state"] != "RUNNING" for record in records)

        self.wait_for(have_ended, "the supervisors' end")

    # --- how far the program may get --------------------------------------------------------------------------------

    def hold_at(self, step: int) -> None:
        """From now on no slot counts beyond `step`; its job lives, and hands over when it is asked to."""
        held = self.folder / "data" / "held"
        held.with_name("held.new").write_text(f"{step}\n")
        held.with_name("held.new").replace(held)

    def release(self) -> None:
        """All slots count to their end."""
        (self.folder / "data" / "held").unlink(missing_ok=True)

    def ended(self, child: subprocess.Popen[str]) -> int:
        """The exit code of a background command. Errors: TimeoutError with its output."""
        self.wait_for(lambda: child.poll() is not None, "the end of the command")
        return child.returncode

    def hand_over(self, slot: int = 0) -> None:
        """Have the newest attempt hand over, behind the controller's back, and wait until it has."""
        attempt = self.attempts(slot)[-1]
        (self.run_dir / "jobs" / self.read("claim", attempt, slot)["token"] / "hand-over").touch()
        self.wait_for((self.attempt_dir(attempt, slot) / "exit.json").exists, "the job to hand over")

    def kill_program(self) -> None:
        """SIGKILL the program of the one job that lives on this machine, as the kernel does that has no memory left."""
        programs = self.programs()
        assert len(programs) == 1, programs
        os.kill(programs[0], signal.SIGKILL)

    def programs(self) -> list[int]:
        """The processes of the program on this machine."""
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self._is_program(int(pid))]

    def _is_program(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return b"./count.py" in words and Path(f"/proc/{pid}/cwd").resolve() == self.folder.resolve()
        except OSError:
            return False

    # --- submissions behind the controller's back ---------------------------------------------------------------

    def submit_by_hand(self, attempt: int, token_hex: str) -> str:
        """A job for `attempt` of slot 0 that no controller knows of. Returns its token."""
        run_dir = RunDir(self.run_dir)
        run = load_run(run_dir)
        token = make_token(0, attempt, token_hex)
        outcome = make_executor(run, run_dir).submit(make_job_folder(run, run_dir, Submit(0, attempt, token)))
        assert isinstance(outcome, Submitted), outcome
        return token

    def submit_again(self, token: str) -> None:
        """The job of a token (once more), from its own folder."""
        run_dir = RunDir(self.run_dir)
        folder = str(run_dir.job(token))
        request = JobRequest(job_dir=folder, script=f"{folder}/job.sh")
        outcome = make_executor(load_run(run_dir), run_dir).submit(request)
        assert isinstance(outcome, Submitted), outcome

    # --- evidence -------------------------------------------------------------------------------------------------

    def journal(self, slot: int) -> list[tuple[int, int]]:
        """(attempt, n) of every step that any process of the slot has done, in the order of their doing."""
        try:
            lines = (self.folder / "journal.txt").read_text().splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [(int(attempt), int(n)) for of, attempt, n in words if int(of) == slot]

    def counted(self, slot: int = 0) -> int:
        return max((n for _, n in self.journal(slot)), default=0)

    def attempt_dir(self, attempt: int, slot: int = 0) -> Path:
        return self.run_dir / "slots" / str(slot) / "attempts" / str(attempt)

    def attempts(self, slot: int = 0) -> list[int]:
        """Those that were begun: a job whose shim refused leaves its refusal, and no claim."""
        folder = self.run_dir / "slots" / str(slot) / "attempts"
        return sorted(int(claim.parent.name) for claim in folder.glob("*/claim"))

    def read(self, name: str, attempt: int, slot: int = 0) -> dict[str, Any]:
        return dict(json.loads((self.attempt_dir(attempt, slot) / name).read_text()))

    def duplicates(self, attempt: int) -> list[dict[str, Any]]:
        """What the losers of an attempt of slot 0 wrote."""
        return [json.loads(path.read_text()) for path in self.attempt_dir(attempt).glob("duplicate-*.json")]

    def asked(self, slot: int = 0) -> list[str | None]:
        """Why each attempt handed over."""
        return [self.read("exit.json", attempt, slot)["asked"] for attempt in self.attempts(slot)]

    def ledger(self) -> dict[str, Any]:
        """The newest ledger's content."""
        newest = max(self.run_dir.glob("ledger-*.json"), key=lambda path: int(path.stem.removeprefix("ledger-")))
        return dict(json.loads(newest.read_text()))

    def submitted_by(self, epoch: int) -> list[str]:
        """The submissions that an owner's ledger has. What else it says may change when an owner wakes up that was
        stopped in the middle of a look: it ends that, and nobody reads it.
        """
        ledger = json.loads((self.run_dir / f"ledger-{epoch}.json").read_text())
        return [s["token"] for slot in ledger["slots"] for a in slot["attempts"] for s in a["submissions"]]

    def events(self, kind: str) -> list[dict[str, Any]]:
        paths = sorted(self.run_dir.glob("events-*.jsonl"), key=lambda path: int(path.stem.removeprefix("events-")))
        lines = [line for path in paths for line in path.read_text().splitlines()]
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    def snapshot(self) -> dict[str, bytes]:
        """Every file that says how the run stands."""
        paths = [*self.run_dir.glob("*.json"), *self.run_dir.glob("control/*")]
        return {str(path): path.read_bytes() for path in paths}

    def assert_exactly_once(self, total: int, slot: int = 0) -> None:
        """Every step was done once, in order; each attempt began where the one before had saved, after its end."""
        journal = self.journal(slot)
        assert [n for _, n in journal] == list(range(1, total + 1))
        attempts = self.attempts(slot)  # a number is missing where a job was taken back before it began
        for attempt in attempts:
            steps = [n for a, n in journal if a == attempt]
            parent, ended = self.read("parent.json", attempt, slot), self.read("exit.json", attempt, slot)
            assert self.read("claim", attempt, slot)["token"] == ended["token"]
            saved = sorted(int(path.name) for path in (self.attempt_dir(attempt, slot) / "checkpoints").iterdir())
            assert steps == list(range(parent["step"] + 1, saved[-1] + 1))
        for before, after in pairwise(attempts):
            parent = self.read("parent.json", after, slot)
            saved = sorted(int(path.name) for path in (self.attempt_dir(before, slot) / "checkpoints").iterdir())
            assert (parent["attempt"], parent["step"]) == (before, saved[-1])
            assert self.read("claim", after, slot)["at"] >= self.read("exit.json", before, slot)["at"]

    # --- the end --------------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """No controller, no job, no process of this run is left, whatever the test did."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        if Path(self.env.get("SLURM_CONF", "/nowhere")).exists():
            jobs = (row.partition("|") for row in self._squeue())
            ids = [job for job, _, where in jobs if where.startswith(f"{self.run_dir}/")]
            if ids:
                subprocess.run(["scancel", *ids], env=self.env, timeout=COMMAND_TIMEOUT_S, check=False)
        sweep("TMPDIR", self.env["TMPDIR"])
        shutil.rmtree(self.env["TMPDIR"], ignore_errors=True)

    def _squeue(self) -> list[str]:
        done = subprocess.run(
            ["squeue", "-h", "-o", "%A|%Z"],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout.splitlines()


#: The fixture `new_relay`: `new_relay(name="toy", **settings)`; settings as `Relay.make` takes them.
NewRelay = Callable[..., Relay]


@dataclass(frozen=True)
class Done:
    """A command that ended. `words`: what it said to a person who reads its errors."""

    code: int
    out: str
    words: str

    def assert_refused(self, code: int, *parts: str) -> None:
        """It ended with `code`, and said so in words that hold `parts`, without a traceback."""
        assert self.code == code, self.words + self.out
        assert "Traceback" not in self.words + self.out
        for part in parts:
            assert part in self.words, self.words


def check_story(seen: list[dict[str, Any]]) -> None:
    """What `status --json` said over time: states move only as they may, and no number goes back."""
    for slot in (slot for view in seen for slot in view["slots"]):
        assert slot["state"] in ORDER, slot
        assert slot["hand_overs"] <= slot["jobs"], slot
        if slot["step"] is not None:
            assert (slot["start_step"] or 0) <= (slot["checkpoint_step"] or 0) <= slot["step"] <= slot["total"], slot
    for before, after in pairwise(seen):
        assert after["controller_epoch"] >= before["controller_epoch"]
        for old, new in zip(before["slots"], after["slots"], strict=False):
            for name in ("jobs", "hand_overs"):
                assert new[name] >= old[name], (old, new)
            for name in ("step", "attempt", "checkpoint_step"):
                assert (new[name] or 0) >= (old[name] or 0), (old, new)
            no_room = old["state"] == "waiting" and old["why"]  # its job was refused, for now
            begun_again = before["wish"] != after["wish"]  # somebody typed `start` after a `stop`
            if old["attempt"] == new["attempt"] and not no_room and not begun_again:
                assert ORDER.index(new["state"]) >= ORDER.index(old["state"]), (old, new)
            assert old["state"] != "finished" or new["state"] == "finished", (old, new)
