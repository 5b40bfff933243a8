"""Which of a task's names the C stepper needs: one entry a ported task, numbered as `enum port` (row.h)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: `enum rotation` (row.h).
ZEROS, MATRIX, QUATERNION = 0, 1, 2


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


@dataclass(frozen=True)
class Port:
    """What of a task is its own. `extra` is an attribute of up to three numbers that its reward reads."""

    number: int
    position: Place
    offset: tuple[float, float, float] | None = None
    rotation: tuple[int, Place] | None = None
    extra: str | None = None
    named: tuple[Place, ...] = field(default=())


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
_DRAWER = Place("body", "drawer_link")
_PUCK = Place("body", "obj"), None, (MATRIX, Place("geom", "objGeom", "xmat"))
_CORNERS = ("bottom_right_corner", "top_left_corner")
PORTS = {
    "reach-v3": Port(1, *_PUCK),
    "push-v3": Port(2, *_PUCK),
    "pick-place-v3": Port(3, *_PUCK),
    "door-open-v3": Port(
        4,
        Place("geom", "handle"),
        rotation=(MATRIX, Place("geom", "handle", "xmat")),
        named=(Place("joint", "doorjoint", "qpos"),),
    ),
    "drawer-open-v3": Port(5, _DRAWER, (0.0, -0.16, 0.0), (QUATERNION, Place("body", "drawer_link", "xquat"))),
    "drawer-close-v3": Port(6, _DRAWER, (0.0, -0.16, 0.05)),
    "button-press-topdown-v3": Port(
        7,
        Place("body", "button"),
        (0.0, 0.0, 0.193),
        (QUATERNION, Place("body", "button", "xquat")),
        extra="_obj_to_target_init",
    ),
    "peg-insert-side-v3": Port(
        8,
        Place("site", "pegGrasp"),
        rotation=(MATRIX, Place("site", "pegGrasp", "xmat")),
        extra="peg_head_pos_init",
        named=(
            Place("site", "pegHead"),
            *(Place("site", f"{corner}_collision_box_{number}") for number in (1, 2) for corner in _CORNERS),
        ),
    ),
    "window-open-v3": Port(9, Place("site", "handleOpenStart"), extra="window_handle_pos_init"),
    "window-close-v3": Port(10, Place("site", "handleCloseStart"), extra="window_handle_pos_init"),
}


def write_settings(row: Any, task: str, env: Any) -> None:
    """Fill in what of `row` (a ROW) stays while `env`, upstream's environment of `task`, lives."""
    port = PORTS[task]
    row["model"], row["data"] = env.model._address, env.data._address  # noqa: SLF001 - made for this
    for name, place in COMMON.items():
        row[name] = place.address(env.data)
    row["position"] = port.position.address(env.data)
    if port.rotation is not None:
        row["rotation_kind"], row["rotation"] = port.rotation[0], port.rotation[1].address(env.data)
    for number, place in enumerate(port.named):
        row["named"][number] = place.address(env.data)
    if port.offset is not None:
        row["has_offset"], row["offset"] = 1, port.offset
    row["mocap_low"], row["mocap_high"] = env.mocap_low, env.mocap_high
    row["low"], row["high"] = env.sawyer_observation_space.low, env.sawyer_observation_space.high
    row["radius"], row["action_scale"] = env.TARGET_RADIUS, env.action_scale
    row["port"], row["path_limit"] = port.number, env.max_path_length


def write_episode(row: Any, task: str, env: Any) -> None:
    """Fill in what a reset or a restored state has fixed, and where the episode stands."""
    row["target"], row["object_init"] = env._target_pos, env.obj_init_pos  # noqa: SLF001
    row["init_tcp"], row["hand_init"] = env.init_tcp, env.hand_init_pos
    extra = PORTS[task].extra
    if extra is not None:
        row["extra"] = getattr(env, extra)
    row["previous"], row["path_length"] = env._prev_obs, env.curr_path_length  # noqa: SLF001
    row["steps"] = 0


def read_episode(row: Any, env: Any) -> None:
    """Give `env` the attributes that its own steps would have changed. Nothing, where it has not been stepped."""
    if row["steps"]:
        env._prev_obs = np.array(row["previous"])  # noqa: SLF001
        env._last_stable_obs = np.array(row["last"])  # noqa: SLF001
        env.curr_path_length = int(row["path_length"])
