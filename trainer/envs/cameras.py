"""Pictures of a simulation of MuJoCo's, as policies see them: nothing else draws for them.

Without shadows, reflections, sky and multisampling a picture costs a twentieth, and has the same bits in each process
with the same driver. A process has one OpenGL context for each thread that draws, and in it what MuJoCo uploads
(`MjrContext`: meshes, textures) once for each kind of model, however many environments are of that kind.

It only reads: nothing is computed for a picture, so a place is as old as what the simulation derived last. A
picture right after a state was put back is one of before: environments keep their frames instead.

`Views`: light and the cameras' places, drawn anew for an episode, so that a policy does not depend on them.
"""

from __future__ import annotations

import atexit
import importlib
import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from anchorleg.words import did_you_mean
from trainer.envs.shown import Place
from trainer.envs.spaces import F64
from trainer.errors import ConfigError, FieldError
from trainer.machine import drawing

Picture = npt.NDArray[np.uint8]

#: Below this a camera's own "up" points down in the world: Meta-World's four corner cameras hang upside down (-0.3 to
#: -0.9). A camera that looks straight down has 0, and any way is up.
_HANGS_BELOW = -0.1
_LEFT_OUT = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX)
#: Meta-World's scenes have some 40.
_MOST_GEOMS = 2_000
#: Ways of drawing that bring their context in a module of mujoco's: however MUJOCO_GL was when mujoco was loaded.
_MODULES = {"egl", "osmesa"}
#: A goal that the scene itself does not show is a ball: metres, and a colour (red, green, blue, opaque) that nothing
#: of Meta-World has. At 64 pixels three or four are across.
GOAL_RADIUS = 0.03
GOAL_COLOUR = (1.0, 0.1, 0.9, 1.0)

#: Of this thread: its OpenGL context, and what was uploaded, by kind and size. Between pictures an idle context is the
#: current one: a renderer of somebody else's, such as Gymnasium's, frees its numbers in the current one.
_own = threading.local()


def hangs_upside_down(data: Any, camera: int) -> bool:
    """Whether what camera number `camera` sees is to be turned by half a circle: not mirrored, left stays left."""
    return bool(data.cam_xmat[camera].reshape(3, 3)[2, 1] < _HANGS_BELOW)


def camera_number(model: Any, name: str) -> int:
    """Of the camera of that name. Errors: ConfigError where there is none."""
    known = [model.camera(index).name for index in range(model.ncam)]
    if name not in known:
        raise FieldError("camera.unknown", camera=name, hint=did_you_mean(name, known))
    return known.index(name)


class Cameras:
    """The cameras `names` of models of one `kind`, `size` pixels a side. The first of a process looks whether the
    driver draws the same bits twice.

    Errors: ConfigError for a camera that is not there, and where nothing can be drawn, or not twice alike.
    """

    def __init__(self, kind: Hashable, model: Any, names: Sequence[str], size: int) -> None:
        self._kind, self._model, self._size = (kind, size), model, size
        self._numbers = [camera_number(model, name) for name in names]
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        self._is_turned = [hangs_upside_down(data, number) for number in self._numbers]
        self._rect = mujoco.MjrRect(0, 0, size, size)
        self._option = mujoco.MjvOption()
        self._sites = self._option.sitegroup.copy()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._pixels = np.empty((size, size, 3), np.uint8)
        if not getattr(_own, "is_checked", False):
            self._must_repeat(data)
            _own.is_checked = True

    def picture(self, data: Any, goal: Place | None = None) -> Picture:
        """What they see of `data`, of a model of this kind: [3 · cameras, size, size], red, green and blue of each, top
        row first. With a `goal` (m) a ball is drawn there, and no sites.
        """
        uploaded, scene = self._uploaded()
        seen = np.empty((3 * len(self._numbers), self._size, self._size), np.uint8)
        self._option.sitegroup[:] = 0 if goal is not None else self._sites
        for place, (number, is_turned) in enumerate(zip(self._numbers, self._is_turned, strict=True)):
            self._camera.fixedcamid = number
            mujoco.mjv_updateScene(
                self._model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, scene
            )
            if goal is not None:
                _add_ball(scene, goal)
            mujoco.mjr_render(self._rect, scene, uploaded)
            mujoco.mjr_readPixels(self._pixels, None, self._rect, uploaded)
            # OpenGL's first row is the lowest one.
            upright = self._pixels[:, ::-1] if is_turned else self._pixels[::-1]
            seen[3 * place : 3 * place + 3] = upright.transpose(2, 0, 1)
        _own.idle.make_current()
        return seen

    def _uploaded(self) -> tuple[Any, Any]:
        """(MjrContext, MjvScene) of this kind, in this thread's context, which is the current one then."""
        _make_current()
        if self._kind not in _own.uploaded:
            _own.uploaded[self._kind] = _upload(self._model, self._size)
        found: tuple[Any, Any] = _own.uploaded[self._kind]
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, found[0])  # each kind has a buffer of its own
        return found

    def _must_repeat(self, data: Any) -> None:
        """Draw a scene twice, and another one between. `data` is changed. Errors: ConfigError."""
        first = self.picture(data).tobytes()
        places = data.geom_xpos.copy()
        data.geom_xpos[:] = places[::-1]
        self.picture(data)
        data.geom_xpos[:] = places
        if self.picture(data).tobytes() != first:
            raise ConfigError("drawing.not-repeated", driver=drawing.prepare().driver)


def _make_current() -> None:
    """This thread's context, made where it has none. Errors: ConfigError."""
    if not hasattr(_own, "context"):
        way = drawing.prepare_for_policies().way
        try:
            maker = importlib.import_module(f"mujoco.{way}") if way in _MODULES else mujoco
            _own.context, _own.uploaded, _own.idle = maker.GLContext(1, 1), {}, maker.GLContext(1, 1)
        except (ImportError, RuntimeError, mujoco.FatalError) as error:
            words = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError("drawing.other-way-loaded", way=way, why=words) from None
        atexit.register(_free, _own.context, _own.idle, _own.uploaded)
    _own.context.make_current()


def _free(context: Any, idle: Any, uploaded: dict[Any, tuple[Any, Any]]) -> None:
    """At the end of the process: else MuJoCo frees it after its libraries are gone."""
    with suppress(Exception):  # nothing that is drawn any more depends on it
        context.make_current()
        for one, _ in uploaded.values():
            one.free()
        uploaded.clear()
        context.free()
        idle.free()


def _upload(model: Any, size: int) -> tuple[Any, Any]:
    buffer, quality = model.vis.global_, model.vis.quality
    before = buffer.offwidth, buffer.offheight, quality.offsamples, quality.shadowsize
    buffer.offwidth = buffer.offheight = size
    quality.offsamples = quality.shadowsize = 0  # a map of shadows, which nobody draws, takes 64 MiB of Meta-World's
    try:
        uploaded = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    finally:  # the model is somebody else's, who may draw films of it
        buffer.offwidth, buffer.offheight, quality.offsamples, quality.shadowsize = before
    scene = mujoco.MjvScene(model, _MOST_GEOMS)
    scene.flags[list(map(int, _LEFT_OUT))] = 0
    return uploaded, scene


def _add_ball(scene: Any, place: Place) -> None:
    if scene.ngeom < scene.maxgeom:
        sphere, colour = mujoco.mjtGeom.mjGEOM_SPHERE, np.array(GOAL_COLOUR, np.float32)
        size, turned = np.full(3, GOAL_RADIUS), np.eye(3).ravel()
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], sphere, size, np.asarray(place, np.float64), turned, colour)
        scene.ngeom += 1


#: Metres and radians (2 degrees) that a camera may be off; parts of its way that a light's direction may be off; parts
#: of its strength.
PLACE, TURN, DIRECTION, STRENGTH = 0.02, float(np.radians(2.0)), 0.3, 0.3


class Views:
    """Of `model`, as it is now. A view is one row of numbers in [-1, 1]: of each camera how far it is moved and turned
    (3 and 3), of each light how far it shines from elsewhere (3), and how strong light is (1).
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._places, self._turns = model.cam_pos.copy(), model.cam_quat.copy()
        self._directions, self._strengths = model.light_dir.copy(), model.light_diffuse.copy()
        self._headlight = model.vis.headlight.diffuse.copy()

    @property
    def size(self) -> int:
        """Numbers of a view."""
        return int(6 * self._model.ncam + 3 * self._model.nlight + 1)

    def draw(self, rng: np.random.Generator) -> F64:
        """[size]"""
        view: F64 = rng.uniform(-1.0, 1.0, self.size)
        return view

    def look(self, data: Any, view: F64) -> None:
        """Let the model and its `data` be seen like this."""
        model, cameras = self._model, 6 * self._model.ncam
        moved = view[:cameras].reshape(-1, 2, 3)
        model.cam_pos[:] = self._places + PLACE * moved[:, 0]
        for camera, turned in enumerate(moved[:, 1]):
            quat = self._turns[camera].copy()
            mujoco.mju_quatIntegrate(quat, np.ascontiguousarray(turned), TURN)
            model.cam_quat[camera] = quat
        directions = self._directions + DIRECTION * view[cameras:-1].reshape(-1, 3)
        model.light_dir[:] = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        model.light_diffuse[:] = self._strengths * (1 + STRENGTH * view[-1])
        model.vis.headlight.diffuse[:] = self._headlight * (1 + STRENGTH * view[-1])
        mujoco.mj_camlight(model, data)
