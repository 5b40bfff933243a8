"""Everything that a run is made of between two vector steps, one vector step of it, and its way into a checkpoint.

Nothing in here looks at a clock, at what was saved, or at how often the run was interrupted.

Where ranks train together, rank 0 alone decides, saves, evaluates, publishes and talks: it says what comes next, and
the others do it with their shards. Between two words a rank asks nobody but those that compute the same; so all do the
same, in the same order, whatever a clock says. On-policy, the others `follow`: they play, too. Off-policy, they
`assist`: they have the learner alone, as rank 0 hands it out, and make its updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.base import Algorithm, Context
from trainer.algorithms.common.adoption import learned_of
from trainer.algorithms.common.cuda_graph import KERNELS
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.experience import Experience
from trainer.checkpoints.checkpoint import AVERAGED, Contents
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training, identity
from trainer.envs.collector import Collector, Envs, Transition
from trainer.errors import NotFiniteError
from trainer.machine.group import Group, gathered, must_be_the_same, packed, unpacked
from trainer.nets.average import MovingAverage
from trainer.nets.encoders.base import kept_spaces
from trainer.state import State
from trainer.training.inputs import lay_down
from trainer.training.meter import Meter, ShardedMeter


@dataclass
class TrainingRun:
    """A run at a barrier.

    `experience`: what an off-policy algorithm learns from, else None. `average`: of the actor's weights, None where
    `averaging` is 0. `adopted`, `mixed`: how often another slot's learner was taken over, and others' weights were
    mixed in. `measured`: metrics of updates on their way to the meter (left on the device, so that an update waits for
    no copy). `group`: its ranks.
    """

    training: Training
    algorithm: Algorithm
    collector: Collector
    experience: Experience | None
    meter: Meter | ShardedMeter
    average: MovingAverage | None = None
    step: int = 0
    updates: int = 0
    adopted: int = 0
    mixed: int = 0
    measured: list[Tensor] = field(default_factory=list)
    group: Group = field(default_factory=Group.alone)

    @property
    def ring_rows(self) -> int:
        """Rows that others sent in."""
        return self.experience.ring_rows if self.experience is not None else 0

    @property
    def learners(self) -> dict[str, int]:
        """How often those of other slots came in, where they did."""
        return {name: count for name, count in (("adopted", self.adopted), ("mixed", self.mixed)) if count}


def fresh(
    training: Training, device: torch.device, envs: Envs, launch_mode: str = KERNELS, group: Group | None = None
) -> TrainingRun:
    """A run at step 0. `launch_mode`: see `trainer.algorithms.common.cuda_graph`."""
    collector = Collector(envs)
    experience = (
        Experience(training, kept_spaces(envs.spaces, training.network), device) if training.uses_experience else None
    )
    return _run(training, device, collector, experience, launch_mode, group)


def as_begun(training: Training, device: torch.device, envs: Envs) -> TrainingRun:
    """`fresh`, with updates made as in a run that begins here."""
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    return fresh(training, device, envs, algorithm.choose_launch_mode(training, envs.spaces, device, None)[0])


def resumed(
    training: Training,
    device: torch.device,
    envs: Envs,
    contents: Contents,
    experience: Experience | None,
    launch_mode: str = KERNELS,
    group: Group | None = None,
) -> TrainingRun:
    """A run at the barrier that `contents` was captured at, with its `experience`. Where there was no moving average it
    begins with the actor as it is.
    """
    parts = contents.parts
    run = _run(training, device, Collector(envs, parts["collector"]), experience, launch_mode, group)
    run.algorithm.load(parts["algorithm"])
    anew = run.collector.anew
    if anew is not None and anew.any():
        run.algorithm.begin_anew(anew)
    run.meter.load(parts["meter"])
    run.average = _average(training, run.algorithm)
    if run.average is not None and AVERAGED in parts:
        run.average.load(parts[AVERAGED])
    run.step = contents.step
    numbers = parts["run"].numbers
    run.updates = numbers["updates"]
    run.adopted, run.mixed = numbers.get("adopted", 0), numbers.get("mixed", 0)
    if experience is not None:
        experience.peer_share = training.group.share
    return run


def _run(
    training: Training,
    device: torch.device,
    collector: Collector,
    experience: Experience | None,
    launch_mode: str,
    group: Group | None,
) -> TrainingRun:
    kind: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    group = group or Group.alone()
    context = Context(training, collector.envs.spaces, collector.num_envs, device, experience, launch_mode, group)
    algorithm: Algorithm = kind(context)
    if training.demos is not None:
        shown: Any = algorithm if experience is None else experience.demos
        lay_down(shown.lay, training, collector.envs.spaces, algorithm.policy, device)
    make_meter = partial(Meter, kind.METRICS, training.env.tasks, training.env.MEASURES)
    own = group.own(training.algorithm.shards)
    meter = ShardedMeter(group, own, make_meter) if training.plays_in_shards else make_meter()
    return TrainingRun(training, algorithm, collector, experience, meter, _average(training, algorithm), group=group)


def _average(training: Training, algorithm: Algorithm) -> MovingAverage | None:
    return MovingAverage(algorithm.policy, training.averaging) if training.averaging else None


def advance(run: TrainingRun) -> Transition | None:
    """To the next barrier: one update where the algorithm must learn first, else one vector step, with the owed updates
    while the environments step.

    So the updates that a vector step earns are made during the next one, from a replay that has its rows; whether
    stepping and learning really run side by side changes no number.

    A loss that is not finite makes the actor so, and that is noticed here, at the next step. Returns the vector step;
    None where there was none. Errors: NotFiniteError, EnvError.
    """
    algorithm, collector = run.algorithm, run.collector
    if algorithm.must_learn:
        learn(run, 1)
        return None
    try:
        actions = algorithm.act(collector.obs, collector.task, run.step)
    except NotFiniteError:
        drain(run)  # which says more, where a loss was not finite
        raise
    owed = algorithm.owed
    collector.begin(actions, beside=owed > 0)
    if run.experience is not None:
        run.group.tell(owed)  # for the ranks that have no rows
    learn(run, owed)
    transition = collector.wait()
    algorithm.observe(transition, run.step)
    step = transition.step
    run.meter.add_episodes(step.finished, step.task, step.episode_return, step.episode_success, step.episode_measures)
    run.step += run.training.num_envs
    return transition


def learn(run: TrainingRun, updates: int) -> None:
    """So many updates."""
    for _ in range(updates):
        run.measured.append(run.algorithm.update())
        run.updates += 1
        if run.average is not None:
            run.average.follow()


def learn_the_rest(run: TrainingRun, after_each: Callable[[], None] = lambda: None) -> None:
    """The updates that would come before the next step, where there is none: the last rollout counts as each did."""
    while run.algorithm.must_learn:
        learn(run, 1)
        after_each()


def crossed(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]: what makes a vector step a barrier. 0: never."""
    return interval > 0 and after // interval > before // interval


def drain(run: TrainingRun) -> None:
    """Hand the updates' measurements to the meter. Errors: NotFiniteError, at the first that is not finite."""
    first = run.updates - len(run.measured) + 1
    for number, values in enumerate(torch.stack(run.measured).tolist() if run.measured else (), first):
        wrong = [name for name, value in zip(run.algorithm.METRICS, values, strict=True) if not math.isfinite(value)]
        if wrong:
            raise NotFiniteError("learning.loss-not-finite", what=wrong, update=number, step=run.step)
        run.meter.add_update(values)
    run.measured.clear()


def row(run: TrainingRun) -> dict[str, Any]:
    """The row of metrics that ends here; the sums start anew. Errors: NotFiniteError."""
    drain(run)
    return run.meter.row(run.step, run.algorithm.measures())


def capture(run: TrainingRun, numeric: Mapping[str, Any], of_features: Mapping[str, Any] | None = None) -> Contents:
    """A checkpoint's contents, copied, so that the run may go on at once. Changes no number of the run.

    `numeric`: the choices that bit equality also depends on; `of_features`: the numbers of features. Where there are
    several ranks, rank 0's has the shards of all. Errors: NotFiniteError; RanksError where the ranks have come to
    different numbers.
    """
    drain(run)
    learned = run.algorithm.state()
    for name, tensor in learned.tensors.items():
        if not name.startswith("adam.") and not bool(torch.isfinite(tensor).all()):
            raise NotFiniteError("learning.parameter-not-finite", what=[name], step=run.step)
    numbers = {"updates": run.updates, **run.learners, **(of_features or {})}
    told = {"numeric": dict(numeric), "spaces": run.collector.envs.spaces.words}
    parts = {
        "run": State({}, {**numbers, **told}),
        "algorithm": learned,
        "collector": run.collector.state(),
        "meter": run.meter.state(),
    }
    if run.average is not None:
        parts[AVERAGED] = run.average.state()
    if run.experience is not None:
        parts["experience"] = run.experience.state()
    if run.training.plays_in_shards:
        of_shards = {name: parts[name] for name in ("algorithm", "collector", "meter")}
        parts |= gathered(run.group, of_shards)
    elif run.group.size > 1:
        must_be_the_same(run.group, {"algorithm": learned_of(learned)})
    about = run.training.model_dump(mode="json"), identity(run.training)
    return Contents(run.step, parts, run.algorithm.policy.spec.as_json(), *about)


_LEARNER = "algorithm"


class Order(IntEnum):
    """What rank 0 says."""

    ADVANCE = auto()
    ROW = auto()
    CAPTURE = auto()
    LOAD = auto()
    WAIT = auto()
    END = auto()


def hand_out(run: TrainingRun) -> None:
    """Give the learner of rank 0 to those that assist: at the begin, and where it was replaced."""
    if run.experience is not None and run.group.size > 1:
        run.group.tell(Order.LOAD)
        run.group.share(packed({_LEARNER: run.algorithm.state()}))


def assist(algorithm: Algorithm, group: Group) -> None:
    """All that a rank but the first does of an off-policy training, until rank 0 ends it.

    Errors: RanksError where the learners differ, or rank 0 is gone.
    """
    while True:
        word = group.tell()
        if word == Order.ADVANCE:
            for _ in range(group.tell()):
                algorithm.learn(Sample.unpacked(group.share()))
        elif word == Order.LOAD:
            algorithm.load(unpacked(group.share())[_LEARNER])
        elif word == Order.CAPTURE:
            must_be_the_same(group, {_LEARNER: learned_of(algorithm.state())})
        elif word == Order.END:
            return


def follow(run: TrainingRun, numeric: Mapping[str, Any]) -> None:
    """All that a rank but the first does of an on-policy training, until rank 0 ends it.

    Errors: as `advance`, `row` and `capture`.
    """
    while True:
        word = run.group.tell()
        if word == Order.ADVANCE:
            advance(run)
            if run.step >= run.training.total_steps:
                learn_the_rest(run)
        elif word == Order.ROW:
            row(run)
        elif word == Order.CAPTURE:
            capture(run, numeric)
        elif word == Order.END:
            return
