"""Says what an image can do here, a line each: `python3 /opt/anchorleg/verify.py [--gpu]`.

Exit code 0: the trainer would run. With `--gpu`: on a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import torch

from trainer.config.suites import MT10
from trainer.errors import ConfigError
from trainer.machine.drawing import choose_renderer

#: Loading ten tasks takes some five seconds.
TIMEOUT_S = 300.0


def main(words: list[str]) -> int:
    """Print, and judge."""
    on_gpu = torch.cuda.is_available()
    print(f"python: {platform.python_version()}")
    print(f"torch: {torch.__version__} ({f'CUDA {torch.version.cuda}' if torch.version.cuda else 'no CUDA'})")
    print(f"CUDA available: {on_gpu}")
    for index in range(torch.cuda.device_count() if on_gpu else 0):
        device = torch.cuda.get_device_properties(index)
        print(f"CUDA device {index}: {device.name}, {device.total_memory / 2**30:.1f} GiB")
    try:
        way = choose_renderer().way
    except ConfigError as error:
        way = "disable"
        print(f"drawing: {error}")
    done = subprocess.run(
        [sys.executable, "-m", "trainer.showing.taskprobe", *MT10],
        env={**os.environ, "MUJOCO_GL": way},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        print(f"tasks: they do not load: {(done.stderr.splitlines() or ['no word'])[-1]}")
        return 1
    found = json.loads(done.stdout)
    print(f"Meta-World: {found['metaworld']}")
    print(f"MT10 tasks: {found['loaded']}")
    if "drawn" in found:
        print(f"rendered task: {found['drawn']} by {way}, {found['colours']} colours")
    if "--gpu" in words and not on_gpu:
        print("no GPU: start the container with it (docker run --gpus all, apptainer exec --nv)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
