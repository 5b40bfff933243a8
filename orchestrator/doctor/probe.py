"""The probe: a job that tries on a compute node what a run will need there, and writes down what it saw.

Started as ``python -X utf8 -P -S -m orchestrator.doctor.probe`` in its folder, which holds `probe.json` (see
`orchestrator.doctor.probing`). It rewrites `report.json` after every look, so that a probe that is killed has still
said what it knew. It ends as soon as it has looked at everything and the signal has come. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from anchorleg.disks import filesystem_of
from anchorleg.files import read_json_or_none, to_json, write_bytes, write_json
from orchestrator.jobside import container_command, end_of_job

POLL_S = 0.1
#: The login side may still be waiting for its last echo.
LINGER_S = 2.0
#: A question to Slurm from the node.
SLURM_TIMEOUT_S = 15.0
#: Loading torch from a cold network folder takes up to a minute; a GPU that hangs takes for ever.
LOAD_TIMEOUT_S = 60.0
#: Fifty tasks load within half a minute, on a busy node within minutes.
TASKS_TIMEOUT_S = 120.0
#: The code of a command that was ended for taking too long, as timeout(1) has it.
TIMED_OUT = 124
#: With less left than this no new look is begun: the report must be complete before the walltime.
RESERVE_S = 12.0
#: Looked for in the environment and reported with their values: they hold numbers and names of this place only.
SHOWN = (
    "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_TMPDIR", "TMPDIR",
    "MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "LOADEDMODULES", "OMP_NUM_THREADS",
)  # fmt: skip
#: Reported by name where they are set: they change which code a job loads, or what Slurm's commands do.
LEAKING = ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "CONDA_PREFIX", "VIRTUAL_ENV")
LEAKING_PREFIXES = ("SBATCH_", "SQUEUE_", "SACCT_")
#: Of the squares of ones that torch multiplies on the GPU; their product's sum is this to the third power.
SIDE = 64
#: What is looked at, in this order, each by the method of its name; a report has a part for each.
LOOKS = (
    "end", "environment", "limits", "scratch", "slurm", "gpu", "container", "program", "cuda", "drawing", "tasks",
)  # fmt: skip
#: What the trainer loads.
PACKAGES = ("torch", "numpy", "metaworld", "mujoco", "gymnasium", "safetensors", "tensorboard", "zstandard", "pydantic")

_VERSIONS = f"""
import importlib.metadata as m, json, sys
found = {{}}
for name in {PACKAGES!r}:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = ""
print(json.dumps({{"python": sys.version.split()[0], "packages": found}}))
"""
_CUDA = f"""
import json, torch
found = {{"built_for": torch.version.cuda, "available": torch.cuda.is_available(), "devices": []}}
if found["available"]:
    every = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    found["devices"] = [{{"name": one.name, "memory_bytes": one.total_memory}} for one in every]
    found["sum"] = float((torch.ones({SIDE}, {SIDE}, device="cuda") @ torch.ones({SIDE}, {SIDE}, device="cuda")).sum())
print(json.dumps(found))
"""


class Probe:
    """One probe. `spec`: `probe.json`."""

    def __init__(self, folder: Path, spec: dict[str, Any], environ: dict[str, str]) -> None:
        self.folder = folder
        self.spec = spec
        self.environ = environ
        self.started_at = time.time()
        self.ends_at = self.started_at + spec["limit_s"]
        self.heard: dict[str, float] = {}
        self.echoed = -1
        self.report: dict[str, Any] = {
            "started_at": self.started_at,
            "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "python": sys.version.split()[0],
            "done": False,
            "errors": {},
        }

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Remember when each kind came first."""
        self.heard.setdefault(signal.Signals(number).name, time.time())

    def run(self) -> None:
        """Look at everything, wait for the signal, say that all was said."""
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM, signal.SIGCONT):
            signal.signal(number, self.on_signal)
        self.save()
        for name in LOOKS:
            if self.ends_at - time.time() < RESERVE_S or "SIGTERM" in self.heard:
                self.report["errors"][name] = "there was no time left to look"
                continue
            self.report["looking"] = name
            self.save()
            try:
                self.report[name] = getattr(self, name)()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self.report["errors"][name] = str(error) or type(error).__name__
        self.report["looking"] = ""
        self.save()
        while not {"SIGUSR2", "SIGTERM"} & set(self.heard) and time.time() < self.ends_at:
            self.echo()
            time.sleep(POLL_S)
        linger_until = time.time() + LINGER_S
        while "SIGTERM" not in self.heard and time.time() < linger_until:
            self.echo()
            time.sleep(POLL_S)
        self.report["done"] = True
        self.save()

    def save(self) -> None:
        """Rewrite the report."""
        self.report |= {"heard": self.heard, "at": time.time()}
        with contextlib.suppress(OSError):
            write_json(self.folder / "report.json", self.report)

    def echo(self) -> None:
        """Answer the newest `ping.json` with its number and our clock: how soon each side sees the other's files."""
        ping = read_json_or_none(self.folder / "ping.json")
        if isinstance(ping, dict) and ping.get("number", -1) > self.echoed:
            self.echoed = ping["number"]
            with contextlib.suppress(OSError):
                write_json(self.folder / "pong.json", {"number": self.echoed, "at": time.time()})

    # --- looks ----------------------------------------------------------------------------------------------------

    def end(self) -> dict[str, Any]:
        """When the job will be killed, and who says so."""
        told = next((n for n in ("SLURM_JOB_END_TIME", "ANCHORLEG_END_TIME") if self.environ.get(n)), "")
        at = end_of_job(self.environ, self.started_at, 0.0)
        asked = not told and at != self.started_at
        if told or asked:
            self.ends_at = at
        return {"at": self.ends_at, "how": told or ("squeue" if asked else "start + time limit")}

    def environment(self) -> dict[str, Any]:
        """What the job sees, as far as it is about this place; other variables are nobody's business."""
        ours = {str(self.spec["code_dir"])}
        leaks = [name for name in LEAKING if self.environ.get(name) and self.environ[name] not in ours]
        leaks += sorted(name for name in self.environ if name.startswith(LEAKING_PREFIXES))
        return {"shown": {name: self.environ[name] for name in SHOWN if name in self.environ}, "leaks": leaks}

    def limits(self) -> dict[str, Any]:
        """CPUs, memory and files that this job may use."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_bytes": memory_limit(),
            "open_files": None if files == resource.RLIM_INFINITY else files,
        }

    def scratch(self) -> dict[str, Any]:
        """Where the shim would put scratch files: how large, and is it memory."""
        base = Path(self.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
        with tempfile.TemporaryDirectory(dir=base) as folder:
            write_bytes(Path(folder) / "file", b"x" * 2**20)
        told = os.statvfs(base)
        return {"path": str(base), "free_bytes": told.f_bavail * told.f_frsize, "kind": filesystem_of(base)}

    def slurm(self) -> dict[str, Any] | None:
        """Whether Slurm's commands work here: failover needs them. None: no Slurm job."""
        job_id = self.environ.get("SLURM_JOB_ID")
        if job_id is None:
            return None
        found = {name: shutil.which(name, path=self.environ.get("PATH")) or "" for name in ("sbatch", "squeue")}
        queue, submit = ["squeue", "-h", "-j", job_id, "-o", "%T", "-a"], ["sbatch", "--test-only", "job.sh"]
        answers = {"squeue": self.asked(queue), "sbatch": self.asked(submit)}
        return {"paths": found, "answers": answers}

    def gpu(self) -> dict[str, Any]:
        """The driver's own word: each GPU, and the newest CUDA that this driver can run."""
        if shutil.which("nvidia-smi", path=self.environ.get("PATH")) is None:
            return {"devices": [], "cuda": "", "words": "there is no nvidia-smi"}
        asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
        answer = self.asked(asked)
        if answer["code"] != 0:
            words = answer["err"] or next(iter(answer["out"].splitlines()), "") or f"it ended with {answer['code']}"
            return {"devices": [], "cuda": "", "words": f"nvidia-smi: {words}"}
        cuda = re.search(r"CUDA[^:|]*Version\s*:\s*([\d.]+)", self.asked(["nvidia-smi"])["out"])
        return {"devices": driver_rows(answer["out"]), "cuda": cuda[1] if cuda else "", "words": ""}

    def container(self) -> dict[str, Any] | None:
        """Whether the image can be entered. None: no container is configured."""
        if not self.spec.get("container"):
            return None
        began = time.monotonic()
        # A program of one's own may need no Python, or one that is too old for ours.
        answer = self.inside(["true"]) if self.spec["own_program"] else self.run_python(["-c", ""])
        inside = answer["code"] == 0
        return {"works": inside, "seconds": time.monotonic() - began, "words": answer["err"]}

    def program(self) -> dict[str, Any]:
        """What the program's Python has."""
        answer = self.run_python(["-c", _VERSIONS])
        return last_json(answer)

    def cuda(self) -> dict[str, Any] | None:
        """Whether torch can multiply on the GPU. None: there is no torch."""
        if not self.report.get("program", {}).get("packages", {}).get("torch"):
            return None
        began = time.monotonic()
        found = last_json(self.run_python(["-c", _CUDA]))
        return {**found, "seconds": time.monotonic() - began}

    def drawing(self) -> dict[str, Any] | None:
        """Which way MuJoCo can draw: EGL on the GPU, else OSMesa on the CPU. None: there is no mujoco."""
        if not self.report.get("program", {}).get("packages", {}).get("mujoco"):
            return None
        tried: dict[str, Any] = {}
        for way in ("egl", "osmesa"):
            answer = self.run_python(["-m", "trainer.machine.glprobe"], MUJOCO_GL=way)
            tried[way] = {"works": answer["code"] == 0, "words": answer["err"]}
            if answer["code"] == 0:
                break
        return tried

    def tasks(self) -> dict[str, Any] | None:
        """Whether the tasks load and make a step, and one can be drawn. None: there is no Meta-World, or nothing of
        it is trained on.
        """
        packages = self.report.get("program", {}).get("packages", {})
        if not self.spec["tasks"] or not packages.get("metaworld") or not packages.get("mujoco"):
            return None
        drawn = self.report.get("drawing") or {}
        way = next((name for name in ("egl", "osmesa") if drawn.get(name, {}).get("works")), "disable")
        began = time.monotonic()
        words = ["-m", "trainer.showing.taskprobe", *self.spec["tasks"]]
        answer = self.run_python(words, TASKS_TIMEOUT_S, MUJOCO_GL=way)
        if answer["code"] == TIMED_OUT:
            raise ValueError(answer["err"])  # a slow node is no broken one
        found = last_json(answer) if answer["code"] == 0 else {"words": answer["err"]}
        return {"way": way, **found, "seconds": time.monotonic() - began}

    # --- inside ---------------------------------------------------------------------------------------------------

    def run_python(self, words: list[str], timeout_s: float = LOAD_TIMEOUT_S, **more: str) -> dict[str, Any]:
        """Run the program's Python, in its image where there is one."""
        return self.inside([self.spec["program_python"], "-P", *words], timeout_s, **more)

    def inside(self, command: list[str], timeout_s: float = LOAD_TIMEOUT_S, **more: str) -> dict[str, Any]:
        """Run a command in the program's image, where there is one."""
        env = {name: value for name, value in self.environ.items() if name != "PYOPENGL_PLATFORM"} | more
        if self.spec["own_program"] and (setups_path := env.pop("ANCHORLEG_SETUP_PYTHONPATH", "")):
            env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{setups_path}"  # as the shim does
        if container := self.spec.get("container"):
            binds = [str(self.folder), str(self.spec["code_dir"])]
            command = container_command(container, command, binds, str(self.folder))
            if container["runtime"] == "ch-run":
                env.pop("TMPDIR", None)  # as the shim does
                env.setdefault("USER", str(os.getuid()))
        return self.asked(command, timeout_s, env)

    def asked(
        self, command: list[str], timeout_s: float = SLURM_TIMEOUT_S, env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a command and go on answering pings meanwhile. `err`: its last line of complaint."""
        until = time.monotonic() + min(timeout_s, max(1.0, self.ends_at - time.time() - RESERVE_S))
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                child = subprocess.Popen(
                    command,
                    env=env or self.environ,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                return {"code": 127, "out": "", "err": f"{command[0]}: {error.strerror}"}
            while child.poll() is None and time.monotonic() < until:
                self.echo()
                time.sleep(POLL_S)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return {"code": TIMED_OUT, "out": "", "err": f"no end within {timeout_s:g} s"}
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        complaint = next((line for line in reversed(texts[1].splitlines()) if line.strip()), "")
        return {"code": child.returncode, "out": texts[0], "err": complaint.strip()[:300]}


def driver_rows(text: str) -> list[dict[str, str]]:
    """What nvidia-smi lists as `name, MiB, driver version`, a line a GPU."""
    rows = [[part.strip() for part in line.rsplit(",", 2)] for line in text.splitlines()]
    return [dict(zip(("name", "memory_mib", "driver"), row, strict=True)) for row in rows if len(row) == 3]


def last_json(answer: dict[str, Any]) -> dict[str, Any]:
    """The object that a program printed last. Errors: ValueError with its complaint."""
    lines = [line for line in answer["out"].splitlines() if line.startswith("{")]
    if answer["code"] != 0 or not lines:
        raise ValueError(answer["err"] or f"ended with {answer['code']}")
    return dict(json.loads(lines[-1]))


def memory_limit(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> int | None:
    """The strictest memory limit of this process's control groups in bytes; None where there is none."""
    if own is None:
        with contextlib.suppress(OSError):
            own = Path("/proc/self/cgroup").read_text(errors="surrogateescape")
    limits = []
    for line in (own or "").splitlines():
        _, controllers, place = line.split(":", 2)
        base = root / "memory" if "memory" in controllers.split(",") else root
        if controllers and "memory" not in controllers.split(","):
            continue
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        below = base / place.lstrip("/")
        for folder in (below, *below.parents):
            if not folder.is_relative_to(base):
                break
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    least = min(limits, default=None)
    # Version 1 writes "no limit" as the largest multiple of a page.
    return None if least is None or least >= 2**60 else least


def main() -> int:
    """Probe as `probe.json` in the current folder says."""
    folder = Path.cwd()
    try:
        spec = json.loads((folder / "probe.json").read_bytes())
    except (OSError, ValueError) as error:
        sys.stderr.buffer.write(to_json(f"{folder}/probe.json cannot be read: {error}"))
        return 1
    Probe(folder, spec, dict(os.environ)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
