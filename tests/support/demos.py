"""Films of spots, demonstrations of them, and what an episode of the world `spots` is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
from spots import Spots, SpotSettings

from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.demos import recording
from trainer.demos.store import Demos

#: Pixels a side.
SIZE = 32


def silent(*_: Any) -> None:
    pass


def settings(**more: Any) -> SpotSettings:
    return SpotSettings.model_validate({"name": "spots:Spots", "observation": "both", "image_size": SIZE, **more})


def training(network: dict[str, Any] | None = None, seed: int = 0, **env: Any) -> Training:
    """Of spots, by a small encoder."""
    value = {"name": "spots:Spots", "observation": "both", "image_size": SIZE, **env}
    nets = {"encoder": {"arch": "spots:Eye"}, "actor_hidden": [32], **(network or {})}
    return resolve(TrainingSection.model_validate({"env": value, "network": nets, "algorithm": "sac", "seed": seed}))


def episode(seed: int, frames: int = 12) -> Any:
    """[F, 3, SIZE, SIZE] of a hand that goes to its goal."""
    world = Spots(settings(), 0, None)
    env, script = world.make(0), world.script(0)
    env.reset(0, seed)
    drawn = []
    for _ in range(frames):
        drawn.append(env.picture("above"))
        env.step(0.3 * script(env.places))
    return np.stack(drawn)


def film(path: Path, frames: Any, fps: float = 10, *, seekable: bool = False) -> Path:
    """An mp4 of [F, 3, H, W], nearly as it is: `moov` at its beginning, so that it can be cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = frames.shape[2:]
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        coder = container.add_stream("libx264", rate=fps, options={"crf": "5", **({"g": "2"} if seekable else {})})
        coder.width, coder.height, coder.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            pixels = np.ascontiguousarray(frame.transpose(1, 2, 0))
            container.mux(coder.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(coder.encode())
    return path


def recorded(out: Path, episodes: int = 12, seed: int = 0, **more: Any) -> Demos:
    """By the scripted policy."""
    teacher = recording.scripted(settings(**more), (), None, seed)
    return recording.record(teacher, None, episodes, seed, out, silent, silent)


def all_of(demos: Demos) -> list[tuple[Any, dict[str, Any]]]:
    """Every episode with copies of its arrays."""
    return [(told, {name: array.copy() for name, array in arrays.items()}) for told, arrays in demos.read()]
