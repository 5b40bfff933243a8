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
from trainer.machine.group import Group
from trainer.machine.launching import LOOPBACK, RankPlace


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
    """The last one is killed."""
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return group.gathered(torch.zeros(1, 1)).tolist()


def played(scene: str, folder: Path, rank: int, size: int) -> Any:
    """What one rank came to."""
    group = Group.join(RankPlace(rank, size, rank, size, LOOPBACK), folder)
    try:
        return globals()[scene](group)
    except TrainerError as error:
        group.fault(error, error.exit_code)
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
    for child in children:
        os.waitpid(child, 0)
    found = [folder / f"{rank}.json" for rank in range(size)]
    return [json.loads(path.read_text()) if path.exists() else None for path in found]


if __name__ == "__main__":
    where, ranks = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({scene: all_played(scene, where / scene, ranks) for scene in sys.argv[3:]}))
