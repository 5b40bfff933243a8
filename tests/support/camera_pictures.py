"""Makes the pictures of docs/cameras.md and says in how many episodes each camera sees the goal at the beginning.

`python tests/support/camera_pictures.py`: writes docs/images/cameras-*.png, prints a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.config.suites import MT10, Arm, Metaworld
from trainer.envs.cameras import GOAL_COLOUR
from trainer.envs.spaces import IMAGE
from trainer.envs.suite import SuiteRef
from trainer.envs.suites.arm.draws import CAMERAS
from trainer.machine import drawing

FOLDER = Path(__file__).parents[2] / "docs" / "images"
EPISODES = 50
#: Of a picture in the docs, a side.
SHOWN = 128


def seen_by(settings: Arm | Metaworld, episodes: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """(task, the pictures [H, W, 3] of each camera) at the beginning of each episode."""
    suite = SuiteRef(settings).open()
    for task, name in enumerate(suite.spaces.tasks):
        env = suite.make(task)
        for number in range(episodes):
            frame = env.reset(number, number)[IMAGE]
            yield name, [np.ascontiguousarray(one.transpose(1, 2, 0)) for one in np.split(frame, len(frame) // 3)]


def row_of(pictures: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([one.repeat(SHOWN // len(one), 0).repeat(SHOWN // len(one), 1) for one in pictures], 1)


def shows_green(picture: np.ndarray) -> bool:
    """The arm's goal, of which nothing else has the colour."""
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    return bool(((green > 2 * red) & (green > 2 * blue)).any())


def shows_ball(picture: np.ndarray) -> bool:
    """Meta-World's goal, as `GOAL_COLOUR` is lit."""
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    assert GOAL_COLOUR[0] > GOAL_COLOUR[2] > GOAL_COLOUR[1]
    return bool(((red > 3 * green) & (blue > 2 * green) & (red > 70)).any())


def main() -> None:
    drawing.prepare()
    for size in (64, 32):
        settings = Arm(observation="both", image_size=size)
        found = [pictures for _, pictures in seen_by(settings, EPISODES)]
        Image.fromarray(np.concatenate([row_of(one) for one in found[:2]])).save(FOLDER / f"cameras-arm-{size}.png")
        for place, camera in enumerate(CAMERAS):
            print(f"arm, {size} pixels, {camera}: {sum(shows_green(one[place]) for one in found)} of {EPISODES}")
    views = Arm(observation="both", randomize_view=True)
    rows = [row_of(pictures) for _, pictures in seen_by(views, 2)]
    Image.fromarray(np.concatenate(rows)).save(FOLDER / "cameras-arm-views.png")
    cameras = Metaworld.KNOWN_CAMERAS
    settings = Metaworld(tasks=MT10, observation="both", cameras=cameras)
    rows, seen = [], np.zeros((len(MT10), len(cameras)), int)
    for number, (task, pictures) in enumerate(seen_by(settings, EPISODES)):
        seen[MT10.index(task)] += [shows_ball(one) for one in pictures]
        if number % EPISODES == 0 and task in {"reach-v3", "drawer-open-v3", "window-open-v3"}:
            rows.append(row_of(pictures))
    Image.fromarray(np.concatenate(rows)).save(FOLDER / "cameras-metaworld.png", optimize=True)
    print("| task |", " | ".join(cameras), "|")
    for task, counts in zip(MT10, seen, strict=True):
        print(f"| {task} |", " | ".join(map(str, counts)), "|")


if __name__ == "__main__":
    main()
