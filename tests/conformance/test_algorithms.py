"""What every algorithm must keep, run over all that there are, on point masses: a new file is tested by being there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from point_demos import recorded as recorded_demos
from refused import refused
from safetensors.torch import load, save
from slot_digest import parts_of

from trainer.algorithms.base import Context
from trainer.algorithms.common.cuda_graph import ENGINE, GRAPH, KERNELS
from trainer.algorithms.common.graph_check import CHECKED, leaves_same_bits, made_up
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.experience import Experience
from trainer.buffers.replay import Block
from trainer.checkpoints.checkpoint import Contents
from trainer.config.find import ALGORITHMS, find, names, settings_of
from trainer.config.section import TrainingSection, resolve
from trainer.envs.step import VectorSpec
from trainer.envs.suite import spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import NotFiniteError
from trainer.nets.encoders.base import kept_spaces
from trainer.state import State
from trainer.training.run import advance, capture, fresh, resumed

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
POINTS = "anchorleg_toys.points:Points"
ALL = [*names(ALGORITHMS), "anchorleg_toys.drift:Drift"]
BARRIERS = 36
NETWORK = {"actor_hidden": (16,), "critic_hidden": (16,)}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


#: Those that choose one of several, too.
CHOOSING = ["ppo", "a2c", "sac"]


SEEN = {"encoder": {"arch": "anchorleg_toys.glance:Glance"}}
PICTURES = {"observation": "both", "image_size": 16}
#: Where they lie, a fixture says.
SHOWN = {"demos": "here"}
#: Other ways of some to learn: the algorithm, its settings, those of the net and of the environment.
MORE = {
    "categorical": (
        "td3", {"critic_loss": "categorical", "value_bins": 11, "value_limit": 20.0, "policy_delay": 3}, {}, {},
    ),
    "three steps": ("td3", {"n_step": 3, "exploration_noise_max": 0.4}, {}, {}),
    "all of it": (
        "td3", {"n_step": 5, "critic_loss": "categorical", "random_steps": 0, "weight_decay": 0.1}, {}, {},
    ),
    "trunk": ("sac", {}, {"trunk": 6}, {}),
    "trunk and steps": ("td3", {"n_step": 2}, {"trunk": 6}, {}),
    **{
        f"{what}, {name}": (name, {}, network, env)
        for name in ("ppo", "a2c", "sac", "td3", "drqv2", "cloning")
        for what, network, env in (
            ("pictures", SEEN, PICTURES),
            ("stacks", SEEN, {**PICTURES, "frame_stack": 3, "frame_stride": 2, "observation": "cameras"}),
            ("clips", SEEN, {**PICTURES, "observation": "clips", "frame_stack": 3, "frame_stride": 2}),
            ("frozen", {"encoder": {**SEEN["encoder"], "freeze": True}}, {**PICTURES, "frame_stack": 2}),
            ("critic sees state", SEEN, {**PICTURES, "critic_sees": "state"}),
            ("slow encoder", {"encoder": {**SEEN["encoder"], "lr_scale": 0.1}}, PICTURES),
        )
    },
    "heads": ("mtsac", {"grad_clip": 0.5}, {"critic_net": "heads"}, {}),
    "residual": ("mtsac", {"critic_loss": "categorical", "value_bins": 11}, {"critic_net": "residual"}, {}),
    "demonstrations": ("mtsac", SHOWN, {}, {}),
    "demonstrations, three steps": ("td3", {**SHOWN, "n_step": 3}, {}, {}),
    "demonstrations, clips": (
        "drqv2", {**SHOWN, "demos_share": 0.3}, SEEN,
        {**PICTURES, "observation": "clips", "frame_stack": 3, "frame_stride": 2},
    ),
    "demonstrations, frozen": (
        "sac", SHOWN, {"encoder": {**SEEN["encoder"], "freeze": True}},
        {**PICTURES, "frame_stack": 2, "critic_sees": "state"},
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory):
    """A folder of some."""
    return str(recorded_demos(tmp_path_factory.mktemp("demonstrations") / "out", 8).folder)


@pytest.fixture(
    params=[
        *((name, "any") for name in ALL),
        *((name, "three") for name in CHOOSING),
        *((name, more) for more, (name, *_) in MORE.items()),
    ],
    ids="-".join,
)
def training(request, demonstrations):
    """Small: what each has."""
    name, variant = request.param
    pushes = "three" if variant == "three" else "any"
    fields = settings_of(ALGORITHMS, name).model_fields
    small = {"random_steps": 20, "updates_per_step": 0.4, "batch_size": 12, "buffer_size": 300, "rollout_steps": 5}
    _, settings, network, env = MORE.get(variant, (name, {}, {}, {}))
    mine = {name: value for name, value in small.items() if name in fields} | settings
    if network.get("encoder", {}).get("freeze") and "random_shift" in fields:
        mine["random_shift"] = 0
    env = {"name": POINTS, "pushes": pushes, **env}
    if "demos" in mine or name == "cloning":
        mine["demos"] = demonstrations
    return resolve(TrainingSection(env=env, algorithm={"name": name, **mine}, num_envs=4, network=NETWORK | network))


def envs_of(training):
    return VectorEnv(VectorSpec(suite_of(training), training.num_envs, training.seed))


def all_of(run):
    """Every number of a run."""
    rows = {name: array.tobytes() for name, array in run.experience.own.arrays().items()} if run.experience else None
    return json.dumps(parts_of(capture(run, {})), default=str), rows, run.step, run.updates


def through_files(contents: Contents) -> Contents:
    """As a checkpoint keeps it: safetensors and JSON."""
    parts = {}
    for name, part in contents.parts.items():
        arrays = {key: torch.as_tensor(tensor) for key, tensor in part.tensors.items()}
        kept = load(save(arrays)) if arrays else {}
        if name == "collector":
            kept = {key: tensor.numpy() for key, tensor in kept.items()}
        parts[name] = State(kept, json.loads(json.dumps(dict(part.numbers), allow_nan=False)))
    return replace(contents, parts=parts, policy=json.loads(json.dumps(contents.policy, allow_nan=False)))


def handed_over(run, training, way=KERNELS):
    """The same run in new environments, from its state alone."""
    contents = through_files(capture(run, {}))
    experience = None
    if run.experience is not None:
        experience = Experience(training, kept_spaces(run.collector.envs.spaces, training.network))
        experience.load(contents.parts["experience"])
        block = run.experience.own.block_since((0,) * run.experience.own.num_tasks)
        experience.own.put_back(Block(block.starts, block.counts, block.arrays))
    run.collector.envs.close()
    return resumed(training, CPU, envs_of(training), contents, experience, way)


def must_go_on_exactly(training, way):
    """Interrupted at barriers, also between the updates of one rollout."""
    whole, broken = (fresh(training, CPU, envs_of(training), way) for _ in range(2))
    for barrier in range(BARRIERS):
        advance(whole)
        advance(broken)
        if barrier % 3 == 0 or whole.algorithm.must_learn:
            broken = handed_over(broken, training, way)
        assert all_of(broken) == all_of(whole), barrier
    assert whole.updates > 5


def test_interrupted_at_any_barrier_is_not_interrupted_to_the_bit(training):
    must_go_on_exactly(training, KERNELS)


#: Of the variants above: whose updates are made by the engine on a CPU.
COMPILED = [(name, pushes) for name in ("ppo", "a2c", "sac") for pushes in ("any", "three")]
COMPILED += [(name, f"frozen, {name}") for name in ("ppo", "a2c", "sac", "td3")]
COMPILED += [("td3", "any"), ("td3", "three steps"), ("sac", "demonstrations, frozen")]


@pytest.mark.parametrize("training", COMPILED, indirect=True, ids="-".join)
def test_interrupted_while_the_engine_makes_its_updates_neither(training):
    chosen = find(ALGORITHMS, training.algorithm.name).choose_launch_mode(training, spaces_of(training), CPU, None)
    assert chosen == (ENGINE, None)
    must_go_on_exactly(training, ENGINE)


def test_its_state_put_back_changes_nothing(training):
    run = fresh(training, CPU, envs_of(training))
    for _ in range(20):
        advance(run)
    before = all_of(run)
    run.algorithm.load(run.algorithm.state())
    assert all_of(run) == before


def test_what_was_captured_does_not_change_when_the_run_goes_on(training):
    run = fresh(training, CPU, envs_of(training))
    for _ in range(20):
        advance(run)
    contents = capture(run, {})
    kept = json.dumps(parts_of(contents), default=str)
    for _ in range(10):
        advance(run)
    assert json.dumps(parts_of(contents), default=str) == kept


def test_nothing_is_drawn_from_the_global_stream(training):
    run, before = fresh(training, CPU, envs_of(training)), torch.get_rng_state()
    while run.updates < 2:
        advance(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_as_many_updates_are_made_as_are_owed(training):
    run = fresh(training, CPU, envs_of(training))
    for _ in range(BARRIERS):
        before, owed, must = run.updates, run.algorithm.owed, run.algorithm.must_learn
        step = run.step
        advance(run)
        assert run.updates - before == (1 if must else owed)
        assert run.step == step + (0 if must else training.num_envs)


def made(training, device=CPU, spaces=None):
    """An algorithm at step 0."""
    spaces = spaces or spaces_of(training)
    experience = Experience(training, kept_spaces(spaces, training.network)) if training.uses_experience else None
    kind = find(ALGORITHMS, training.algorithm.name)
    return kind(Context(training, spaces, training.num_envs, device, experience))


def nets_of(training, **seeds):
    """The policy's tensors, as they are first."""
    tensors = made(training.changed(**seeds)).state().tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith("policy.")}


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_seed_decides_its_nets(training):
    one = nets_of(training, seed=0)
    assert one
    assert are_equal(one, nets_of(training, seed=0))
    assert not are_equal(one, nets_of(training, seed=1))


def test_where_there_is_a_seed_of_the_nets_it_alone_decides_them(training):
    assert are_equal(nets_of(training, seed=0, init_seed=7), nets_of(training, seed=1, init_seed=7))
    assert not are_equal(nets_of(training, seed=0, init_seed=7), nets_of(training, seed=0, init_seed=8))
    assert are_equal(nets_of(training, seed=7), nets_of(training, seed=0, init_seed=7))


def test_each_measure_has_its_name(training):
    cls = find(ALGORITHMS, training.algorithm.name)
    run = fresh(training, CPU, envs_of(training))
    while not run.measured:
        advance(run)
    assert run.measured[0].shape == (len(cls.METRICS),)
    assert all(len(values) == len(training.env.tasks) for values in run.algorithm.measures().values())


@pytest.mark.parametrize("training", [*((name, "any") for name in ALL), ("sac", "three")], indirect=True, ids="-".join)
def test_a_policy_that_is_not_finite_does_not_act(training):
    run = fresh(training, CPU, envs_of(training))
    advance(run)
    for parameter in run.algorithm.policy.body.parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(NotFiniteError):
        run.algorithm.act(run.collector.obs, run.collector.task, 10**6)


#: Of the variants above: whose updates can be recorded.
RECORDED = [
    ("mtsac", "any"), ("mtsac", "heads"), ("mtsac", "residual"), ("td3", "any"), ("td3", "categorical"),
    ("td3", "frozen, td3"),
]  # fmt: skip
recorded = pytest.mark.parametrize("training", RECORDED, indirect=True, ids="-".join)


class Recorder:
    """A stand-in for a CUDA graph: does nothing at first, and what it was given at each replay."""

    def __init__(self, spoil=0.0):
        self.replays, self.spoil = 0, spoil

    def __call__(self, update):
        measured = torch.full((5,), torch.nan)

        def replay():
            self.replays += 1
            found = update() + self.spoil
            measured.resize_(found.shape).copy_(found)

        return replay, measured


@recorded
def test_recorded_updates_leave_the_bits_of_others_and_are_left_out_where_they_do_not(training):
    kind, kept, recorder = find(ALGORITHMS, training.algorithm.name), kept_spaces_of(training), Recorder()
    assert leaves_same_bits(kind, training, kept, CPU, recorder)
    assert recorder.replays >= CHECKED
    assert not leaves_same_bits(kind, training, kept, CPU, Recorder(1e-6))


def kept_spaces_of(training):
    return kept_spaces(spaces_of(training), training.network)


def samples(algorithm, training, count):
    for seed in range(count):
        batch = made_up(training.off_policy, kept_spaces_of(training), seed)
        yield Sample(batch, algorithm.draw(batch, algorithm.noise))


@recorded
def test_what_was_recorded_is_forgotten_where_a_state_is_put_back(training):
    """It would go on with moments that are no longer there."""
    algorithm, recorder = made(training), Recorder()
    algorithm.launch(GRAPH, recorder)
    first, *others = samples(algorithm, training, 16)
    for sample in others:
        algorithm.learn(sample)
    before = recorder.replays
    algorithm.load(algorithm.state())
    algorithm.learn(first)
    assert recorder.replays == before > 0


@recorded
def test_an_update_reads_no_number_back(training):
    """On a device whose tensors have no numbers: what would make the host wait for a GPU fails there."""
    meta = torch.device("meta")
    algorithm = made(training, meta)
    for sample in samples(algorithm, training, 3):  # of td3 the third moves the actor
        measured = algorithm.learn(sample)
        assert (measured.shape, measured.device) == ((len(algorithm.METRICS),), meta)


REAL = "algorithm.needs-real-actions"


@pytest.mark.parametrize(("name", "why"), [("td3", REAL), ("drqv2", REAL), ("mtsac", "algorithm.needs-a-row")])
def test_actions_that_are_one_of_several_are_refused_by_those_that_give_numbers(name, why):
    """Before it is made, too: its sizes are asked for."""
    env = {"name": POINTS, **({"observation": "cameras", "image_size": 16} if name == "drqv2" else {})}
    training = resolve(TrainingSection(env=env, algorithm=name, network=NETWORK))
    several = spaces_of(training.changed(env={**env, "pushes": "three"}))
    with refused(why):
        find(ALGORITHMS, name).sizes(training, several)
    with refused(why):
        made(training, spaces=several)
