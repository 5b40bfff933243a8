"""`python -m trainer.machine.glprobe`: draw one small picture, print what drew it, and end with 0 where it is not all
black.

MUJOCO_GL says how, and is read once a process, when mujoco is loaded; so trying another way needs another process.
A way that does not work may also end in a crash of its library.
"""

from __future__ import annotations

import json
import sys

_SCENE = """
<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size=".3" rgba="1 0 0 1"/></worldbody></mujoco>
"""


def main() -> int:
    """Exit code 0 where MuJoCo can draw here. Prints one JSON object: `driver`, OpenGL's renderer and version."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 32, 32) as renderer:
        renderer.update_scene(data)
        is_drawn = renderer.render().max() > 0
        print(json.dumps({"driver": _driver()}))
    return 0 if is_drawn else 1


def _driver() -> str:
    from OpenGL import GL

    return " ".join(GL.glGetString(name).decode() for name in (GL.GL_RENDERER, GL.GL_VERSION))


if __name__ == "__main__":
    sys.exit(main())
