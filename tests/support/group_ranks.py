"""`python group_ranks.py FOLDER SIZE SCENE …`: so many ranks meet, and play the scenes below one after the other.

Prints a JSON object, of each scene a list: what each rank came to, an error as [its class, its exit code, its words];
null where it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from trainer.errors import EnvironmentFailedError, TrainerError
from trainer.machine import group as group_module
from trainer.machine.group import MEETING, Group
from trainer.machine.launching import LOOPBACK, RankPlace

FOLDER = Path(sys.argv[1])
#: TCP_LISTEN of the kernel.
LISTENS = "0A"


def exchange(group: Group) -> dict[str, Any]:
    """Everything that ranks tell each other, of which some is large and some is empty."""
    rows = torch.tensor([[group.rank * 2, 1], [group.rank * 2 + 1, 1]], dtype=torch.float64)
    return {
        "own": list(group.own(2 * group.size)),
        "gathered": group.gathered(rows)[:, 0].tolist(),
        "told": group.tell(group.rank + 5),
        "shared": group.share(f"from {group.rank}".encode()).decode(),
        "collected": [len(data) for data in group.collect(b"x" * 100_000 * group.rank)],
        "agreed": group.must_agree("nothing", b"same"),
    }


def differ(group: Group) -> None:
    """Two of three have other bits."""
    group.must_agree("the parameters", b"ab"[:1] if group.rank == 0 else b"b")


def fail(group: Group) -> list[float]:
    """The last one has something to say, and ends."""
    if group.rank == group.size - 1:
        raise EnvironmentFailedError("environment 3 (reach-v3) failed")
    return group.gathered(torch.zeros(1, 1)).tolist()


def die(group: Group) -> list[float]:
    """The last one is killed, once all have met."""
    group.tell()
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return group.gathered(torch.zeros(1, 1)).tolist()


def listen(group: Group) -> list[str]:
    """On which addresses of this machine the store's port is listened for, and who may read where it is."""
    found = json.loads((FOLDER / "listen" / MEETING).read_text())
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    mode = (FOLDER / "listen" / MEETING).stat().st_mode & 0o777
    addresses = [line[1] for line in lines if line[3] == LISTENS and line[1].endswith(f":{found['port']:04X}")]
    group.tell()
    return [*addresses, f"{mode:o}"]


def freeze(group: Group) -> list[float] | None:
    """Rank 0, whose process has the store, is stopped, until the others have given up."""
    if group.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    return group.gathered(torch.zeros(1, 1)).tolist()


def played(scene: str, folder: Path, rank: int, size: int) -> Any:
    """What one rank came to."""
    if scene == "freeze":
        group_module.ANSWER_S = 10.0
    group = Group.join(RankPlace(rank, size, rank, size, LOOPBACK), folder)
    try:
        return globals()[scene](group)
    except TrainerError as error:
        return [type(error).__name__, error.exit_code, str(error)]
    finally:
        group.close()


def all_played(scene: str, folder: Path, size: int) -> list[Any]:
    """What each rank came to, a process of its own."""
    folder.mkdir()
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            (folder / f"{rank}.json").write_text(json.dumps(played(scene, folder, rank, size)))
            os._exit(0)
        children.append(child)
    for child in reversed(children):
        os.waitpid(child, 0)
        if scene == "freeze" and child == children[1]:
            os.kill(children[0], signal.SIGCONT)
    found = [folder / f"{rank}.json" for rank in range(size)]
    return [json.loads(path.read_text()) if path.exists() else None for path in found]


if __name__ == "__main__":
    where, ranks = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({scene: all_played(scene, where / scene, ranks) for scene in sys.argv[3:]}))
