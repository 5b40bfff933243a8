"""Which of a task's names the C stepper needs: one entry a task, in the order of `rewards` (rewards.h)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: `enum rotation` (row.h).
ZEROS, MATRIX, QUATERNION, IDENTITY = 0, 1, 2, 3


@dataclass(frozen=True)
class Place:
    """A field of a named thing in MuJoCo's data, such as `data.body("obj").xpos`."""

    kind: str
    name: str
    field: str = "xpos"

    def address(self, data: Any) -> int:
        """Of its first number; it holds as long as `data` lives."""
        array = getattr(getattr(data, self.kind)(self.name), self.field)
        return int(array.__array_interface__["data"][0])


Rotation = tuple[int, Place | None]


@dataclass(frozen=True)
class SeenObject:
    """An object of the observation. `angle`: of a dial, on whose edge the place is."""

    position: Place
    rotation: Rotation = (ZEROS, None)
    offset: tuple[float, float, float] | None = None
    angle: Place | None = None


@dataclass(frozen=True)
class Port:
    """What of a task is its own.

    `extra` is an attribute of up to three numbers that its reward reads, `found` one that the first step of an episode
    sets, `touched` the geometry that the pads must touch. `target` and `object_init`: into what upstream's
    `_target_pos` and `obj_init_pos` are windows, where they are.
    """

    seen: SeenObject
    second: SeenObject | None = None
    extra: str | None = None
    found: str | None = None
    named: tuple[Place, ...] = field(default=())
    touched: str | None = None
    target: Place | None = None
    object_init: Place | None = None

    @property
    def windows(self) -> dict[str, tuple[str, Place]]:
        """Upstream's attribute → (field of the row, where it looks)."""
        known = {"_target_pos": ("target", self.target), "obj_init_pos": ("object_init", self.object_init)}
        return {name: (own, place) for name, (own, place) in known.items() if place is not None}


#: The same in every task, by the field's name in `struct row`.
COMMON = {
    "hand": Place("body", "hand"),
    "right_claw": Place("body", "rightclaw"),
    "left_claw": Place("body", "leftclaw"),
    "right_end": Place("site", "rightEndEffector"),
    "left_end": Place("site", "leftEndEffector"),
    "right_pad": Place("body", "rightpad"),
    "left_pad": Place("body", "leftpad"),
}


def _body(name: str, offset: tuple[float, float, float] | None = None) -> SeenObject:
    return SeenObject(Place("body", name), _turned(name), offset)


def _site(name: str, body: str | None = None, offset: tuple[float, float, float] | None = None) -> SeenObject:
    return SeenObject(Place("site", name), _turned(body) if body else (ZEROS, None), offset)


def _turned(body: str) -> Rotation:
    return QUATERNION, Place("body", body, "xquat")


def _matrix(kind: str, name: str) -> Rotation:
    return MATRIX, Place(kind, name, "xmat")


def _stick(offset: tuple[float, float, float] | None) -> tuple[SeenObject, SeenObject]:
    return SeenObject(Place("body", "stick"), _matrix("body", "stick")), _site("insertion", offset=offset)


_PUCK = SeenObject(Place("body", "obj"), _matrix("geom", "objGeom"))
_GEOM = SeenObject(Place("geom", "objGeom"), _matrix("geom", "objGeom"))
_PLATE = Port(SeenObject(Place("geom", "puck"), _matrix("geom", "puck")))
_MUG = Port(SeenObject(Place("body", "obj"), _matrix("geom", "mug")))
_DRAWER = Place("body", "drawer_link")
_HANDLE = SeenObject(Place("geom", "handle"), _matrix("geom", "handle"))
_DOOR = Place("joint", "doorjoint", "qpos")
_LOCK = Place("body", "lock_link")
_NUT = Port(_site("RoundNut-8", "RoundNut"), named=(Place("site", "RoundNut"),))
_ABOVE = Port(_body("button", (0.0, 0.0, 0.193)), extra="_obj_to_target_init")
_BEFORE = Port(_body("button", (0.0, -0.193, 0.0)), extra="_obj_to_target_init")
_BELOW = (0.0, 0.0, -0.01)
_PRESSED = Port(_site("handleStart"), extra="_handle_init_pos")
_CORNERS = ("bottom_right_corner", "top_left_corner")
PORTS = {
    # pushes.h
    "reach-v3": Port(_PUCK),
    "reach-wall-v3": Port(_PUCK),
    "push-v3": Port(_PUCK),
    "push-wall-v3": Port(_GEOM),
    "push-back-v3": Port(_GEOM),
    "soccer-v3": Port(SeenObject(Place("body", "soccer_ball"), _matrix("body", "soccer_ball"))),
    "sweep-v3": Port(_body("obj")),
    "sweep-into-v3": Port(_PUCK),
    "plate-slide-v3": _PLATE,
    "plate-slide-side-v3": _PLATE,
    "plate-slide-back-v3": _PLATE,
    "plate-slide-back-side-v3": _PLATE,
    "coffee-push-v3": _MUG,
    "coffee-pull-v3": _MUG,
    "hand-insert-v3": Port(_body("obj")),
    # grasps.h
    "pick-place-v3": Port(_PUCK),
    "pick-place-wall-v3": Port(_GEOM),
    "pick-out-of-hole-v3": Port(_body("obj")),
    "bin-picking-v3": Port(_body("obj"), found="_target_to_obj_init", target=Place("body", "bin_goal")),
    "shelf-place-v3": Port(_PUCK),
    "basketball-v3": Port(_body("bsktball"), target=Place("site", "goal")),
    "peg-insert-side-v3": Port(
        SeenObject(Place("site", "pegGrasp"), _matrix("site", "pegGrasp")),
        extra="peg_head_pos_init",
        named=(
            Place("site", "pegHead"),
            *(Place("site", f"{corner}_collision_box_{number}") for number in (1, 2) for corner in _CORNERS),
        ),
    ),
    "peg-unplug-side-v3": Port(_site("pegEnd", "plug1")),
    # tools.h
    "hammer-v3": Port(_body("hammer"), _body("nail_link"), named=(Place("joint", "NailSlideJoint", "qpos"),)),
    "assembly-v3": _NUT,
    "disassemble-v3": _NUT,
    "box-close-v3": Port(_body("top_link")),
    "stick-push-v3": Port(*_stick((0.0, 0.09, 0.0)), extra="stick_init_pos", touched="objGeom"),
    "stick-pull-v3": Port(*_stick(None), extra="stick_init_pos", named=(Place("site", "stick_end"),)),
    # fixtures.h
    "door-open-v3": Port(_HANDLE, named=(_DOOR,)),
    "door-close-v3": Port(_HANDLE),
    "door-lock-v3": Port(_site("lockStartLock", "door_link"), object_init=_LOCK),
    "door-unlock-v3": Port(_site("lockStartUnlock", "door_link"), object_init=_LOCK),
    "lever-pull-v3": Port(
        SeenObject(Place("site", "leverStart"), _matrix("geom", "objGeom")),
        extra="_lever_pos_init",
        named=(Place("joint", "LeverAxis", "qpos"),),
    ),
    "drawer-open-v3": Port(SeenObject(_DRAWER, _turned("drawer_link"), (0.0, -0.16, 0.0))),
    "drawer-close-v3": Port(SeenObject(_DRAWER, offset=(0.0, -0.16, 0.05))),
    "window-open-v3": Port(_site("handleOpenStart"), extra="window_handle_pos_init"),
    "window-close-v3": Port(_site("handleCloseStart"), extra="window_handle_pos_init"),
    "button-press-topdown-v3": _ABOVE,
    "button-press-topdown-wall-v3": _ABOVE,
    "button-press-v3": _BEFORE,
    "button-press-wall-v3": _BEFORE,
    "coffee-button-v3": Port(SeenObject(Place("site", "buttonStart"), (IDENTITY, None))),
    "faucet-open-v3": Port(_site("handleStartOpen", "faucetBase", _BELOW)),
    "faucet-close-v3": Port(_site("handleStartClose", "faucetBase", _BELOW)),
    "handle-press-v3": _PRESSED,
    "handle-press-side-v3": _PRESSED,
    "handle-pull-v3": Port(_site("handleRight")),
    "handle-pull-side-v3": Port(_site("handleCenter")),
    "dial-turn-v3": Port(
        SeenObject(Place("body", "dial"), _turned("dial"), (0.0, 0.0, 0.0), Place("joint", "knob_Joint_1", "qpos")),
        extra="dial_push_position",
    ),
}
_NUMBERS = {task: number for number, task in enumerate(PORTS, 1)}


def write_settings(row: Any, task: str, env: Any) -> None:
    """Fill in what of `row` (a ROW) stays while `env`, upstream's environment of `task`, lives."""
    port, data = PORTS[task], env.data
    row["model"], row["data"] = env.model._address, data._address  # noqa: SLF001 - made for this
    for name, place in COMMON.items():
        row[name] = place.address(data)
    seen = [port.seen] if port.second is None else [port.seen, port.second]
    row["objects_seen"] = len(seen)
    for place, thing in zip(row["objects"], seen, strict=False):
        _write_object(place, thing, data)
    for number, named in enumerate(port.named):
        row["named"][number] = named.address(data)
    for own, window in port.windows.values():
        row[f"{own.removesuffix('_init')}_window"] = window.address(data)
    if port.touched is not None:
        for name, geom in (("right_pad", "rightpad_geom"), ("left_pad", "leftpad_geom"), ("main", port.touched)):
            row[f"{name}_geom"] = data.geom(geom).id
    row["mocap_low"], row["mocap_high"] = env.mocap_low, env.mocap_high
    row["low"], row["high"] = env.sawyer_observation_space.low, env.sawyer_observation_space.high
    row["radius"], row["action_scale"] = env.TARGET_RADIUS, env.action_scale
    row["port"], row["path_limit"] = _NUMBERS[task], env.max_path_length


def _write_object(place: Any, seen: SeenObject, data: Any) -> None:
    kind, rotation = seen.rotation
    place["position"], place["rotation_kind"] = seen.position.address(data), kind
    if rotation is not None:
        place["rotation"] = rotation.address(data)
    if seen.offset is not None:
        place["has_offset"], place["offset"] = 1, seen.offset
    if seen.angle is not None:
        place["angle"] = seen.angle.address(data)


def write_episode(row: Any, task: str, env: Any) -> None:
    """Fill in what a reset or a restored state has fixed, and where the episode stands."""
    port = PORTS[task]
    row["target"], row["object_init"] = env._target_pos, env.obj_init_pos  # noqa: SLF001
    row["init_tcp"], row["hand_init"] = env.init_tcp, env.hand_init_pos
    if port.extra is not None:
        row["extra"] = getattr(env, port.extra)
    if port.found is not None:
        found = getattr(env, port.found)
        row["found"], row["extra"] = found is not None, found or 0.0
    row["previous"], row["path_length"] = env._prev_obs, env.curr_path_length  # noqa: SLF001
    row["steps"] = 0


def read_episode(row: Any, task: str, env: Any) -> None:
    """Give `env` the attributes that its own steps would have changed. Nothing, where it has not been stepped."""
    if not row["steps"]:
        return
    found = PORTS[task].found
    if found is not None:
        setattr(env, found, float(row["extra"][0]))
    env._prev_obs = np.array(row["previous"])  # noqa: SLF001
    env._last_stable_obs = np.array(row["last"])  # noqa: SLF001
    env.curr_path_length = int(row["path_length"])
