"""What a probe says of its node, and of what the run's program finds there: of a report each field may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anchorleg.findings import Check, Judgement, Judgements, ok, problem, warning
from anchorleg.words import sized
from orchestrator.config import EARLY_SIGNAL_S, RunConfig
from orchestrator.doctor.probe import PACKAGES
from orchestrator.doctor.probing import ProbeResult
from orchestrator.executors.base import SubmitRefused
from orchestrator.executors.slurm_text import read_submission
from orchestrator.notation import format_duration

#: Slurm looks at its jobs' ends every 30 s, and start and end are told in whole seconds.
SIGNAL_SLACK_S = 5.0


@dataclass(frozen=True)
class Probed:
    """A probe that was sent for a config, and what came of it."""

    config: RunConfig
    executor: str
    result: ProbeResult

    def told(self, *names: str) -> Mapping[str, Any]:
        """A part of the job's report, by the names that lead to it; empty where there is none."""
        found: Any = self.result.report
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}


def _probe(probed: Probed) -> Iterator[Judgement]:
    result = probed.result
    if result.error:
        last = next((line for line in reversed(result.output.splitlines()) if line.strip()), "")
        found = result.error + (f"; its last output: {last}" if last else "")
        yield problem(found, "check what it waited for" if "waited" in found else "correct that, and probe again")
    elif result.report:
        waits = f" after {format_duration(result.pending_s)} in the queue" if result.pending_s is not None else ""
        yield ok(f"job {result.job_id} ran on {result.report.get('host', '?')}{waits}")
    for look, words in probed.told("errors").items():
        yield warning(f"{look} could not be checked: {words}")


def _signal(probed: Probed) -> Judgements:
    result, heard, end = probed.result, probed.told("heard").get("SIGUSR2"), probed.told("end").get("at")
    asked = f"USR2, asked for {result.lead_s:.0f} s before the end,"
    if not isinstance(heard, int | float) or not isinstance(end, int | float):
        advice = "jobs then hand over by the clock, which must be right on the node"
        return warning(f"{asked} never came", advice) if result.report.get("done") else None
    early_s = float(end) - float(heard)
    found = f"{asked} came {early_s:.0f} s before it"
    if early_s < result.lead_s - SIGNAL_SLACK_S:
        lead_s = probed.config.lead_seconds + math.ceil(result.lead_s - early_s)
        return warning(found, f"set lead_seconds to {lead_s}, so that saves have enough time", {"lead_seconds": lead_s})
    if early_s > result.lead_s + EARLY_SIGNAL_S + SIGNAL_SLACK_S:
        return warning(found, f"more than Slurm's {EARLY_SIGNAL_S} s: each job ends earlier by as much")
    return ok(found + (f"; Slurm may be {EARLY_SIGNAL_S} s early" if probed.executor == "slurm" else ""))


def _failover(probed: Probed) -> Judgements:
    submit, queue = probed.told("slurm", "sbatch"), probed.told("slurm", "squeue")
    if not submit:
        return None
    outcome = read_submission(1, "", str(submit.get("err", "")))
    is_full = isinstance(outcome, SubmitRefused) and outcome.kind == "quota"  # a full quota is no obstacle
    submits = submit.get("code") == 0 or is_full
    if submits and queue.get("code") == 0:
        return ok("sbatch and squeue work on the node: a job can run a failover tick")
    which, answer = ("squeue", queue) if submits else ("sbatch", submit)
    found = f"{which} does not work on the node ({answer.get('err') or 'no message'})"
    if not probed.config.relay.failover_tick:
        return ok(found)
    advice = "set relay.failover_tick to false and keep a controller alive, or run `orchestrator tick` from a crontab"
    return warning(found, advice, {"relay.failover_tick": False})


def _container(probed: Probed) -> Judgements:
    container = probed.told("container")
    if not container:
        return None
    if container.get("works"):
        return ok("it can be entered")
    advice = "check container.image and container.runtime on the node"
    return problem(f"it cannot be entered: {container.get('words')}", advice)


def _program(probed: Probed) -> Judgements:
    program, packages = probed.told("program"), probed.told("program", "packages")
    if not program:
        return None
    missing = [name for name in PACKAGES if not packages.get(name)]
    there = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    found = f"Python {program.get('python')}" + (f" with {there}" if there else "")
    if not missing or probed.config.command is not None:
        return ok(found)
    advice = f"{', '.join(missing)} missing there: in Anchorleg's checkout, run pip install '.[trainer]'"
    return problem(found, advice)


def _driver(probed: Probed) -> Judgements:
    gpu, wanted = probed.told("gpu"), probed.config.slurm.gpus
    if not gpu:
        return None
    rows = [str(row) for row in gpu.get("devices") or []]
    newest = f"; its driver runs CUDA {gpu['cuda']} and older" if gpu.get("cuda") else ""
    found = "; ".join(rows) + newest if rows else f"no GPU: {gpu.get('words')}"
    if len(rows) >= wanted or probed.executor != "slurm":
        return ok(found)
    found = f"slurm.gpus asks for {wanted}, and the driver shows {len(rows)}: {found}"
    return warning(found, "check slurm.gpus and the partition")


def _torch(probed: Probed) -> Judgements:
    cuda, wanted = probed.told("cuda"), probed.config.slurm.gpus
    inside = " in the container" if probed.told("container") else ""
    there = bool(probed.told("gpu").get("devices"))
    if not cuda:
        return None
    if cuda.get("available"):
        devices = [one for one in cuda.get("devices") or [] if isinstance(one, dict)]
        names = ", ".join(f"{one.get('name')} ({sized(one.get('memory_bytes') or 0)})" for one in devices)
        return ok(f"torch (CUDA {cuda.get('built_for')}) sees {names}{inside} and can use it")
    if not wanted or (probed.executor == "local" and not there):
        return ok(f"torch uses the CPU{inside}")
    if not cuda.get("built_for"):
        why, where = "it is built without CUDA", "build the image" if inside else "install torch"
        advice = f"{where} with CUDA (docs/cluster.md), or set slurm.gpus to 0"
    else:
        why = f"it is built for CUDA {cuda['built_for']}; the driver {'shows a GPU' if there else 'shows none'}"
        advice = _why_unseen(probed) if there else "check slurm.gpus and the partition"
    found = f"slurm.gpus asks for {wanted}, and torch sees none{inside}: {why}"
    if probed.config.command is None:
        return problem(found, advice)
    return warning(found, f"in the Python that was checked; if your program uses it: {advice}")


def _why_unseen(probed: Probed) -> str:
    """What to do where the driver shows a GPU and a torch with CUDA does not see it."""
    driver, container = probed.told("gpu").get("cuda"), probed.config.container
    if driver and _major(probed.told("cuda").get("built_for")) > _major(driver):
        newer = f"choose a node with a newer driver, or a torch for CUDA {driver}"
        return f"this driver runs CUDA {driver} at most: {newer}"
    if container is None:
        return "check CUDA_VISIBLE_DEVICES in slurm.setup, and `python -c 'import torch; torch.zeros(1).cuda()'` there"
    if container.runtime == "ch-run":
        once = "charliecloud brings the driver in once, into the image"
        return f"{once}: `ch-fromhost --nvidia IMAGE` on a node with a GPU"
    ways = {"podman": "podman run --device=nvidia.com/gpu=all IMAGE", "pyxis": "srun --gpus=1 --container-image=IMAGE"}
    return f"`{ways.get(container.runtime, f'{container.runtime} exec --nv IMAGE')} nvidia-smi` shows why"


def _major(version: object) -> int:
    head = str(version).partition(".")[0]
    return int(head) if head.isdigit() else 0


CHECKS: tuple[Check[Probed], ...] = (
    Check("probe", _probe),
    Check("signal", _signal),
    Check("failover", _failover),
    Check("container", _container),
    Check("program", _program),
    Check("driver", _driver),
    Check("GPU", _torch),
)
