"""Bytes of a trained actor on its way to a laptop, ours beside plainer encodings of the same weights.

`python bench/policy_bytes.py` trains two actors for a few thousand steps (`tiny`: 128 x 128, one task; `MT10`: the
guide's 256 x 256 over ten tasks), reads each one's last checkpoint, and encodes its actor in every way in one run.
Writes policy_bytes.csv. A few minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import figures
import numpy as np
import safetensors.numpy
import zstandard

from syncd.shared.codec import decode, encode, rounded

ROOT = Path(__file__).resolve().parents[1]
Tensors = dict[str, Any]
#: name → (preset, changed fields). The steps make the weights trained ones; the codec does not see more steps.
TRAININGS: dict[str, tuple[str, Mapping[str, object]]] = {
    "tiny 128x128": ("tiny", {"total_steps": 5_000}),
    # Small critics: they teach as well for so few steps, and the guide's own take ten minutes.
    "MT10 256x256": ("guide", {"total_steps": 5_000, "random_steps": 500, "critic_hidden": [128, 128]}),
}
#: Beside the training itself nothing may take long here.
TRAINING_TIMEOUT_S = 900


def trained(preset: str, fields: Mapping[str, object], folder: Path) -> Tensors:
    """The actor's float32 tensors after a short training."""
    sets = [f"--set={name}={json.dumps(value)}" for name, value in fields.items()]
    sets.append("--set=evaluation_interval=0")
    command = [sys.executable, "-m", "trainer", "train", "--preset", preset, "--run-dir", str(folder), *sets]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=TRAINING_TIMEOUT_S)
    newest = max(folder.glob("slots/0/attempts/*/checkpoints/*/nets.safetensors"))
    nets = safetensors.numpy.load(newest.read_bytes())
    return {name: array for name, array in nets.items() if name.startswith("policy.")}


def upper_halves(tensors: Tensors) -> bytes:
    """bf16 without planes (truncated; rounding changes no size)."""
    return b"".join((tensors[name].view(np.uint32) >> 16).astype(np.uint16).tobytes() for name in sorted(tensors))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data)


ENCODINGS: dict[str, Callable[[Tensors], bytes]] = {
    "float32, safetensors": safetensors.numpy.save,
    "float32, zstd-3": lambda tensors: zstd(safetensors.numpy.save(tensors)),
    "bf16": upper_halves,
    "bf16, zstd-3": lambda tensors: zstd(upper_halves(tensors)),
    "ours: bf16 planes, zstd-3": lambda tensors: encode(rounded(tensors)),
}


def main() -> None:
    """Train, encode in every way, print and write."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for index, (what, (preset, fields)) in enumerate(TRAININGS.items()):
            tensors = trained(preset, fields, Path(name) / str(index))
            plain = sum(array.nbytes for array in tensors.values())
            for encoding, act in ENCODINGS.items():
                began = time.perf_counter()
                data = act(tensors)
                took_ms = 1000 * (time.perf_counter() - began)
                rows.append([what, encoding, plain, len(data), f"{len(data) / plain:.4f}", f"{took_ms:.2f}"])
                print(f"{what}: {encoding}: {len(data):,} bytes, {len(data) / plain:.3f} of float32, {took_ms:.1f} ms")
            began = time.perf_counter()
            decode(data, {name: array.shape for name, array in tensors.items()})
            print(f"{what}: decoded in {1000 * (time.perf_counter() - began):.1f} ms")
    figures.save("policy_bytes", ["actor", "encoding", "float32_bytes", "bytes", "ratio", "encode_ms"], rows)


if __name__ == "__main__":
    main()
