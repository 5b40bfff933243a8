"""What `tests/samebits.py` trains: a few seconds each, small nets, and each kind of code at least once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

HANDED_OVER, KILLED = 75, -9
#: What a case needs that learns from pictures which MuJoCo draws.
DRAWING = "drawing"
#: Seeds of each profile of the simulator, and days of each: a day is about a second of a processor.
SEEDS, DAYS = 20, 1.0


@dataclass(frozen=True)
class Command:
    """A program of the tree's tests, or `-m` and a module, with its words; all in the folder of the case. `code`: what
    it ends with. `says`: its last line, where that tells how attempts ended.
    """

    words: tuple[str, ...]
    code: int = 0
    says: str = ""


@dataclass(frozen=True)
class Case:
    """What is trained: `files` are written first, then the commands run, one after another. `needs`: packages, and
    `DRAWING`.
    """

    commands: tuple[Command, ...]
    files: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


_TRAIN = ("train", "--config", "training.json", "--run-dir", "run")
_WHOLE = Command(("-m", "trainer", *_TRAIN))


def _asked(*steps: int) -> tuple[Command, ...]:
    """An attempt that is asked to hand over at each of these vector steps, then one to the end."""
    return (*(Command(("handing_over.py", str(at), *_TRAIN), HANDED_OVER) for at in steps), _WHOLE)


def _killed(*updates: int) -> tuple[Command, ...]:
    """An attempt that is killed before each of these updates, then one to the end."""
    words = [("killed_between_updates.py", json.dumps([{at: "SIGKILL"}]), *_TRAIN) for at in updates]
    return (*(Command(one, KILLED) for one in words), _WHOLE)


def _trained(
    *of: dict[str, Any], commands: Iterable[Command] = (_WHOLE,), needs: tuple[str, ...] = (), before: str = "",
    environment: dict[str, str] | None = None,
) -> Case:  # fmt: skip
    """`before`: a program that runs first."""
    fields: dict[str, Any] = {"evaluation_goals": 0, "num_workers": 0, "threads": 1, "device": "cpu"}
    for more in of:
        fields |= {**more, "network": {**fields.get("network", {}), **more.get("network", {})}}
    files = {"training.json": json.dumps(fields)} | ({"before.py": before} if before else {})
    first = (Command(("before.py",)),) if before else ()
    return Case((*first, *commands), files, environment or {}, needs)


_NETS: dict[str, Any] = {"network": {"actor_hidden": [16], "critic_hidden": [16]}}
_MT10: dict[str, Any] = {
    **_NETS, "preset": "debug", "total_steps": 600, "random_steps": 200, "batch_size": 20, "buffer_size": 400,
    "num_envs": 10, "checkpoint_interval": 150, "metrics_interval": 70, "horizon": 37,
}  # fmt: skip
#: The same of three tasks, for what is about the way and not about tasks.
_MT3 = {**_MT10, "tasks": ["reach-v3", "push-v3", "door-open-v3"], "num_envs": 3, "total_steps": 300}
_REACH = {**_MT10, "tasks": ["reach-v3"], "num_envs": 3, "total_steps": 450}
_SMALL: dict[str, Any] = {
    **_NETS, "preset": "debug", "num_envs": 3, "total_steps": 360, "checkpoint_interval": 90, "metrics_interval": 60,
}  # fmt: skip
_OFF: dict[str, Any] = {"batch_size": 12, "buffer_size": 150, "random_steps": 60, "updates_per_step": 0.3}
_PPO: dict[str, Any] = {"rollout_steps": 10, "batch_size": 15, "epochs": 2}
#: No compiler, and no library that was compiled before: Python steps.
_PYTHON = {"CC": "/none", "XDG_CACHE_HOME": "cache"}
_ARM: dict[str, Any] = {"name": "arm", "goals": "box", "horizon": 12, "cameras": ["front"], "image_size": 16}
_CLIPS: dict[str, Any] = {"observation": "clips", "frame_stack": 2, "frame_stride": 3}
_PENDULUM: dict[str, Any] = {**_SMALL, "env": {"name": "gymnasium", "id": "Pendulum-v1", "horizon": 90}}


def _points(algorithm: dict[str, Any], env: dict[str, Any] | None = None, **network: Any) -> dict[str, Any]:
    """The plug-in's point masses; an encoder of its own reads their pictures."""
    small = _PPO if algorithm["name"] == "ppo" else {"rollout_steps": 5} if algorithm["name"] == "a2c" else _OFF
    mine = {} if ":" in algorithm["name"] else small
    sees = {"encoder": {"arch": "anchorleg_toys.glance:Glance", **network.pop("encoder", {})}} if env else {}
    return {
        **_SMALL,
        "algorithm": {**mine, **algorithm},
        "env": {"name": "anchorleg_toys.points:Points", **({"image_size": 16} if env else {}), **(env or {})},
        "network": {**_NETS["network"], **sees, **network},
    }


_STACKS = {"observation": "cameras", "frame_stack": 3, "frame_stride": 2}
_BOTH = {"observation": "both", "critic_sees": "state"}
_DEMOS = "from pathlib import Path\nfrom point_demos import recorded\nrecorded(Path('demos').resolve(), 6)\n"
_SHOWN = {"demos": "demos"}
_CLONED = Command(
    ("-m", "trainer", "demos", "fit", "--demos", "demos", "--config", "training.json", "--run-dir", "fit",
     "--steps", "20", "--batch-size", "8", "--measure-every", "10")
)  # fmt: skip

#: What each suite, algorithm, encoder and way to step has of its own.
_TRAININGS: dict[str, Case] = {
    "mt10": _trained(_MT10, {"evaluation_goals": 1, "evaluation_interval": 300}),
    "mt3-threads": _trained(_MT3, {"num_workers": 2}),
    "mt3-python": _trained(_MT3, environment=_PYTHON),
    "mt3-processes": _trained(_MT3, {"num_workers": 2}, environment=_PYTHON),
    "mt3-handed-over": _trained(_MT3, commands=_asked(33, 29, 9)),
    "mt3-killed": _trained(
        _MT3, commands=(*(Command(("handing_over.py", f"{at}:SIGKILL", *_TRAIN), KILLED) for at in (64, 33)), _WHOLE)
    ),
    "reach-sac": _trained(_REACH, {"algorithm": "sac", "network": {"trunk": 6}}),
    "reach-drqv2": _trained(
        _REACH, {"algorithm": "drqv2", **_OFF, "total_steps": 150, "network": {"encoder": {"arch": "drq"}}},
        {"env": {"name": "metaworld", "tasks": ["reach-v3"], "observation": "cameras", "image_size": 32}},
        needs=(DRAWING,),
    ),
    "arm-random": _trained(
        _SMALL, _OFF,
        {"algorithm": "sac", "env": {"name": "arm", "reward": "sparse", "end_on_success": True, "randomize": True}},
    ),
    "arm-legacy": _trained(_SMALL, {"algorithm": "a2c", "env": {"name": "arm", "observation": "legacy"}}),
    "arm-drqv2": _trained(
        _SMALL, _OFF, {"algorithm": "drqv2", "env": {**_ARM, "observation": "cameras", "randomize_view": True}},
        {"total_steps": 180}, needs=(DRAWING,),
    ),
    "arm-impala": _trained(
        _SMALL, _PPO, {"algorithm": "ppo", "env": {**_ARM, **_BOTH, "frame_stack": 2}, "total_steps": 180},
        {"network": {"encoder": {"arch": "impala", "features": 16}}}, needs=(DRAWING,),
    ),
    **{
        f"arm-{arch}": _trained(
            _SMALL, _OFF, {"algorithm": "sac", "env": {**_ARM, **_CLIPS}, "total_steps": 180},
            {"network": {"encoder": {"arch": arch, **more}}}, needs=(DRAWING,),
        )
        for arch, more in (
            ("simple3dcnn", {"features": 16}),
            ("simple2dcnn", {"features": 16}),
            ("timesformer_tiny", {"freeze": True}),
            ("r3d18", {"freeze": True}),
        )
    },
    "pendulum": _trained(_PENDULUM, _OFF, {"algorithm": "td3", "evaluation_goals": 2}),
    "pendulum-processes": _trained(_PENDULUM, {"algorithm": "mtsac", "num_workers": 2}, _OFF),
    "cartpole-sac": _trained(_PENDULUM, {"env": {"name": "gymnasium", "id": "CartPole-v1"}, "algorithm": "sac"}, _OFF),
    "krull": _trained(
        _SMALL, _PPO,
        {"env": {"name": "gymnasium", "id": "ALE/Krull-v5", "kwargs": {"obs_type": "ram"}}, "algorithm": "ppo"},
        needs=("ale_py",),
    ),
    "pong": _trained(
        _SMALL, _OFF, {"env": {"name": "gymnasium", "id": "ALE/Pong-v5", "image_size": 36}, "algorithm": "sac"},
        {"total_steps": 180, "network": {"encoder": {"features": 16}}}, needs=("ale_py",),
    ),
    "nested": _trained(
        _SMALL, _PPO, {"env": {"name": "gymnasium", "id": "odd_envs:Cameras"}, "algorithm": "ppo"},
        {"network": {"encoder": {"arch": "anchorleg_toys.glance:Glance"}}},
    ),
    "points-drift": _trained(_points({"name": "anchorleg_toys.drift:Drift"})),
    "points-sac": _trained(_points({"name": "sac", "grad_clip": 1.0}, trunk=6), {"replay_on": "device"}),
    "points-sac-chooses": _trained(_points({"name": "sac"}, {"pushes": "three", "observation": "both"})),
    "points-ppo-chooses": _trained(
        _points({"name": "ppo", "target_kl": 0.01, "learning_rate_steps": "total"}, {"pushes": "three", **_STACKS})
    ),
    "points-a2c-clips": _trained(_points({"name": "a2c"}, {"observation": "clips", "frame_stack": 3})),
    "points-td3": _trained(
        _points({"name": "td3", "critic_loss": "categorical", "value_bins": 11, "n_step": 3, "weight_decay": 0.1})
    ),
    "points-td3-clips": _trained(
        _points({"name": "td3", "n_step": 3, "exploration_noise_max": 0.3}, {**_CLIPS, "frame_stack": 3}),
        commands=_asked(41, 30, 9),
    ),
    "points-frozen": _trained(
        _points({"name": "sac", "random_shift": 0}, {**_BOTH, "frame_stack": 2}, encoder={"freeze": True})
    ),
    "points-slow": _trained(
        _points({"name": "drqv2", "preactivation_l2": 0.1}, _BOTH, encoder={"lr_scale": 0.1}), commands=_killed(20)
    ),
    "points-bf16": _trained(_points({"name": "mtsac", "precision": "bf16"}), {"averaging": 0.5}),
    "points-best": _trained(
        _points({"name": "mtsac", "critic_loss": "categorical", "shared_temperature": True}, critic_net="residual")
    ),
    "points-demos": _trained(_points({"name": "mtsac", **_SHOWN}), before=_DEMOS),
    "points-demos-clips": _trained(
        _points({"name": "drqv2", **_SHOWN, "demos_share": 0.3}, {**_CLIPS, "frame_stack": 3}), before=_DEMOS
    ),
    "points-shards": _trained(_points({"name": "td3", "shards": 4})),
    "points-cloned": _trained(
        _points({"name": "ppo"}, _BOTH), before=_DEMOS,
        commands=[_CLONED],
    ),
}  # fmt: skip

_ON = {"total_steps": 640, "checkpoint_interval": 200, "metrics_interval": 128}
_ROLLOUTS = {**_ON, "rollout_steps": 16, "batch_size": 32, "epochs": 3, "num_envs": 4, **_NETS}
_REPLAYED: dict[str, Any] = {
    **_NETS, "total_steps": 500, "random_steps": 200, "batch_size": 20, "buffer_size": 2_000, "num_envs": 10,
    "checkpoint_interval": 200, "metrics_interval": 100, "horizon": 50, "updates_per_step": 0.1,
}  # fmt: skip
_OF_BRC: dict[str, Any] = {**_REPLAYED, "network": {"actor_hidden": [16], "critic_hidden": [16, 16]}}
#: The guide's own nets, for few updates: large ones are computed in other ways.
_LARGE = {**_REPLAYED, "network": {}, "total_steps": 330, "batch_size": 64}
_GPUS = {**_REPLAYED, "total_steps": 400}
#: Preset → what makes it short.
PRESETS: dict[str, dict[str, Any]] = {
    "guide": _LARGE, "guide-2m": _REPLAYED, "guide-20m": _REPLAYED, "aggressive": _REPLAYED, "mclean": _REPLAYED,
    "best": _OF_BRC, "brc": {**_OF_BRC, "total_steps": 300}, "tiny": {**_REPLAYED, "num_envs": 1, "total_steps": 300},
    "debug": _REPLAYED, "arm-ppo": _ROLLOUTS, "arm-a2c": {**_ON, **_NETS}, "arm-sac": {**_REPLAYED, "num_envs": 4},
    "arm-td3": {**_REPLAYED, "total_steps": 2_000}, "fast-td3": _GPUS, "fast": _GPUS, "laptop": _GPUS,
    "cartpole-ppo": _ROLLOUTS, "cartpole-a2c": {**_ON, **_NETS},
    "arm-pixels": {**_ROLLOUTS, "total_steps": 256, "image_size": 36},
    "reach-pixels": {**_REPLAYED, "num_envs": 2, "total_steps": 300, "random_steps": 250, "batch_size": 8},
}  # fmt: skip
_DRAWN = {"arm-pixels", "reach-pixels"}

#: Vector step → what is sent then, or a signal: one attempt each (train_contributed.py).
_SENT = [
    {"40": [0, 1, 2, 3], "70": "SIGUSR2"},
    {"20": list(range(4, 10)), "50": {"drop": "alice"}, "80": "SIGTERM"},
    {"10": list(range(10, 14))},
]


def _group(slot: int, *plans: dict[str, Any], **fields: Any) -> Command:
    words = ("train_group.py", "run", str(slot), json.dumps(plans), json.dumps(fields))
    return Command(words, says=json.dumps([HANDED_OVER] * (len(plans) - 1) + [0]))


def _ranks(training: dict[str, Any], *attempts: tuple[int, dict[str, str]]) -> Case:
    asked = json.dumps([("run", size, signals) for size, signals in attempts])
    codes = [[HANDED_OVER, 0][:size] if signals else [0] * size for size, signals in attempts]
    return Case((Command(("train_ranks.py", ".", asked, json.dumps(training)), says=json.dumps(codes)),), {})


_SHARDED: dict[str, Any] = {**_NETS, "env": "arm", "num_envs": 4, "num_workers": 0, "evaluation_goals": 0}
#: Slot 0 trains alone first; then it gives what it has, whenever it is asked.
_TOGETHER: dict[str, Case] = {
    "contributed": Case((Command(("train_contributed.py", "run", json.dumps(_SENT), "{}"), says="[75, 75, 0]"),), {}),
    "group-rows": Case(
        (_group(0, {}, group={"rows": True, "every": 55}), _group(1, {"1": "wait", "80": "SIGUSR2"}, {})), {}
    ),
    "group-adopt": Case(
        (
            _group(0, {"score": 1.0}, group={"adopt": True}, evaluation_goals=50),
            _group(1, {"score": 0.0, "205": "adopt"}, group={"adopt": True}, evaluation_goals=50),
        ),
        {},
    ),
    "group-mix": Case(
        tuple(
            _group(slot, {"70": "mix"} if slot else {}, init_seed=7, group={"mix": True, "mix_every": 60})
            for slot in (0, 1)
        ),
        {},
    ),
    "ranks-ppo": _ranks(
        {**_SHARDED, "total_steps": 512, "checkpoint_interval": 200, "metrics_interval": 64,
         "algorithm": {"name": "ppo", "shards": 4, "rollout_steps": 32, "batch_size": 32, "epochs": 2}},
        (2, {"20": "SIGUSR2"}), (1, {}),
    ),
    "ranks-sac": _ranks(
        {**_SHARDED, "horizon": 10, "total_steps": 80, "checkpoint_interval": 12, "metrics_interval": 10,
         "algorithm": {"name": "sac", "shards": 4, "batch_size": 32, "updates_per_step": 0.5, "buffer_size": 50,
                       "random_steps": 20}},
        (1, {"5": "SIGUSR2"}), (2, {}),
    ),
}  # fmt: skip

#: Prints nothing; leaves a line of JSON a seed.
_SIMULATE = f"""
import json, sys
from profiles import Profile
from world import World

with open("told.jsonl", "w") as file:
    for seed in range({SEEDS}):
        world = World(getattr(Profile, sys.argv[1])(seed, days={DAYS}), remember=0)
        measured = world.run_to_the_end()
        kept = {{}}
        for folder, names in world.server.folders.items():
            for name in names:
                entry = world.server.entry(None, folder, name)
                if entry is not None and not entry.is_folder:
                    kept[f"{{folder}}/{{name}}"] = world.server.read(None, f"{{folder}}/{{name}}").decode()
        told = {{"seed": seed, "measured": measured, "story": world.timeline.story, "files": kept}}
        file.write(json.dumps(told) + "\\n")
"""
_SIMULATED = {
    f"simulator-{profile.replace('_', '-')}": Case((Command(("simulate.py", profile)),), {"simulate.py": _SIMULATE})
    for profile in ("drawn", "of_experiments")
}

CASES: dict[str, Case] = {
    **_TRAININGS,
    "ppo-killed": _trained({"preset": "arm-ppo"}, _ROLLOUTS, commands=_killed(17, 31)),
    "ppo-handed-over": _trained({"preset": "arm-ppo"}, _ROLLOUTS, commands=_asked(37, 55)),
    "sac-killed": _trained({"preset": "arm-sac"}, _REPLAYED, {"num_envs": 4}, commands=_killed(9)),
    **_TOGETHER,
    **{
        f"preset-{name}": _trained({"preset": name}, fields, needs=(DRAWING,) if name in _DRAWN else ())
        for name, fields in PRESETS.items()
    },
    **_SIMULATED,
}
