"""The GPUs of this machine, and which of them a slot's local jobs get. Slurm does this itself.

Counted by `nvidia-smi -L`: it comes with the driver, and it shows what this process may use (in a container that was
given two of eight, those two). Where it is missing or hangs, by the driver's folders in `/proc`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchorleg.words import counted

#: Without the driver's persistence mode the first answer takes seconds; a driver that needs longer hangs.
QUESTION_TIMEOUT_S = 20.0
#: A folder for each GPU, named by its place on the bus.
DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")

_GPU = re.compile(r"GPU (\d+): ")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def visible_gpus(env: Mapping[str, str], folder: Path = DRIVER_FOLDER) -> tuple[str, ...]:
    """What jobs with the environment `env` may use, as CUDA_VISIBLE_DEVICES names it; empty where there is none.

    A CUDA_VISIBLE_DEVICES in `env` is taken at its word: it names all of them, in its order.
    """
    if (stated := env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return stated_gpus(stated)
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=QUESTION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        try:
            return tuple(str(index) for index, _ in enumerate(folder.iterdir()))
        except OSError:
            return ()
    return listed_gpus(answer.stdout)


def stated_gpus(text: str) -> tuple[str, ...]:
    """What a CUDA_VISIBLE_DEVICES names. As CUDA reads it, nothing counts from the first name that can be none on."""
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return tuple(dict.fromkeys(names))


def listed_gpus(text: str) -> tuple[str, ...]:
    """What `nvidia-smi -L` lists: a GPU by its number, the parts of a divided one (MIG) by their names."""
    found: list[str] = []
    whole = ""
    for line in text.splitlines():
        if match := _GPU.match(line):
            whole = match[1]
            found.append(whole)
        elif match := _MIG.match(line):
            if found and found[-1] == whole:
                found.pop()
            found.append(match[1])
    return tuple(found)


def gpus_of_slot(
    there: Sequence[str], slot: int, wanted: int, carried: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Those of `there` for one slot, `wanted` for each: the same ones for each of its jobs, unless others `carried`
    (GPU → jobs of other slots) fewer. Round robin, so that slots share only where there are too few, and then each GPU
    carries as many as any other, or one more.
    """
    count, load = min(wanted, len(there)), carried or {}
    own = tuple(there[(slot * count + place) % len(there)] for place in range(count))
    best = sorted(there, key=lambda gpu: (load.get(gpu, 0), gpu not in own))[:count]
    return own if set(best) == set(own) else tuple(best)


def gpu_environment(
    there: Sequence[str], slot: int, wanted: int, env: Mapping[str, str], carried: Mapping[str, int] | None = None
) -> dict[str, str]:
    """What shows a slot's job its GPUs and no other; empty where the machine has none, and nothing is to be said.

    Numbers count as nvidia-smi counts, which is not CUDA's own order. Somebody who states which devices are visible
    means them in the order that their environment says.
    """
    if not there:
        return {}
    order = {} if "CUDA_VISIBLE_DEVICES" in env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**order, "CUDA_VISIBLE_DEVICES": ",".join(gpus_of_slot(there, slot, wanted, carried))}


def sharing(there: Sequence[str], slots: int, places: int, wanted: int) -> str:
    """What a person should know of slots that share GPUs, in one sentence, what to do behind the semicolon; empty where
    none do. `places`: so many of the slots run at once.
    """
    if not there or not wanted:
        return ""
    count = len(there)
    here = counted(count, "GPU")
    if wanted > count:
        every = f" of the {slots} slots" if slots > 1 else ""
        return (
            f"slurm.gpus asks for {wanted}, and this machine has {here}: each{every} gets no more; set it to {count}."
        )
    if places * wanted <= count:
        return ""
    are_all = places == slots
    who = f"{places} slots" + ("" if are_all else " at a time") + ("" if wanted == 1 else f" of {wanted} GPUs each")
    alone = count // wanted
    fitting = "1 slot would not have to" if alone == 1 else f"with {alone} slots each has its own"
    fitting = fitting if are_all else f"with slurm.max_jobs at {alone} none has to"
    return (
        f"{who} share {here} of this machine: each trains more slowly, and a GPU's memory must hold all slots on it; "
        f"{fitting}."
    )
