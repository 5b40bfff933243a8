"""What the shim does beside its loop: when the job ends, whether it may begin, the program's command line inside its
image, what was given to it, and what stays of its checkpoints. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none, remove_folder
from anchorleg.job import HANDED_OVER, Job, attempt_numbers, candidates_before, checkpoints_of, passed_over

#: A site's prolog and the script's own setup come between the job's start and ours. What is more, or before the start,
#: is another clock; should it be a prolog after all, Slurm's own signal still comes in time.
LATEST_START_S = 600.0
CLOCK_SLACK_S = 60.0
#: Names beside checkpoints that nobody takes for one: of a save that is under way or was cut short, TensorBoard's.
_NOT_MEANT = re.compile(r"^(?:\.|tmp|events\.out\.)|[^a-z]tmp(?![a-z])|\.part(?:ial)?$|unfinished", re.IGNORECASE)


def end_of_job(environ: dict[str, str], started_at: float, limit_s: float) -> float:
    """Unix seconds, on this node's clock, at which the job will be killed: what the scheduler says (Slurm does from
    23.02 on), else start + limit. A node whose clock is hours ahead would take the scheduler's time for past, and hand
    over at once, job after job.
    """
    if environ.get("ANCHORLEG_END_TIME", "").isdigit():
        return float(environ["ANCHORLEG_END_TIME"])
    start, end = environ.get("SLURM_JOB_START_TIME", ""), environ.get("SLURM_JOB_END_TIME", "")
    if not end.isdigit():
        return started_at + limit_s
    if start.isdigit() and not -CLOCK_SLACK_S <= started_at - float(start) <= LATEST_START_S:
        return started_at + float(end) - float(start)
    return float(end)


def misnamed(folder: Path) -> str:
    """A finished name in `folder` that holds a step and is none: no next job finds it; empty: none. Errors: OSError."""
    names = (name for name in sorted(os.listdir(folder)) if name.isprintable() and not _NOT_MEANT.search(name))
    return next((name for name in names if not name.isdigit() and any(letter.isdigit() for letter in name)), "")


def oom_kills(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processes the kernel has killed for memory in this process's control group, or in its Slurm job's; 0
    where nobody counts. A program that dies of it leaves no word, and slurmstepd's own comes after the job's record.

    Source: the kernel's admin-guide/cgroup-v2.rst (`memory.events`) and cgroup-v1/memory.rst (`memory.oom_control`).
    """
    try:
        lines = [line.split(":", 2) for line in proc.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        return 0
    paths = []
    for _, controllers, group in lines:
        own = Path(group.lstrip("/"))
        for here in (own, *(above for above in own.parents if above.name.startswith("job_"))):
            if controllers == "":
                paths += [mount / here / "memory.events", mount / "unified" / here / "memory.events"]
            elif "memory" in controllers.split(","):
                paths.append(mount / "memory" / here / "memory.oom_control")
    return max((_count(path) for path in paths), default=0)


def _count(path: Path) -> int:
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
        return int(fields.get("oom_kill", "0"))
    except (OSError, ValueError):
        return 0


def given(command: Sequence[str], settings: Any) -> str:
    """16 hex digits of the words of the command line and of what ANCHORLEG_CONFIG holds (JSON values)."""
    text = json.dumps([list(command), settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


#: In the job's own control group, so that Slurm's limits hold, and its end ends the container too.
_PODMAN = ("--rm", "--cgroups=disabled", "--network=host", "--ipc=host", "--security-opt=label=disable")
#: Of a job's environment podman passes on nothing by itself.
_PASSED_ON = ("ANCHORLEG_", "SLURM_", "WANDB_", "PYTHON", "OMP_", "CUDA_")


def container_command(container: dict[str, Any], command: list[str], binds: list[str], folder: str) -> list[str]:
    """The program's command line inside its image. `binds`: folders that must be visible at the same path."""
    every = list(dict.fromkeys([*binds, *container["binds"]]))
    whole = [bind if ":" in bind else f"{bind}:{bind}" for bind in every]
    runtime, image, more = container["runtime"], container["image"], container["options"]
    if runtime == "ch-run":
        begin = ["ch-run", "--write", f"--cd={folder}", *(f"--bind={bind}" for bind in every)]
        return [*begin, *more, image, "--", *command]
    if runtime == "pyxis":
        begin = ["srun", "--ntasks=1", f"--cpus-per-task={container['cpus']}", "--export=ALL"]
        begin += [f"--container-image={image}", f"--container-mounts={','.join(whole)}"]
        return [*begin, f"--container-workdir={folder}", "--no-container-mount-home", *more, *command]
    if runtime == "podman":
        begin = ["podman", "run", *_PODMAN, *(f"--env={name}*" for name in _PASSED_ON)]
        begin += [f"--volume={bind}" for bind in whole]
        begin += ["--device=nvidia.com/gpu=all"] if container["gpus"] else []
        root = ["--rootfs"] if image.startswith("/") else []
        return [*begin, f"--workdir={folder}", *more, *root, image, *command]
    begin = [runtime, "exec", *(["--nv"] if container["gpus"] else []), "--pwd", folder]
    return [*begin, *(word for bind in every for word in ("--bind", bind)), *more, image, *command]


#: As `orchestrator.decisions.sightings.HEARTBEAT_SILENT_S` has it.
SILENT_S = 120.0
LOOK_S = 1.0
#: A network folder may show one beat late, of a job that has ended since.
BEATS_OF_LIFE = 2


def why_not_behind(
    folder: Path,
    is_asked: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> str | None:
    """Why the job that was queued behind an attempt (of that folder) must not run; None: it may. `is_asked`: whether it
    was told to end meanwhile.

    The slot may have been held (`slots/<k>/hold`, written by the controller), or the attempt may have ended otherwise
    than by a hand-over, or be at work: that Slurm has started this job proves nothing (an administrator may have taken
    the dependency off). So while the attempt is claimed and has not said how it ended, its heart is watched, for as
    long as the controller would.
    """
    beat, beats, since = _record(folder / "heartbeat.json").get("beat"), 0, monotonic()
    while True:
        if (folder.parents[1] / "hold").exists():
            return "the slot is held"
        ended = _record(folder / "exit.json")
        if ended and ended["code"] != HANDED_OVER:
            return f"the job before it ended with {ended['code']}"
        if ended.get("terminated"):
            return "the job before it got a SIGTERM from an unknown sender"
        if ended or not (folder / "claim").exists() or monotonic() - since >= SILENT_S:
            return None
        if is_asked():
            return "it got a SIGTERM"
        if (newest := _record(folder / "heartbeat.json").get("beat")) != beat:
            beat, beats, since = newest, beats + 1, monotonic()
        if beats >= BEATS_OF_LIFE:
            return "the job before it is still active"
        sleep(LOOK_S)


def _record(path: Path) -> dict[str, Any]:
    value = read_json_or_none(path)
    return value if isinstance(value, dict) else {}


#: An older attempt without a record of its end is over when its last sign is so much older than our own: by the clock
#: of the files alone, since nodes' clocks differ. A shim beats every 30 s.
OVER_S = 600.0
#: What a removal (`files.remove_folder`) or a publication (`Job.save_checkpoint`) leaves that was cut short.
_REMNANT = re.compile(r"\.\d+\.(deleted|unfinished)")


def tidy(job: Job, keep: int, say: Callable[[str], None], remove: Callable[[Path], None] = remove_folder) -> None:
    """Remove what is too much in the slot of `job`, whose attempt is claimed and whose program does not run. It looks
    before every removal: where a higher attempt has been claimed, all stays. Raises nothing of the disk's.
    """
    try:
        for path in list(surplus(job, keep)):
            if job.superseded_by() is not None:
                return
            try:
                remove(path)
            except OSError as error:
                say(f"could not remove {path} ({error.strerror or error}); the next job tries again")
    except (OSError, ValueError, KeyError) as error:
        say(f"could not look for old checkpoints ({error}); the next job tries again")


def surplus(job: Job, keep: int) -> Iterator[Path]:
    """Checkpoints that are too many in the slot of `job`, which is its newest attempt: what was cut short, then what no
    successor could start from, then the oldest of what it could. What attempts have that may be alive stays.

    While there are fewer than `keep` to start from, what is no candidate stays: a program may have found it damaged,
    and a person might mend it. So do as many that a decision to go back passes over which can still be taken back.
    """
    over = [number for number in attempt_numbers(job.slot_dir) if number == job.attempt or _is_over(job, number)]
    line = list(candidates_before(job.slot_dir, job.attempt + 1))
    staying = {ref.path for ref in (*line, *passed_over(job.slot_dir, job.attempt)[:keep])}
    for number in over:
        folder = job.slot_dir / "attempts" / str(number) / "checkpoints"
        with suppress(FileNotFoundError):
            yield from [folder / name for name in sorted(os.listdir(folder)) if _REMNANT.fullmatch(name)]
    for number in over if len(line) >= keep else ():
        yield from (ref.path for ref in checkpoints_of(job.slot_dir, number) if ref.path not in staying)
    yield from (ref.path for ref in line[keep:][::-1] if ref.attempt in over)


def _is_over(job: Job, number: int) -> bool:
    """Whether an older attempt has ended: by its own record, or by its silence."""
    folder = job.slot_dir / "attempts" / str(number)
    if number > job.attempt:
        return False
    return (folder / "exit.json").exists() or _last_sign(job.attempt_dir) - _last_sign(folder) > OVER_S


def _last_sign(folder: Path) -> float:
    found = [0.0]
    for name in ("claim", "heartbeat.json", "progress.json"):  # what an attempt's shim and its program write
        with suppress(FileNotFoundError):
            found.append(os.stat(folder / name).st_mtime)
    return max(found)
