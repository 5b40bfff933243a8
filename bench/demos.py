"""What demonstrations teach an encoder: how well frozen features tell where goal and hand are, how far it is between
them, and what is to be done.

`python bench/demos.py [--episodes N] [--seeds N]`: the scripted policy of the arm is recorded through three
cameras, on goals near the hand. One encoder (`nature`) learns by imitation (`cloning`), another learns nothing. Then a
ridge regression reads the goal's place, the hand's place, the way that is left (where it is a centimetre or more: for
most of an episode the hand rests at its goal) and the script's action from the features of frames of other episodes,
and is asked of frames of yet others: R², over seeds of the nets. Writes demos.csv.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import figures
import numpy as np
import torch

from anchorleg.job import Job
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.demos import fitting, recording
from trainer.demos.store import ACTION, Demos
from trainer.envs.spaces import IMAGE, PRIVILEGED
from trainer.envs.suite import spaces_of
from trainer.evaluation.playable import of_checkpoint
from trainer.nets.encoders.base import encoder_for
from trainer.training.begin import run
from trainer.training.features.progress import Silent

ENV = {"name": "arm", "observation": "both", "goals": "box", "horizon": 40}
#: Where hand and goal stand in the whole state.
PLACES = {"hand": slice(14, 17), "goal": slice(17, 20)}
TOLD = (*PLACES, "way", "action")
#: Metres from the goal: nearer than this the hand has arrived.
ARRIVED = 0.01
#: Of the ridge regression, of standardised features: that which does best on the last third of what is known.
PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5)
#: So few episodes are soon known by heart: what is held out is at its best by then.
STEPS = {"untaught": 0, "by actions": 1500}


def training(seed: int) -> Training:
    value = {"env": ENV, "network": {"encoder": {"arch": "nature"}}, "algorithm": "sac", "seed": seed, "device": "cpu"}
    return resolve(TrainingSection.model_validate(value))


def recorded(folder: Path, episodes: int, seed: int) -> Demos:
    teacher = recording.scripted(training(0).env, (), None, seed)
    return recording.record(teacher, None, episodes, seed, folder, lambda *_: None, print)


@torch.no_grad()
def features(encoder: torch.nn.Module, demos: Demos) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """[N, F] of all frames in which was acted, and [N, n] of what is looked for, by name."""
    found, states, actions = [], [], []
    for told, arrays in demos.read():
        frames = torch.from_numpy(np.array(arrays[IMAGE][: told.actions]))
        found.append(encoder(frames).numpy().astype(np.float64))
        states.append(arrays[PRIVILEGED][: told.actions].astype(np.float64))
        actions.append(arrays[ACTION].astype(np.float64))
    state = np.concatenate(states)
    wanted = {name: state[:, place] for name, place in PLACES.items()}
    way = np.linalg.norm(wanted["goal"] - wanted["hand"], axis=1, keepdims=True)
    return np.concatenate(found), {**wanted, "way": way, "action": np.concatenate(actions)}


def told(encoder: torch.nn.Module, known: Demos, asked: Demos) -> dict[str, float]:
    """R² of each."""
    (x, y), (x_asked, y_asked) = features(encoder, known), features(encoder, asked)
    # A feature that is hardly ever other than 0 is not blown up.
    middle, spread = x.mean(0), x.std(0) + 0.1 * x.std()
    x, x_asked = (x - middle) / spread, (x_asked - middle) / spread
    return {name: asked_of(name, x, y, x_asked, y_asked) for name in y}


def asked_of(
    name: str, x: np.ndarray, y: dict[str, np.ndarray], x_asked: np.ndarray, y_asked: dict[str, np.ndarray]
) -> float:
    """R² of `name`, by that penalty which does best on the last third of what is known."""
    counts, counts_asked = ((told["way"][:, 0] >= ARRIVED) | (name != "way") for told in (y, y_asked))
    x, wanted = x[counts], y[name][counts]
    part = 2 * len(x) // 3
    by = {p: explained(x[:part], wanted[:part], x[part:], wanted[part:], p) for p in PENALTIES}
    best = max(by, key=lambda penalty: by[penalty])
    return explained(x, wanted, x_asked[counts_asked], y_asked[name][counts_asked], best)


def explained(x: np.ndarray, y: np.ndarray, x_asked: np.ndarray, y_asked: np.ndarray, penalty: float) -> float:
    middle = y.mean(0)
    line = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ (y - middle))
    off = ((y_asked - middle - x_asked @ line) ** 2).sum()
    return float(1 - off / ((y_asked - y_asked.mean(0)) ** 2).sum())


def fitted(demos: Demos, seed: int, steps: int, folder: Path) -> tuple[torch.nn.Module, float]:
    """An encoder, and the CPU seconds that it took."""
    asked = training(seed)
    if not steps:
        spec, nets = spaces_of(asked).obs[IMAGE], torch.Generator().manual_seed(seed)
        return encoder_for(IMAGE, spec, asked.network, nets), 0.0
    cloning = fitting.cloning_of(asked, demos, None, steps=steps, every=steps // 10, learning_rate=3e-4)
    began = time.process_time()
    run(Job.standalone(folder), cloning, Silent())
    took = time.process_time() - began
    return of_checkpoint(folder, "cpu").policy.net.encoders[IMAGE], took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        demos = recorded(folder / "demos", options.episodes, 0)
        known, asked = recorded(folder / "known", 60, 1_000_000), recorded(folder / "asked", 30, 2_000_000)
        disk = sum(block.bytes for block in demos.manifest.blocks) / demos.manifest.num_frames
        print(f"{demos.manifest.num_frames:,} frames of three cameras, {disk:,.0f} bytes each on the disk")
        for way, steps in STEPS.items():
            scores: dict[str, list[float]] = {name: [] for name in TOLD}
            seconds = []
            for seed in range(options.seeds):
                encoder, took = fitted(demos, seed, steps, folder / f"{way}-{seed}")
                for name, score in told(encoder, known, asked).items():
                    scores[name].append(score)
                seconds.append(took)
            words = [
                f"{statistics.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" for found in scores.values()
            ]
            rows.append([way, steps, *words, f"{statistics.mean(seconds):.0f}"])
            print(rows[-1], flush=True)
    head = ["encoder", "steps", *(f"R2 of the {name}" for name in TOLD), "CPU s"]
    figures.save("demos", head, rows)


if __name__ == "__main__":
    main()
