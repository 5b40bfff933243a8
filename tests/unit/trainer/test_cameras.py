"""Pictures for policies: the right way up, the same bits again, the goal in them, and other views."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from daemons import WORK_S

pytest.importorskip("mujoco")

import mujoco
from refused import refused

from trainer.config.suites import Arm, Metaworld
from trainer.envs.cameras import Cameras, Views
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE
from trainer.envs.suite import StepperUnavailableError, SuiteRef
from trainer.envs.suites.arm.draws import CAMERAS
from trainer.envs.suites.arm.env import ArmEnv
from trainer.machine import drawing

pytestmark = [pytest.mark.trainer, pytest.mark.usefixtures("eyes_here")]
#: A red ball high up, a blue one below it; `upright` and `hanging` look at them from one side, and so from the other
#: way up.
TWO_BALLS = """
<mujoco><worldbody>
  <light directional="true" dir="0 1 0" diffuse="1 1 1"/>
  <camera name="upright" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
  <camera name="hanging" pos="0 -2 0" xyaxes="-1 0 0 0 0 -1"/>
  <geom type="sphere" size=".2" pos="-.4 0 .4" rgba="1 0 0 1"/>
  <geom type="sphere" size=".2" pos=".4 0 -.4" rgba="0 0 1 1"/>
</worldbody></mujoco>
"""


def scene_of(text=TWO_BALLS):
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def mujoco_context(size):
    """As others make theirs."""
    return importlib.import_module(f"mujoco.{drawing.prepare().way}").GLContext(size, size)


@pytest.fixture
def arm():
    def make(**settings):
        return SuiteRef(Arm(**{"observation": "both", **settings})).open().make(0)

    return make


def test_left_is_left_and_up_is_up_also_where_a_camera_hangs_upside_down():
    model, data = scene_of()
    seen = Cameras("two balls", model, ("upright", "hanging"), 32).picture(data)
    assert seen.shape == (6, 32, 32)
    assert np.abs(seen[:3].astype(int) - seen[3:]).mean() < 2  # but for pixels of their rims
    red, _, blue = seen[:3].astype(int)
    assert red[:16, :16].sum() > 20 * (red[16:].sum() + 1)
    assert blue[16:, 16:].sum() > 20 * (blue[:16].sum() + 1)


def test_models_of_several_kinds_and_sizes_are_drawn_in_turn():
    model, data = scene_of()
    other, its = scene_of(TWO_BALLS.replace("1 0 0 1", "0 1 0 1"))
    one, two = Cameras("red", model, ("upright",), 32), Cameras("green", other, ("upright",), 48)
    expected = one.picture(data).tobytes(), two.picture(its).tobytes()
    for _ in range(3):
        assert (one.picture(data).tobytes(), two.picture(its).tobytes()) == expected


def test_somebody_elses_renderer_made_and_freed_between_changes_nothing():
    def drawn():
        model, data = scene_of()
        ours = Cameras("between", model, ("upright",), 32)

        def both():
            """Two pictures, as a driver that draws nothing leaves the one before."""
            found = []
            for light in (1.0, 0.5):
                model.light_diffuse[:] = light
                found.append(ours.picture(data).tobytes())
            return tuple(found)

        seen = [both()]
        context = mujoco_context(32)
        context.make_current()
        theirs = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        seen.append(both())
        theirs.free()  # Gymnasium frees what it has in whatever context is the current one
        seen.append(both())
        context.free()
        return [*seen, both()]

    with ThreadPoolExecutor(1) as another_thread:  # whose context has no other kinds
        seen = another_thread.submit(drawn).result(WORK_S)
    assert len(set(seen)) == 1
    assert len(set(seen[0])) == 2


class Noisy(Cameras):
    """As a driver that draws differently each time."""

    drawn = count()

    def picture(self, *more):
        return super().picture(*more) ^ np.uint8(next(self.drawn))


def test_a_driver_that_draws_differently_each_time_is_refused():
    model, _ = scene_of()
    with ThreadPoolExecutor(1) as another_thread, refused("drawing.not-repeated"):  # it has not looked yet
        another_thread.submit(Noisy, "noisy", model, ("upright",), 16).result(WORK_S)


def test_a_camera_that_is_not_there_is_named():
    model, _ = scene_of()
    with refused("camera.unknown", camera="uprigt", hint='did you mean "upright"?'):
        Cameras("x", model, ("uprigt",), 16)


@pytest.mark.parametrize("camera", CAMERAS)
def test_the_arms_goal_is_seen_by_each_camera(arm, camera):
    """Green is the goal's alone. Nine of ten at least: the arm stands before some."""
    env = arm(cameras=(camera,), image_size=32)
    seen = 0
    for seed in range(40):
        red, green, blue = env.reset(0, seed)[IMAGE].astype(int)
        seen += bool(((green > 2 * red) & (green > 2 * blue)).any())
    assert seen >= 36


def test_both_is_pictures_and_what_the_arm_feels_and_critics_may_see_all(arm):
    plain = SuiteRef(Arm()).open().make(0).reset(0, 3)[STATE]
    seen = arm(critic_sees="state").reset(0, 3)
    assert (seen[PRIVILEGED] == plain).all()
    assert seen[STATE].shape == (18,)
    assert (seen[STATE] == np.delete(plain, [17, 18, 19, 20, 21, 22, 24])).all()  # no goal, no way, no word of nearness
    assert set(arm(observation="cameras").reset(0, 3)) == {IMAGE}


def test_a_view_of_its_own_changes_the_picture_and_nothing_else(arm):
    plain, other = arm(randomize=True), arm(randomize=True, randomize_view=True)
    pictures = [other.reset(0, seed)[IMAGE] for seed in (1, 2, 1)]
    assert (pictures[0] == pictures[2]).all()
    assert (pictures[0] != pictures[1]).any()
    one, two = plain.reset(0, 7), other.reset(0, 7)
    assert (one[STATE] == two[STATE]).all()
    off = np.abs(one[IMAGE].astype(int) - two[IMAGE]).mean()
    assert 1 < off < 60
    action = np.full(7, 0.3, np.float32)
    assert (plain.step(action).obs[STATE] == other.step(action).obs[STATE]).all()


def test_cameras_and_light_stay_near_where_they_were():
    env = ArmEnv(Arm())
    model, views = env.model, Views(env.model)
    places, quats = model.cam_pos.copy(), model.cam_quat.copy()
    for seed in range(20):
        views.look(env.data, views.draw(np.random.default_rng(seed)))
        assert 0 < np.abs(model.cam_pos - places).max() <= 0.02
        turned = 2 * np.arccos(np.clip(np.abs((model.cam_quat * quats).sum(1)), 0, 1))
        assert np.degrees(turned).max() <= 2 * np.sqrt(3) + 1e-6
        assert np.linalg.norm(model.light_dir, axis=1) == pytest.approx(1)
    views.look(env.data, np.zeros(views.size))
    assert model.cam_pos == pytest.approx(places)
    assert model.cam_quat == pytest.approx(quats)


def test_pictures_are_drawn_by_python_and_judged_by_nobody():
    for settings in (Arm(observation="both"), Metaworld(tasks=("reach-v3",), observation="cameras")):
        suite = SuiteRef(settings).open()
        assert suite.bounds is None
        assert suite.stepped_natively("auto") == frozenset()
        with pytest.raises(StepperUnavailableError, match="pictures are drawn by Python"):
            suite.stepped_natively("native")


def test_metaworlds_goal_is_seen_and_its_table_is_below_its_arm():
    pytest.importorskip("metaworld")
    env = SuiteRef(Metaworld(tasks=("reach-v3",), observation="both", critic_sees="state")).open().make(0)
    plain = SuiteRef(Metaworld(tasks=("reach-v3",))).open().make(0)
    seen_at = 0
    for start in range(12):
        obs = env.reset(start, 0)
        red, green, blue = obs[IMAGE].astype(int)
        seen_at += bool(((red > 3 * green) & (blue > 3 * green) & (red > 80)).any())
        whole = plain.reset(start, 0)[STATE]
        assert (obs[PRIVILEGED] == whole).all()
        assert (obs[STATE] == whole[:4]).all()
    assert seen_at >= 11
    wood = (red > green) & (green > blue) & (red < 140) & (red > 70)
    assert wood[40:].sum() > 4 * wood[:24].sum()
