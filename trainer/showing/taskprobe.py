"""`python -m trainer.showing.taskprobe TASK...`: load each task, make a step in it, and draw the first one.

Prints one JSON object: `benchmark` (MT10, MT50 or empty), `loaded` (how many tasks), `metaworld`, and unless MUJOCO_GL
is "disable": `drawn` (the task), `pixels` (a side) and `colours` (how many different ones; a blank picture has one).
A task that does not load ends it with upstream's own words.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

#: Enough for the arm to be seen, and drawn on a CPU within a tenth of a second.
SIDE = 128
CAMERA = "corner2"
SEED = 0


def main(tasks: list[str]) -> int:
    """Exit code 0 where all tasks load and, unless that is disabled, one can be drawn."""
    import numpy as np

    from trainer.config.suites import BENCHMARKS
    from trainer.envs.suites.metaworld.env import TaskEnv
    from trainer.envs.suites.metaworld.goals import goal_table
    from trainer.showing.play import Camera

    found: dict[str, Any] = {
        "metaworld": version("metaworld"),
        "benchmark": next((name for name, members in BENCHMARKS.items() if members == tuple(tasks)), ""),
        "loaded": 0,
    }
    first = None
    for task in tasks:
        env = TaskEnv(task)
        env.reset(goal_table(task, SEED)[0])
        observation, reward, _, _ = env.step(np.zeros(4, dtype=np.float32))
        if not (np.isfinite(observation).all() and np.isfinite(reward)):
            raise ValueError(f"{task}: its first step has numbers that are not finite")
        found["loaded"] += 1
        first = first or env
    if first is not None and os.environ.get("MUJOCO_GL") != "disable":
        camera = Camera(first.simulation, CAMERA, SIDE)
        picture = camera.picture()
        camera.close()
        colours = len(np.unique(picture.reshape(-1, 3), axis=0))
        found |= {"drawn": first.task, "pixels": SIDE, "colours": colours}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
