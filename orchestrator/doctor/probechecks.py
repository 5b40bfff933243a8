"""What a probe says of its node, and of what the run's program finds there. Pure.

A report is another machine's word: every field may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from anchorleg.findings import Check, Judgement, Judgements, Level, ok, problem, warning
from anchorleg.words import sized
from orchestrator.config import EARLY_SIGNAL_S, RunConfig
from orchestrator.doctor.checks import MEMORY_KINDS, clock_of
from orchestrator.doctor.facts import ProbeResult, Report, section
from orchestrator.doctor.probe import LOOKS, SIDE
from orchestrator.executors.base import SubmitRefused
from orchestrator.executors.slurm_text import read_submission
from orchestrator.notation import format_duration

#: Slurm looks at its jobs' ends every 30 s, and start and end are told in whole seconds.
SIGNAL_SLACK_S = 5.0
#: A controller looks every 30 s anyhow; a file that shows later than that delays what it decides.
SLOW_FILE_S = 10.0
#: Scratch holds what an image unpacks; nothing of the trainer.
SMALL_SCRATCH_BYTES = 2**30
#: Without these the trainer does not start.
TRAINER_NEEDS = ("torch", "numpy", "metaworld", "mujoco", "gymnasium", "safetensors")
#: A task's picture has more than a thousand; one that failed has one, or those of an empty sky.
FEWEST_COLOURS = 100


@dataclass(frozen=True)
class Probed:
    """A probe that was sent for a config, and what came of it."""

    config: RunConfig
    executor: str
    result: ProbeResult

    def told(self, *names: str) -> Report:
        """A part of the job's report, by the names that lead to it; empty where there is none."""
        found: Report = self.result.report
        for name in names:
            found = section(found, name)
        return found


def earliness_s(result: ProbeResult) -> float | None:
    """How long before the job's end the signal came; None where it did not, or the end is not known."""
    heard = section(result.report, "heard").get("SIGUSR2")
    end = section(result.report, "end").get("at")
    return float(end) - float(heard) if isinstance(heard, int | float) and isinstance(end, int | float) else None


def sbatch_works(report: Report) -> bool | None:
    """Whether a job can be submitted from the node; None where nobody looked. A full quota is no obstacle."""
    answer = section(section(report, "slurm"), "answers").get("sbatch")
    if not isinstance(answer, dict):
        return None
    if answer.get("code") == 0:
        return True
    outcome = read_submission(int(answer.get("code", 1)), "", str(answer.get("err", "")))
    return isinstance(outcome, SubmitRefused) and outcome.kind == "quota"


def _probe(probed: Probed) -> Judgements:
    result = probed.result
    if result.error:
        last = next((line for line in reversed(result.output.splitlines()) if line.strip()), "")
        found = result.error + (f"; its last words: {last}" if last else "")
        waited = "waited" in found
        return problem(found, "look at what it waited for" if waited else "correct what it names, and probe again")
    if not result.report:
        return None
    waits = f" after {format_duration(result.pending_s)} in the queue" if result.pending_s is not None else ""
    return ok(f"job {result.job_id} ran on {result.report.get('host', '?')}{waits}")


def _not_looked_at(look: str) -> Check[Probed]:
    def judge(probed: Probed) -> Judgements:
        words = probed.told("errors").get(look)
        return warning(f"could not be looked at: {words}") if words is not None else None

    return Check(f"node: {look}", judge)


def _end(probed: Probed) -> Judgements:
    end = probed.told("end")
    return ok(f"known from {end.get('how')}") if end else None


def _signal(probed: Probed) -> Judgements:
    result, early_s = probed.result, earliness_s(probed.result)
    asked = f"USR2, asked for {result.lead_s:.0f} s before the end,"
    if early_s is None:
        advice = "jobs hand over by the clock instead, which needs the node's clock to be right"
        return warning(f"{asked} never came", advice) if result.report.get("done") else None
    after_s = float(probed.told("heard")["SIGUSR2"]) - float(result.report.get("started_at", 0))
    found = f"{asked} came {early_s:.0f} s before it ({after_s:.0f} s after the start)"
    if early_s < result.lead_s - SIGNAL_SLACK_S:
        return warning(found, "raise lead_seconds by the difference")
    if early_s > result.lead_s + EARLY_SIGNAL_S + SIGNAL_SLACK_S:
        advice = f"more than the {EARLY_SIGNAL_S} s that Slurm announces: each job ends as much earlier"
        return warning(found, advice)
    return ok(found + (f"; Slurm may be {EARLY_SIGNAL_S} s early" if probed.executor == "slurm" else ""))


def _shared_files(probed: Probed) -> Judgements:
    delays_s = probed.result.visible_s
    if not probed.result.report:
        return None
    if not delays_s:
        found = "no file was answered from the node: it does not see the folder as this machine does, or was too short"
        return warning(found, "probe again")
    most_s = max(delays_s)
    found = f"a replaced file is seen and answered by the node within {most_s:.1f} s (worst of {len(delays_s)})"
    if most_s > SLOW_FILE_S:
        return warning(found, "the controller learns of ends that much later; nothing is decided by it")
    return ok(found)


def _nodes_clock(probed: Probed) -> Judgements:
    result = probed.result
    return clock_of("the node", result.skew_s) if result.report and result.visible_s else None


def _environment(probed: Probed) -> Judgements:
    leaks = probed.told("environment").get("leaks")
    advice = "they change what a job loads or asks; unset them in slurm.setup"
    return warning(f"set in the job: {', '.join(map(str, leaks))}", advice) if leaks else None


def _limits(probed: Probed) -> Judgements:
    limits = probed.told("limits")
    memory = limits.get("memory_bytes")
    words = f"{sized(memory)} of memory enforced" if memory else "no memory limit enforced"
    return ok(f"{limits.get('cpus')} CPUs, {words}") if limits else None


def _scratch(probed: Probed) -> Judgements:
    scratch = probed.told("scratch")
    if not scratch:
        return None
    free, kind = scratch.get("free_bytes") or 0, scratch.get("kind")
    found = f"{scratch.get('path')} ({kind or 'unknown kind'}), {sized(free)} free"
    if kind in MEMORY_KINDS:
        return warning(found, "it is memory, and counts against the job's: ask for more slurm.mem")
    if free < SMALL_SCRATCH_BYTES:
        advice = "an image may not find room; set TMPDIR in slurm.setup, or SLURM_TMPDIR where the site sets it"
        return warning(found, advice)
    return ok(found)


def _failover(probed: Probed) -> Judgements:
    works, queue = sbatch_works(probed.result.report), probed.told("slurm", "answers", "squeue")
    if works is None:
        return None
    if works and queue.get("code") == 0:
        return ok("sbatch and squeue work on the node: a job can run a failover tick")
    which = "squeue" if works else "sbatch"
    found = f"{which} does not work on the node ({probed.told('slurm', 'answers', which).get('err') or 'no word'})"
    if not probed.config.relay.failover_tick:
        return ok(found)
    advice = "set relay.failover_tick to false and keep a controller alive, or have a crontab run `orchestrator tick`"
    return warning(found, advice)


def _container(probed: Probed) -> Judgements:
    container = probed.told("container")
    if not container:
        return None
    if container.get("works"):
        return ok(f"entered in {container.get('seconds', 0):.1f} s")
    advice = "check container.image and container.runtime on the node"
    return problem(f"it cannot be entered: {container.get('words')}", advice)


def _program(probed: Probed) -> Judgements:
    program, packages = probed.told("program"), probed.told("program", "packages")
    if not program:
        return None
    missing = [name for name in TRAINER_NEEDS if not packages.get(name)]
    there = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    found = f"Python {program.get('python')}" + (f" with {there}" if there else "")
    if not missing or probed.config.command is not None:
        return ok(found)
    advice = f"{', '.join(missing)} missing there: in Anchorleg's checkout, run pip install '.[trainer]'"
    return problem(found, advice)


def _driver(probed: Probed) -> Judgements:
    gpu, wanted = probed.told("gpu"), probed.config.slurm.gpus
    rows = [row for row in gpu.get("devices") or [] if isinstance(row, dict)]
    advice = "check slurm.gpus and the partition"
    if rows:
        names = ", ".join(f"{row.get('name')} ({row.get('memory_mib')} MiB)" for row in rows)
        newest = f", which runs CUDA {gpu['cuda']} and older" if gpu.get("cuda") else ""
        found = f"{names}; driver {rows[0].get('driver')}{newest}"
        if len(rows) >= wanted:
            return ok(found)
        return warning(f"slurm.gpus asks for {wanted}, and the driver shows {len(rows)}: {found}", advice)
    if not gpu:
        return None
    if wanted and probed.executor == "slurm":
        return warning(f"slurm.gpus asks for {wanted}, and the driver shows none: {gpu.get('words')}", advice)
    return ok(f"no GPU: {gpu.get('words')}")


def _torch(probed: Probed) -> Judgements:
    cuda, wanted = probed.told("cuda"), probed.config.slurm.gpus
    inside = " in the container" if probed.told("container") else ""
    there = bool(probed.told("gpu").get("devices"))
    if not cuda:
        return None
    if cuda.get("available"):
        return _multiplied(cuda, inside)
    if not wanted or (probed.executor == "local" and not there):
        return ok(f"torch computes on the CPU{inside}")
    if not cuda.get("built_for"):
        why, where = "it is built without CUDA", "build the image" if inside else "install torch"
        advice = f"{where} with CUDA (docs/cluster.md), or set slurm.gpus to 0"
    else:
        why = f"it is built for CUDA {cuda['built_for']}; the driver {'shows a GPU' if there else 'shows none'}"
        advice = _why_unseen(probed) if there else "check slurm.gpus and the partition"
    found = f"slurm.gpus asks for {wanted}, and torch sees none{inside}: {why}"
    if probed.config.command is None:
        return problem(found, advice)
    return warning(found, f"of the Python that was asked; if your program uses it: {advice}")


def _multiplied(cuda: Report, inside: str) -> Judgement:
    devices = [one for one in cuda.get("devices") or [] if isinstance(one, dict)]
    names = ", ".join(f"{one.get('name')} ({sized(one.get('memory_bytes') or 0)})" for one in devices)
    found = f"torch (CUDA {cuda.get('built_for')}) sees {names}{inside}"
    if cuda.get("sum") == SIDE**3:
        return ok(f"{found}, and multiplies on it; loaded in {cuda.get('seconds', 0):.0f} s")
    advice = "leave this node out (slurm.exclude) and tell the site's admins"
    return problem(f"{found}, and computes wrongly there: {cuda.get('sum')} in place of {SIDE**3}", advice)


def _why_unseen(probed: Probed) -> str:
    """What to do where the driver shows a GPU and a torch with CUDA does not see it."""
    driver, container = probed.told("gpu").get("cuda"), probed.config.container
    if driver and _major(probed.told("cuda").get("built_for")) > _major(driver):
        return (
            f"this driver runs CUDA {driver} at most: choose a node with a newer driver, or a torch for CUDA {driver}"
        )
    if container is None:
        return "check CUDA_VISIBLE_DEVICES in slurm.setup, and `python -c 'import torch; torch.zeros(1).cuda()'` there"
    if container.runtime == "ch-run":
        return (
            "charliecloud brings the driver in once, into the image: `ch-fromhost --nvidia IMAGE` on a node with a GPU"
        )
    return f"`{container.runtime} exec --nv IMAGE nvidia-smi` on such a node says why"


def _major(version: object) -> int:
    head = str(version).partition(".")[0]
    return int(head) if head.isdigit() else 0


def _drawing(probed: Probed) -> Judgements:
    egl, osmesa = probed.told("drawing", "egl"), probed.told("drawing", "osmesa")
    if not probed.told("drawing"):
        return None
    if egl.get("works"):
        return ok("MuJoCo draws with EGL")
    if osmesa.get("works"):
        return ok(f"MuJoCo draws with OSMesa, on the CPU; EGL does not work ({egl.get('words') or 'no word'})")
    found = f"MuJoCo draws with neither EGL ({egl.get('words')}) nor OSMesa ({osmesa.get('words')})"
    return warning(found, "training does not need it; for films install libosmesa6 on the nodes or in the image")


def _tasks(probed: Probed) -> Judgements:
    tasks = probed.told("tasks")
    if not tasks:
        return None
    if not tasks.get("loaded"):
        # A program of one's own may bring another Meta-World, which ours does not fit.
        level = Level.PROBLEM if probed.config.command is None else Level.WARNING
        found = f"the tasks do not load: {tasks.get('words') or 'no word'}"
        return Judgement(level, found, "install the trainer's own versions there (constraints.txt)")
    named = f"{tasks['benchmark']} tasks" if tasks.get("benchmark") else "tasks"
    loaded, seconds = tasks["loaded"], tasks.get("seconds") or 0.0
    return ok(f"Meta-World {tasks.get('metaworld')}, {named}: {loaded}, loaded and stepped in {seconds:.0f} s")


def _rendered(probed: Probed) -> Judgements:
    tasks = probed.told("tasks")
    if not tasks.get("loaded") or not tasks.get("drawn"):
        return None
    colours, side = tasks.get("colours") or 0, tasks.get("pixels")
    found = f"{tasks['drawn']} drawn by {tasks.get('way')}, {side}x{side} pixels, {colours} colours"
    if colours < FEWEST_COLOURS:
        return warning(found, "the picture is blank: set MUJOCO_GL=osmesa in slurm.setup, for films")
    return ok(found)


CHECKS: tuple[Check[Probed], ...] = (
    Check("probe", _probe),
    *map(_not_looked_at, LOOKS),
    Check("job's end", _end),
    Check("signal", _signal),
    Check("shared files", _shared_files),
    Check("node's clock", _nodes_clock),
    Check("environment", _environment),
    Check("node's limits", _limits),
    Check("scratch", _scratch),
    Check("failover", _failover),
    Check("container", _container),
    Check("program", _program),
    Check("driver", _driver),
    Check("GPU", _torch),
    Check("drawing", _drawing),
    Check("tasks", _tasks),
    Check("rendered task", _rendered),
)
