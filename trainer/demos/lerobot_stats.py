"""What a LeRobotDataset says of its numbers: of each episode, and of all together, as LeRobot's own recorder does
(src/lerobot/datasets/compute_stats.py at 7427f31). Quantiles are exact here; upstream's are of histograms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: Name → the part of the numbers that is smaller.
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_WHITE = 255.0
_SHADES = 256
#: Frames of an episode that are looked at: 100, and more of long ones, as upstream has it.
_LEAST, _MOST, _POWER = 100, 10_000, 0.75

Stats = Mapping[str, npt.NDArray[Any]]


def stats_of_rows(values: npt.NDArray[Any]) -> Stats:
    """Of [T] or [T, n]: each [n], and `count` [1]."""
    rows = values.reshape(len(values), -1).astype(np.float64)
    return _stats(rows, len(rows))


def stats_of_pictures(frames: npt.NDArray[np.uint8]) -> Stats:
    """Of [T, 3, H, W]: each [3, 1, 1], of brightness in [0, 1], and `count` [1], the frames that were looked at."""
    looked = min(len(frames), max(min(_LEAST, len(frames)), min(int(len(frames) ** _POWER), _MOST)))
    counts = np.zeros((frames.shape[1], _SHADES), np.int64)
    for frame in np.round(np.linspace(0, len(frames) - 1, looked)).astype(int):
        counts += [np.bincount(channel.ravel(), minlength=_SHADES) for channel in frames[frame]]
    found = [_of_counts(channel) for channel in counts]
    stats = {name: np.array([one[name] for one in found]).reshape(-1, 1, 1) for name in found[0]}
    quantiles = {name: stats.pop(name) for name in QUANTILES}
    return {**stats, "count": np.array([looked]), **quantiles}


def _of_counts(counts: npt.NDArray[np.int64]) -> Mapping[str, float]:
    """Of numbers of which so many have each shade: as `_stats`, without having them."""
    shades, total = np.arange(_SHADES) / _WHITE, counts.sum()
    there = shades[counts > 0]
    mean = float(shades @ counts / total)
    found = {"min": there[0], "max": there[-1], "mean": mean, "std": np.sqrt((shades - mean) ** 2 @ counts / total)}
    until = counts.cumsum()
    for name, part in QUANTILES.items():
        place = part * (total - 1)
        low, high = (shades[np.searchsorted(until, k, side="right")] for k in (np.floor(place), np.ceil(place)))
        found[name] = low + (high - low) * (place % 1)
    return found


def together(parts: Sequence[Stats]) -> Stats:
    """Of several episodes. Quantiles are bounds: the least of the lower ones, the largest of the upper ones."""
    counts = np.stack([part["count"] for part in parts])
    means, deviations = (np.stack([part[name] for part in parts]) for name in ("mean", "std"))
    weights = counts.reshape(len(parts), *(1,) * (means.ndim - 1)) / counts.sum()
    mean = (means * weights).sum(0)
    variance = ((deviations**2 + (means - mean) ** 2) * weights).sum(0)
    found = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": counts.sum(0),
    }
    for name, part in QUANTILES.items():
        found[name] = (np.min if part <= 0.5 else np.max)([stats[name] for stats in parts], axis=0)
    return found


def _stats(rows: npt.NDArray[np.float64], count: int) -> Stats:
    found = {
        "min": rows.min(0),
        "max": rows.max(0),
        "mean": rows.mean(0),
        "std": rows.std(0),
        "count": np.array([count]),
    }
    return found | dict(zip(QUANTILES, np.quantile(rows, list(QUANTILES.values()), axis=0), strict=True))
