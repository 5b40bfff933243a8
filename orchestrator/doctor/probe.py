"""The probe: a job that tries on a compute node what a run will need there, and writes down what it saw.

`orchestrator.doctor.probing` starts it in its folder, which holds `probe.json`. It rewrites `report.json` after every
look, so that a probe that is killed has said what it knew, and ends when the signal has come. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from anchorleg.files import write_json
from orchestrator.jobside import container_command, end_of_job

POLL_S = 0.1
#: A question to Slurm or to the driver.
QUESTION_TIMEOUT_S = 15.0
#: Loading torch from a cold network folder takes up to a minute; a GPU that hangs takes for ever.
LOAD_TIMEOUT_S = 60.0
#: With less left than this no new look is begun: the report must be complete before the walltime.
RESERVE_S = 12.0
#: Looks in their order: each has a method and, in the report, a part of its name.
LOOKS = ("end", "slurm", "gpu", "container", "program", "cuda")
#: What the trainer loads.
PACKAGES = ("torch", "numpy", "metaworld", "mujoco", "gymnasium", "safetensors")

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
_CUDA = """
import json, torch
found = {"built_for": torch.version.cuda, "available": torch.cuda.is_available(), "devices": []}
if found["available"]:
    every = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    found["devices"] = [{"name": one.name, "memory_bytes": one.total_memory} for one in every]
    torch.ones(64, 64, device="cuda").square().sum().item()
print(json.dumps(found))
"""


class Probe:
    """One probe. `spec`: `probe.json`."""

    def __init__(self, folder: Path, spec: dict[str, Any], environ: dict[str, str]) -> None:
        self.folder = folder
        self.spec = spec
        self.environ = environ
        self.ends_at = time.time() + spec["limit_s"]
        self.heard: dict[str, float] = {}  # when each kind of signal came first
        self.report: dict[str, Any] = {
            "started_at": time.time(),
            "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "done": False,
            "heard": self.heard,
            "errors": {},
        }

    def run(self) -> None:
        """Look at everything, wait for the signal, say that all was said."""
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda kind, _frame: self.heard.setdefault(signal.Signals(kind).name, time.time()))
        for name in LOOKS:
            if self.ends_at - time.time() < RESERVE_S or "SIGTERM" in self.heard:
                self.report["errors"][name] = "there was no time left for this check"
                continue
            self._save(looking=name)
            try:
                self.report[name] = getattr(self, name)()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self.report["errors"][name] = str(error) or type(error).__name__
        self._save(looking="")
        while time.time() < self.ends_at and not self.heard:
            time.sleep(POLL_S)
        self._save(done=True)

    def _save(self, **told: Any) -> None:
        self.report |= told
        write_json(self.folder / "report.json", self.report)

    def end(self) -> dict[str, Any]:
        """When the job will be killed, as far as the scheduler says it."""
        self.ends_at = end_of_job(self.environ, self.report["started_at"], self.spec["limit_s"])
        return {"at": self.ends_at}

    def slurm(self) -> dict[str, Any] | None:
        """Whether Slurm's commands work here: failover needs them. None: no Slurm job."""
        if (job_id := self.environ.get("SLURM_JOB_ID")) is None:
            return None
        queue = ["squeue", "-h", "-j", job_id, "-o", "%T", "-a"]
        return {"squeue": self.asked(queue), "sbatch": self.asked(["sbatch", "--test-only", "job.sh"])}

    def gpu(self) -> dict[str, Any]:
        """The driver's own word: each GPU, and the newest CUDA that this driver can run."""
        if shutil.which("nvidia-smi", path=self.environ.get("PATH")) is None:
            return {"devices": [], "cuda": "", "words": "there is no nvidia-smi"}
        answer = self.asked(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
        if answer["code"] != 0:
            words = answer["err"] or next(iter(answer["out"].splitlines()), "") or f"it ended with {answer['code']}"
            return {"devices": [], "cuda": "", "words": f"nvidia-smi: {words}"}
        cuda = re.search(r"CUDA[^:|]*Version\s*:\s*([\d.]+)", self.asked(["nvidia-smi"])["out"])
        return {"devices": answer["out"].splitlines(), "cuda": cuda[1] if cuda else "", "words": ""}

    def container(self) -> dict[str, Any] | None:
        """Whether the image can be entered. None: no container is configured."""
        if not self.spec.get("container"):
            return None
        # A program of one's own may need no Python, or one that is too old for ours.
        answer = self.inside(["true"] if self.spec["own_program"] else [self.spec["program_python"], "-P", "-c", ""])
        return {"works": answer["code"] == 0, "words": answer["err"]}

    def program(self) -> dict[str, Any]:
        """What the program's Python has."""
        return self._python_says(_VERSIONS)

    def cuda(self) -> dict[str, Any] | None:
        """Whether torch can multiply on the GPU. None: there is no torch."""
        has_torch = self.report.get("program", {}).get("packages", {}).get("torch")
        return self._python_says(_CUDA) if has_torch else None

    def _python_says(self, code: str) -> dict[str, Any]:
        """The object that `code` prints last in the program's Python. Errors: ValueError with its complaint."""
        answer = self.inside([self.spec["program_python"], "-P", "-c", code])
        lines = [line for line in answer["out"].splitlines() if line.startswith("{")]
        if answer["code"] != 0 or not lines:
            raise ValueError(answer["err"] or f"ended with {answer['code']}")
        return dict(json.loads(lines[-1]))

    def inside(self, command: list[str]) -> dict[str, Any]:
        """Run a command in the program's image, where there is one."""
        env = dict(self.environ)
        if self.spec["own_program"] and (setups_path := env.pop("ANCHORLEG_SETUP_PYTHONPATH", "")):
            env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{setups_path}"  # as the shim does
        if container := self.spec.get("container"):
            binds = [str(self.folder), str(self.spec["code_dir"])]
            command = container_command(container, command, binds, str(self.folder))
            if container["runtime"] == "ch-run":
                env.pop("TMPDIR", None)  # as the shim does
                env.setdefault("USER", str(os.getuid()))
        return self.asked(command, LOAD_TIMEOUT_S, env)

    def asked(
        self, command: list[str], timeout_s: float = QUESTION_TIMEOUT_S, env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a command. `err`: its last line of complaint."""
        timeout_s = min(timeout_s, max(1.0, self.ends_at - time.time() - RESERVE_S))
        # Into files: of a pipe the end would be waited for, which a child of the command may hold.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                code = subprocess.run(
                    command, env=env or self.environ, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    timeout=timeout_s, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                return {"code": 124, "out": "", "err": f"no end within {timeout_s:.0f} s"}
            except OSError as error:
                return {"code": 127, "out": "", "err": f"{command[0]}: {error.strerror}"}
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        complaint = next((line for line in reversed(texts[1].splitlines()) if line.strip()), "")
        return {"code": code, "out": texts[0], "err": complaint.strip()[:300]}


if __name__ == "__main__":
    here = Path.cwd()
    Probe(here, json.loads((here / "probe.json").read_bytes()), dict(os.environ)).run()
