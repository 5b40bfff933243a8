"""How MuJoCo can draw on this machine: decided before mujoco is loaded, because it reads MUJOCO_GL only then.

It is decided once for a program and all that it starts: they find the answer in their environment. Of that, what a
shell, a notebook or a site has set for other programs is left out first. MUJOCO_GL is read once a process, and a way
that does not work may end in a crash of its library: so each way is tried by `python -m trainer.machine.drawing`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import NamedTuple

from anchorleg.signals import python_path
from trainer.errors import ConfigError
from trainer.machine.processes import run_to_its_end

VARIABLE = "MUJOCO_GL"
#: What was found out, for this process and its children: `Drawing` as JSON.
FOUND = "ANCHORLEG_DRAWING"
#: llvmpipe, Mesa's driver for CPUs, draws with threads of its own, and a picture of 64 pixels a side then takes twice
#: the time of a processor that draws it alone [measured]; the pixels are the same.
THREADS = "LP_NUM_THREADS"
#: Without a screen, the fastest first: EGL wants a GPU's driver, OSMesa draws on the CPU. GLFW needs a screen.
LINUX_WAYS = ("egl", "osmesa")
#: macOS has one way (CGL), which needs no name and no screen.
MAC_WAYS = ("",)
#: What `VARIABLE` may say, in any system: of anything else mujoco cannot be loaded, by those that draw nothing either.
KNOWN_TO_MUJOCO = (
    *("", "glfw", "egl", "osmesa", "glx", "cgl", "wgl", "1", "0"),
    *("enable", "enabled", "on", "true", "disable", "disabled", "off", "false"),
)
#: Loading mujoco and drawing 32x32 pixels takes 1-3 s; a driver that hangs must not hold us.
PROBE_TIMEOUT_S = 60.0
#: Of a driver's name.
_MOST_LETTERS = 200
_SCENE = """
<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size=".3" rgba="1 0 0 1"/></worldbody></mujoco>
"""


class Drawing(NamedTuple):
    """`way`: the value of MUJOCO_GL; empty: it stays unset. `driver`: OpenGL's renderer and version."""

    way: str
    driver: str


#: The driver of a way; None: it does not work.
Probe = Callable[[str], str | None]


def driver_of(way: str) -> str | None:
    """What draws where MUJOCO_GL is `way` (empty: unset), tried in a process of its own; None: nothing does."""
    environ = {name: value for name, value in os.environ.items() if name not in {VARIABLE, "PYOPENGL_PLATFORM"}}
    environ |= python_path()
    if way:
        environ[VARIABLE] = way
    try:
        command = [sys.executable, "-P", "-m", "trainer.machine.drawing"]
        status, output, _ = run_to_its_end(command, PROBE_TIMEOUT_S, environ)
        return str(json.loads(output)["driver"])[:_MOST_LETTERS] if status == 0 else None
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


def choose_renderer(
    environ: Mapping[str, str] = os.environ, platform: str = sys.platform, probe: Probe = driver_of
) -> Drawing:
    """How to draw. Errors: ConfigError, which says what to install."""
    if stated := environ.get(VARIABLE):
        if (driver := probe(stated)) is not None:
            return Drawing(stated, driver)
        raise ConfigError("drawing.way-unusable", way=stated)
    ways: tuple[str, ...] = (
        MAC_WAYS if platform == "darwin" else (*LINUX_WAYS, *(("glfw",) if environ.get("DISPLAY") else ()))
    )
    for way in ways:
        if (driver := probe(way)) is not None:
            return Drawing(way, driver)
    if platform == "darwin":
        raise ConfigError("drawing.nothing-on-mac")
    raise ConfigError("drawing.nothing-installed")


def prepare() -> Drawing:
    """Make this process, and those that it starts, draw in the way that works. The first call of a program is to come
    before mujoco is loaded; later ones cost nothing. Errors: ConfigError.
    """
    logging.getLogger("OpenGL").setLevel(logging.WARNING)  # it tells which of its speed-ups it lacks
    found = _known()
    if found is None:
        os.environ.setdefault(THREADS, "0")
        found = choose_renderer()
        os.environ[FOUND] = json.dumps(found)
        if found.way:
            os.environ[VARIABLE] = found.way
    return found


def prepare_for_policies() -> Drawing:
    """As `prepare`, for policies that see what MuJoCo draws. Errors: ConfigError, which names the way out."""
    try:
        return prepare()
    except ConfigError as error:
        raise ConfigError("drawing.pictures-need-it", why=error) from None


def _known() -> Drawing | None:
    """What was found out before, as long as nobody has chosen another way since."""
    try:
        found = Drawing(*map(str, json.loads(os.environ[FOUND])))
    except (KeyError, ValueError, TypeError):
        return None
    return found if os.environ.get(VARIABLE, "") == found.way else None


#: Read when their library is loaded, which a wrong value ends; no command has a use for one: curves are drawn without a
#: window, and nobody sees tqdm's bars or torch's compiler.
_UNWANTED = ("MPLBACKEND", "TQDM_", "TORCH_LOGS")


def drop_foreign_variables(environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Take away those that would end us or a program that we start; what the user should know of it.

    To be called before the libraries are loaded.
    """
    for name in [name for name in environ if name.startswith(_UNWANTED)]:
        del environ[name]
    way = environ.get(VARIABLE, "")
    if way.lower().strip() in KNOWN_TO_MUJOCO:
        return None
    del environ[VARIABLE]
    return f"{VARIABLE}={way} is ignored: MuJoCo has no such backend"


def main() -> int:
    """Draw one small picture and print one JSON object: `driver`, OpenGL's renderer and version. 0: it is not black."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 32, 32) as renderer:
        renderer.update_scene(data)
        is_drawn = renderer.render().max() > 0
        from OpenGL import GL

        driver = " ".join(GL.glGetString(name).decode() for name in (GL.GL_RENDERER, GL.GL_VERSION))
        print(json.dumps({"driver": driver}))
    return 0 if is_drawn else 1


if __name__ == "__main__":
    sys.exit(main())
