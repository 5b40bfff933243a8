"""Judges what a job's program finds on its node: container, packages, GPU, drawing, tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from anchorleg.findings import Finding, Level
from anchorleg.words import sized
from orchestrator.config import RunConfig
from orchestrator.doctor.facts import Report, section
from orchestrator.doctor.probe import SIDE

#: Without these the trainer does not start.
TRAINER_NEEDS = ("torch", "numpy", "metaworld", "mujoco", "gymnasium", "safetensors")
#: A task's picture has more than a thousand; one that failed has one, or those of an empty sky.
FEWEST_COLOURS = 100


def program_findings(config: RunConfig, executor: str, report: Report) -> Iterator[Finding]:
    """In the order in which they are shown."""
    yield from _program(config, report)
    yield from _driver(config, executor, report)
    yield from _torch(config, executor, report)
    yield from _drawing(report)
    yield from _tasks(config, report)


def _program(config: RunConfig, report: Report) -> Iterator[Finding]:
    container = section(report, "container")
    if container:
        if container.get("works"):
            found = f"entered in {container.get('seconds', 0):.1f} s"
            yield Finding(check="container", level=Level.OK, found=found)
        else:
            found = f"it cannot be entered: {container.get('words')}"
            advice = "check container.image and container.runtime on the node"
            yield Finding(check="container", level=Level.PROBLEM, found=found, advice=advice)
    program = section(report, "program")
    if not program:
        return
    packages = section(program, "packages")
    missing = [name for name in TRAINER_NEEDS if not packages.get(name)]
    there = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    found = f"Python {program.get('python')}" + (f" with {there}" if there else "")
    if missing and config.command is None:
        advice = f"{', '.join(missing)} missing there: in Anchorleg's checkout, run pip install '.[trainer]'"
        yield Finding(check="program", level=Level.PROBLEM, found=found, advice=advice)
    else:
        yield Finding(check="program", level=Level.OK, found=found)


def _torch(config: RunConfig, executor: str, report: Report) -> Iterator[Finding]:
    cuda = section(report, "cuda")
    if not cuda:
        return
    inside = " in the container" if section(report, "container") else ""
    if cuda.get("available"):
        found = f"torch (CUDA {cuda.get('built_for')}) sees {_torch_devices(cuda)}{inside}"
        if cuda.get("sum") == SIDE**3:
            found += f", and multiplies on it; loaded in {cuda.get('seconds', 0):.0f} s"
            yield Finding(check="GPU", level=Level.OK, found=found)
        else:
            found += f", and computes wrongly there: {cuda.get('sum')} in place of {SIDE**3}"
            advice = "leave this node out (slurm.exclude) and tell the site's admins"
            yield Finding(check="GPU", level=Level.PROBLEM, found=found, advice=advice)
        return
    there = bool(section(report, "gpu").get("devices"))
    if not config.slurm.gpus or (executor == "local" and not there):
        yield Finding(check="GPU", level=Level.OK, found=f"torch computes on the CPU{inside}")
        return
    if cuda.get("built_for"):
        why = f"it is built for CUDA {cuda['built_for']}; the driver {'shows a GPU' if there else 'shows none'}"
        advice = _why_unseen(config, report) if there else "check slurm.gpus and the partition"
    else:
        why = "it is built without CUDA"
        where = "build the image" if inside else "install torch"
        advice = f"{where} with CUDA (docs/cluster.md), or set slurm.gpus to 0"
    found = f"slurm.gpus asks for {config.slurm.gpus}, and torch sees none{inside}: {why}"
    if config.command is None:
        yield Finding(check="GPU", level=Level.PROBLEM, found=found, advice=advice)
    else:
        advice = f"of the Python that was asked; if your program uses it: {advice}"
        yield Finding(check="GPU", level=Level.WARNING, found=found, advice=advice)


def _why_unseen(config: RunConfig, report: Report) -> str:
    """What to do where the driver shows a GPU and a torch with CUDA does not see it."""
    driver, built = section(report, "gpu").get("cuda"), section(report, "cuda").get("built_for")
    if driver and _major(str(built)) > _major(str(driver)):
        return (
            f"this driver runs CUDA {driver} at most: choose a node with a newer driver, or a torch for CUDA {driver}"
        )
    if config.container is None:
        return "check CUDA_VISIBLE_DEVICES in slurm.setup, and `python -c 'import torch; torch.zeros(1).cuda()'` there"
    if config.container.runtime == "ch-run":
        return (
            "charliecloud brings the driver in once, into the image: `ch-fromhost --nvidia IMAGE` on a node with a GPU"
        )
    return f"`{config.container.runtime} exec --nv IMAGE nvidia-smi` on such a node says why"


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _torch_devices(cuda: Report) -> str:
    devices = [one for one in cuda.get("devices") or [] if isinstance(one, dict)]
    return ", ".join(f"{one.get('name')} ({sized(one.get('memory_bytes') or 0)})" for one in devices)


def _driver(config: RunConfig, executor: str, report: Report) -> Iterator[Finding]:
    gpu = section(report, "gpu")
    rows = [row for row in gpu.get("devices") or [] if isinstance(row, dict)]
    wanted = config.slurm.gpus
    if rows:
        names = ", ".join(f"{row.get('name')} ({row.get('memory_mib')} MiB)" for row in rows)
        newest = f", which runs CUDA {gpu['cuda']} and older" if gpu.get("cuda") else ""
        found = f"{names}; driver {rows[0].get('driver')}{newest}"
        if len(rows) < wanted:
            advice = "check slurm.gpus and the partition"
            found = f"slurm.gpus asks for {wanted}, and the driver shows {len(rows)}: {found}"
            yield Finding(check="driver", level=Level.WARNING, found=found, advice=advice)
        else:
            yield Finding(check="driver", level=Level.OK, found=found)
    elif wanted and gpu and executor == "slurm":
        found = f"slurm.gpus asks for {wanted}, and the driver shows none: {gpu.get('words')}"
        advice = "check slurm.gpus and the partition"
        yield Finding(check="driver", level=Level.WARNING, found=found, advice=advice)
    elif gpu:
        yield Finding(check="driver", level=Level.OK, found=f"no GPU: {gpu.get('words')}")


def _drawing(report: Report) -> Iterator[Finding]:
    tried = section(report, "drawing")
    if not tried:
        return
    egl, osmesa = section(tried, "egl"), section(tried, "osmesa")
    if egl.get("works"):
        yield Finding(check="drawing", level=Level.OK, found="MuJoCo draws with EGL")
    elif osmesa.get("works"):
        found = f"MuJoCo draws with OSMesa, on the CPU; EGL does not work ({egl.get('words') or 'no word'})"
        yield Finding(check="drawing", level=Level.OK, found=found)
    else:
        found = f"MuJoCo draws with neither EGL ({egl.get('words')}) nor OSMesa ({osmesa.get('words')})"
        advice = "training does not need it; for films install libosmesa6 on the nodes or in the image"
        yield Finding(check="drawing", level=Level.WARNING, found=found, advice=advice)


def _tasks(config: RunConfig, report: Report) -> Iterator[Finding]:
    tasks = section(report, "tasks")
    if not tasks:
        return
    if not tasks.get("loaded"):
        # A program of one's own may bring another Meta-World, which ours does not fit.
        level = Level.PROBLEM if config.command is None else Level.WARNING
        found = f"the tasks do not load: {tasks.get('words') or 'no word'}"
        advice = "install the trainer's own versions there (constraints.txt)"
        yield Finding(check="tasks", level=level, found=found, advice=advice)
        return
    named = f"{tasks['benchmark']} tasks" if tasks.get("benchmark") else "tasks"
    seconds = tasks.get("seconds") or 0.0
    found = f"Meta-World {tasks.get('metaworld')}, {named}: {tasks['loaded']}, loaded and stepped in {seconds:.0f} s"
    yield Finding(check="tasks", level=Level.OK, found=found)
    if not tasks.get("drawn"):
        return
    colours = tasks.get("colours") or 0
    side = tasks.get("pixels")
    found = f"{tasks['drawn']} drawn by {tasks.get('way')}, {side}x{side} pixels, {colours} colours"
    if colours < FEWEST_COLOURS:
        advice = "the picture is blank: set MUJOCO_GL=osmesa in slurm.setup, for films"
        yield Finding(check="rendered task", level=Level.WARNING, found=found, advice=advice)
    else:
        yield Finding(check="rendered task", level=Level.OK, found=found)
