"""What an environment looks like, against MuJoCo's own word for where everything is."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scene_files import SceneFile

pytest.importorskip("mujoco")

import mujoco
from suites import metaworld

from anchorleg.live.batches import MOST_SCENE_BYTES
from trainer.config.suites import Gymnasium
from trainer.envs.shown import MOST_BODIES, bodies_shown, parts_of, poses_of
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.live.scene import packed_scene

pytestmark = pytest.mark.trainer
SOME_OF_ALL = """
<mujoco>
  <asset>
    <texture name="halves" type="2d" builtin="flat" rgb1="0 0.5 1" width="16" height="16"/>
    <material name="red" rgba="0.9 0.1 0.2 0.7"/>
    <material name="painted" texture="halves" rgba="1 1 0.5 1"/>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 2 0  0 0 3  4 4 4"/>
    <hfield name="hills" nrow="2" ncol="2" size="1 1 1 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" pos="0 0 -0.5"/>
    <geom name="land" type="hfield" hfield="hills"/>
    <body name="fixed" pos="1 2 3" euler="10 20 30">
      <geom type="box" size="0.1 0.2 0.3" pos="0.5 0 0" material="red"/>
      <geom type="sphere" size="0.1" group="3"/>
      <geom type="sphere" size="0.1" rgba="1 1 1 0"/>
      <body name="swings" pos="0 1 0" euler="0 40 0">
        <joint axis="1 0 0"/>
        <geom type="capsule" size="0.1 0.4" euler="50 0 0" material="painted"/>
        <geom type="mesh" mesh="wedge" pos="0 0 1" rgba="0.1 0.2 0.3 1"/>
        <geom type="mesh" mesh="wedge" material="red" rgba="0.5 0.6 0.7 1"/>
      </body>
    </body>
    <body mocap="true" pos="-1 0 0"><geom type="ellipsoid" size="0.1 0.2 0.3"/></body>
    <body name="nothing"/>
    <body name="rolls"><freejoint/><geom type="cylinder" size="0.2 0.1"/></body>
  </worldbody>
</mujoco>
"""


def env_of(xml):
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    for _ in range(7):
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    return SimpleNamespace(simulation=(model, data))


def matrix(quat):
    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, np.asarray(quat, float))
    return out.reshape(3, 3)


def drawn_places(scene, poses):
    """Where whoever draws puts each geom: (place, turn)."""
    found = []
    for geom in scene.header["geoms"]:
        pose = (0, 0, 0, 1, 0, 0, 0) if geom["body"] < 0 else poses[geom["body"]]
        turn = matrix(pose[3:])
        found.append((pose[:3] + turn @ geom["pos"], turn @ matrix(geom["quat"])))
    return found


def seen_geoms(model, shapes):
    return [
        i
        for i in range(model.ngeom)
        if model.geom_group[i] <= 2 and model.geom_rgba[i, 3] > 0 and int(model.geom_type[i]) in shapes
    ]


def check_places(env, of_geoms):
    model, data = env.simulation
    scene = SceneFile(packed_scene(parts_of(env)))
    assert len(scene.header["geoms"]) == len(of_geoms)
    bodies = bodies_shown(model)
    assert scene.header["bodies"] == [model.body(i).name or f"body {i}" for i in bodies]
    for (place, turn), geom in zip(drawn_places(scene, poses_of(data, bodies)), of_geoms, strict=True):
        assert place == pytest.approx(data.geom_xpos[geom], abs=1e-5)
        assert turn == pytest.approx(data.geom_xmat[geom].reshape(3, 3), abs=1e-5)
    return scene


def test_every_shape_is_where_mujoco_has_it():
    env = env_of(SOME_OF_ALL)
    model = env.simulation[0]
    wanted = seen_geoms(model, set(range(9)) - {1})
    scene = check_places(env, wanted)
    types = [geom["type"] for geom in scene.header["geoms"]]
    assert types == ["plane", "box", "capsule", "mesh", "mesh", "ellipsoid", "cylinder"]
    assert scene.header["bodies"] == ["fixed", "swings", "body 3", "rolls"]
    assert scene.header["left_out"] == 1
    for geom, number in zip(scene.header["geoms"], wanted, strict=True):
        assert geom["size"] == pytest.approx(model.geom_size[number], rel=1e-5)
        assert (geom["mesh"] is None) == (geom["type"] != "mesh")


@pytest.mark.parametrize("name", ["vertices.0", "pos", "rgba"])
def test_what_is_nowhere_is_refused(name):
    parts = parts_of(env_of(SOME_OF_ALL))
    parts.arrays[name][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"number|position"):
        packed_scene(parts)


def test_what_has_no_bodies_too_many_or_no_simulation_is_not_shown():
    bodies = "".join("<body><geom size='1'/></body>" for _ in range(MOST_BODIES + 1))
    assert parts_of(env_of(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")) is None
    assert parts_of(env_of("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")) is None
    assert parts_of(SimpleNamespace()) is None
    assert parts_of(None) is None


@pytest.mark.parametrize("task", ["door-open-v3", "peg-insert-side-v3"])
def test_meta_worlds_bodies_are_where_it_has_them_also_those_that_a_reset_moves(task):
    suite = metaworld((task,)).open()
    env = suite.make(0)
    sizes = set()
    for start in (0, 7):
        env.reset(start, 0)
        for _ in range(3):
            env.step(np.array([0.3, -0.2, 0.1, 1], np.float32))
        model, data = env.simulation
        mujoco.mj_forward(model, data)
        check_places(env, seen_geoms(model, {0, 2, 3, 4, 5, 6, 7}))
        sizes.add(packed_scene(parts_of(env)))
    assert len(sizes) == 1, "episodes of a task share their scene"
    assert len(sizes.pop()) < MOST_SCENE_BYTES / 10


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("bodies", [[3, 2], [2, 3]])
def test_a_reset_may_build_a_model_of_other_bodies_while_it_is_watched(bodies, workers):
    suite = SuiteRef(Gymnasium(id="odd_envs:Rebuilt", kwargs={"bodies": bodies, "length": 3}))
    with VectorEnv(VectorSpec(suite, 1, 3), workers) as envs:
        envs.reset()
        envs.watch([0])
        seen = []
        for _ in range(8):
            envs.step(np.full((1, 1), -0.5, np.float32))
            seen.append(envs.glimpse(0).poses)
    first, second = bodies
    assert [len(poses) for poses in seen] == [first, first, 0, second, second, 0, first, first]
    for poses in seen:
        assert poses[:, 0].tolist() == list(range(len(poses)))
