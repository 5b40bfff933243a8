"""What can be seen of an environment that MuJoCo simulates: what its bodies look like, and where they are.

It only reads. Nothing is computed for it (`mj_forward` would change the warm start, and so the next step), so a place
may be one substep old, and right after a reset there is none. An environment that can be shown has `simulation`,
MuJoCo's (model, data), and may have `camera`, entries of a free camera: `lookat`, `distance`, `azimuth`, `elevation`,
and `goal`, a place [3] (m) that its agent is to reach. Watchers may see a goal that the agent does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import F32, I32

#: Bodies of one environment. More are not shown.
MOST_BODIES = 512
#: MuJoCo draws the geoms of these groups; those beyond are for collisions.
_LAST_GROUP = 2
MESH = "mesh"
#: mjtGeom → the name of a shape; heightfields have none. Signed distances are drawn as the mesh that they were made of.
SHAPES = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: MESH, 8: MESH}
_MESHES = tuple(number for number, shape in SHAPES.items() if shape == MESH)
#: A geom of this colour has its material's (`engine_vis_visualize.c`, setMaterial).
_NO_COLOUR = (0.5, 0.5, 0.5, 1.0)
#: mjTEXROLE_RGB: which of a material's textures its colours are multiplied with; every so many-th pixel is looked at.
_COLOURS_ROLE, _PIXELS_APART = 1, 16
_POSITION = slice(0, 3)
_ROTATION = slice(3, 7)
POSE = 7
Place = tuple[float, float, float]


class Glimpse(NamedTuple):
    """One environment after a step: the steps of its episode so far, their return, and whether it has succeeded.

    `at_s`: simulated time. `poses` [B, 7]: position (m) and rotation (w, x, y, z) of the bodies of its `Parts`; B is 0
    where an episode has just begun, or nothing can be seen. `goal`: the place (m) to reach; None: it is not known.
    """

    episode: int
    step: int
    total: float
    success: bool
    at_s: float
    poses: F32
    goal: Place | None = None


@dataclass(frozen=True)
class Parts:
    """What an environment looks like. `bodies`: names of those that may move, in the order of their poses.

    `arrays`: of each geom `type` (mjtGeom), `size` [3], `rgba` [4], `pos` [3], `quat` [4], `body` (place in `bodies`;
    -1: fixed in the world) and `mesh` (-1: none); of each mesh k `vertices.<k>` [V, 3] and `faces.<k>` [F, 3].
    `left_out`: geoms of which no shape is known.
    """

    bodies: tuple[str, ...]
    camera: Mapping[str, Any]
    left_out: int
    arrays: Mapping[str, npt.NDArray[Any]]


def simulation_of(env: Any) -> tuple[Any, Any] | None:
    """MuJoCo's (model, data) of an environment that has them."""
    try:
        found = getattr(env, "simulation", None)
    except Exception:  # noqa: BLE001 - somebody else's property; what cannot be shown is played all the same
        return None
    return found if isinstance(found, tuple) and len(found) == 2 else None


def goal_of(env: Any) -> Place | None:
    """The place (m) that the agent of an environment is to reach in this episode, where it says so."""
    try:
        numbers = np.asarray(getattr(env, "goal", None), np.float64)
    except Exception:  # noqa: BLE001 - as above
        return None
    if numbers.shape != (3,) or not np.isfinite(numbers).all():
        return None
    x, y, z = numbers.tolist()
    return x, y, z


def bodies_shown(model: Any) -> I32:
    """The bodies [B] that have something to see, but for the world.

    Those that are welded to the world count too: some environments move them by writing `body_pos`.
    """
    seen = np.unique(np.asarray(model.geom_bodyid)[_is_seen(model)])
    bodies: I32 = seen[seen > 0].astype(np.int32)
    return bodies if len(bodies) <= MOST_BODIES else bodies[:0]


def poses_of(data: Any, bodies: I32, out: F32 | None = None) -> F32:
    """Where `bodies` [B] are, [B, 7]; written into `out` where there is one."""
    poses = np.empty((len(bodies), POSE), np.float32) if out is None else out
    poses[:, _POSITION] = data.xpos[bodies]
    poses[:, _ROTATION] = data.xquat[bodies]
    return poses


def parts_of(env: Any) -> Parts | None:
    """What `env` looks like; None: it cannot be shown. What is copied is the caller's."""
    simulation = simulation_of(env)
    if simulation is None:
        return None
    model = simulation[0]
    bodies = bodies_shown(model)
    if not len(bodies):
        return None
    kinds = np.asarray(model.geom_type)
    is_known = np.isin(kinds, list(SHAPES)) & (~np.isin(kinds, _MESHES) | (np.asarray(model.geom_dataid) >= 0))
    is_seen = _is_seen(model)
    geoms = np.flatnonzero(is_seen & is_known)
    place = np.full(model.nbody, -1, np.int32)
    place[bodies] = np.arange(len(bodies))
    is_mesh = np.isin(kinds[geoms], _MESHES)
    meshes = np.unique(model.geom_dataid[geoms][is_mesh])
    mesh = np.where(is_mesh, np.searchsorted(meshes, model.geom_dataid[geoms]), -1)
    arrays = {
        "type": kinds[geoms].astype(np.int32),
        "size": model.geom_size[geoms].astype(np.float32),
        "rgba": _colours(model)[geoms].astype(np.float32),
        "pos": model.geom_pos[geoms].astype(np.float32),
        "quat": model.geom_quat[geoms].astype(np.float32),
        "body": place[model.geom_bodyid[geoms]],
        "mesh": mesh.astype(np.int32),
    }
    for number, each in enumerate(meshes):
        vertex, face = model.mesh_vertadr[each], model.mesh_faceadr[each]
        arrays[f"vertices.{number}"] = model.mesh_vert[vertex : vertex + model.mesh_vertnum[each]].astype(np.float32)
        arrays[f"faces.{number}"] = model.mesh_face[face : face + model.mesh_facenum[each]].astype(np.int32)
    names = tuple(model.body(int(body)).name or f"body {body}" for body in bodies)
    return Parts(names, _camera(env, model), int((is_seen & ~is_known).sum()), arrays)


def _is_seen(model: Any) -> npt.NDArray[np.bool_]:
    seen: npt.NDArray[np.bool_] = (np.asarray(model.geom_group) <= _LAST_GROUP) & (_colours(model)[:, 3] > 0)
    return seen


def _colours(model: Any) -> npt.NDArray[Any]:
    """Of each geom, [G, 4]: its own, or its material's; what has a texture has its mean colour."""
    own, material = np.array(model.geom_rgba), np.asarray(model.geom_matid)
    is_painted = material >= 0
    has_materials = is_painted & (own == np.array(_NO_COLOUR, np.float32)).all(axis=1)
    own[has_materials] = model.mat_rgba[material[has_materials]]
    for each in np.unique(material[is_painted]):
        own[material == each, :3] *= _texture(model, int(each))
    return own


def _texture(model: Any, material: int) -> npt.NDArray[Any]:
    """The mean colour [3] of a material's texture, 0 to 1; ones where it has none."""
    ids = np.atleast_1d(model.mat_texid[material])
    texture = int(ids[_COLOURS_ROLE]) if len(ids) > _COLOURS_ROLE else -1
    if texture < 0:
        return np.ones(3)
    channels, begin = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
    count = int(model.tex_height[texture]) * int(model.tex_width[texture]) * channels
    pixels = np.asarray(model.tex_data[begin : begin + count]).reshape(-1, channels)[::_PIXELS_APART, :3]
    mean: npt.NDArray[Any] = pixels.mean(axis=0) / 255.0
    return mean


def _camera(env: Any, model: Any) -> dict[str, Any]:
    """MuJoCo's free camera (`mjv_defaultFreeCamera`), and what `env` has to say of it."""
    look: Mapping[str, Any] = getattr(env, "camera", None) or {}
    camera = {
        "lookat": np.asarray(model.stat.center).tolist(),
        "distance": 1.5 * float(model.stat.extent),
        "azimuth": float(model.vis.global_.azimuth),
        "elevation": float(model.vis.global_.elevation),
    }
    given = {name: np.asarray(look[name], float).tolist() for name in camera if look.get(name) is not None}
    return {**camera, **given}
