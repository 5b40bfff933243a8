"""How MuJoCo can draw on this machine: decided before mujoco is loaded, because it reads MUJOCO_GL only then."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from trainer.errors import ConfigError

VARIABLE = "MUJOCO_GL"
#: Without a screen, the fastest first: EGL wants a GPU's driver, OSMesa draws on the CPU. GLFW needs a screen.
LINUX_WAYS = ("egl", "osmesa")
#: macOS has one way (CGL), which needs no name and no screen.
MAC_WAYS = ("",)
#: Loading mujoco and drawing 32x32 pixels takes 1-3 s; a driver that hangs must not hold us.
PROBE_TIMEOUT_S = 60.0

Probe = Callable[[str], bool]


def works(way: str) -> bool:
    """Whether MuJoCo draws with MUJOCO_GL=`way` (empty: unset), tried in a process of its own."""
    environ = {name: value for name, value in os.environ.items() if name not in {VARIABLE, "PYOPENGL_PLATFORM"}}
    if way:
        environ[VARIABLE] = way
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainer.showing.glprobe"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def choose_renderer(environ: Mapping[str, str] = os.environ, platform: str = sys.platform, probe: Probe = works) -> str:
    """The value for MUJOCO_GL (empty: leave it unset). Errors: ConfigError, which says what to install."""
    if stated := environ.get(VARIABLE):
        if probe(stated):
            return stated
        raise ConfigError(f"MuJoCo cannot draw with {VARIABLE}={stated} here; unset it, and what works is found")
    ways: tuple[str, ...] = (
        MAC_WAYS if platform == "darwin" else (*LINUX_WAYS, *(("glfw",) if environ.get("DISPLAY") else ()))
    )
    for way in ways:
        if probe(way):
            return way
    if platform == "darwin":
        raise ConfigError("MuJoCo cannot draw here; `python -m trainer.showing.glprobe` shows why")
    raise ConfigError(
        "MuJoCo cannot draw here: neither EGL (a GPU's driver) nor OSMesa works; install the latter "
        "(Debian, Ubuntu: apt-get install libosmesa6; conda: conda install -c conda-forge mesalib)"
    )


def prepare() -> None:
    """Make this process draw in the way that works. To be called before mujoco is loaded. Errors: ConfigError."""
    logging.getLogger("OpenGL").setLevel(logging.WARNING)  # it tells which of its speed-ups it lacks
    way = choose_renderer()
    if way:
        os.environ[VARIABLE] = way
