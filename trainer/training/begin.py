"""What an attempt starts from: its checkpoint, its environments, and what the bits of its numbers depend on.

The training itself is `trainer.training.loop`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from anchorleg.files import make_folder
from anchorleg.job import Job
from trainer.algorithms.base import Algorithm, Context
from trainer.algorithms.common.cuda_graph import KERNELS
from trainer.buffers.experience import Experience
from trainer.checkpoints.resume import Start, find_start
from trainer.checkpoints.saver import Saver
from trainer.config.find import ALGORITHMS, find
from trainer.config.network import licence_note
from trainer.config.training import Training
from trainer.envs.collector import Envs, ShardedEnvs
from trainer.envs.foreign import decide
from trainer.envs.pictures import ready_to_draw
from trainer.envs.spaces import Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef, spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.envs.workers import is_quick
from trainer.errors import ConfigError
from trainer.evaluation.process import Begin, EvaluatorProcess, read_past
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.group import Group
from trainer.machine.host import processor, read_host, variables
from trainer.machine.launching import check_ranks, cores_of_rank
from trainer.nets.encoders.base import encoder_for, kept_spaces
from trainer.sharing.copies import clear_taken
from trainer.sharing.notice import say_none
from trainer.sharing.publisher import clear_over
from trainer.sharing.spotcheck import Resimulator
from trainer.training import memory
from trainer.training.features.base import Feature, RunningAttempt
from trainer.training.features.evaluation import Evaluations
from trainer.training.features.final import BestCheckpoint, FinalExport, leave_final
from trainer.training.features.giving import EpisodeGiver
from trainer.training.features.inflow.intake import Intake
from trainer.training.features.progress import ProgressReports, TrainingDisplay
from trainer.training.features.publication import Publication, ShownFrames
from trainer.training.features.rows import Diagnostics, MetricsJournal, TensorBoardEvents
from trainer.training.features.wandb import curves_of
from trainer.training.inputs import with_demos, with_weights
from trainer.training.loop import Loop
from trainer.training.run import Order, TrainingRun, assist, follow, fresh, hand_out, resumed

MakeEnvs = Callable[[VectorSpec, int], Envs]
Resimulate = Callable[[VectorSpec], Resimulator | None]


def _resimulator(spec: VectorSpec) -> Resimulator | None:
    return None if spec.suite.open().starts is None else Resimulator(spec.suite)


def run(
    job: Job,
    training: Training,
    show: TrainingDisplay,
    *,
    make_envs: MakeEnvs = VectorEnv,
    evaluator: Begin = EvaluatorProcess,
    resimulate: Resimulate = _resimulator,
    group: Group | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Train until the last step or until the job must hand over. Returns the exit code: 0 or 75.

    `group`: the ranks that train it together; each calls this, all but the first do what the first says, and return 0.

    `resimulate`: makes what does other machines' experience again; None where `make_envs`' cannot be repeated.
    `environ`: variables that say where curves go; left out: nowhere.

    Errors: TrainerError (its exit code), EnvError.
    """
    group = group or Group.alone()
    check_ranks(training.algorithm.shards, group.size)
    chosen = machine.device_of_job(training.device)
    if chosen.type == "cuda" and group.size > 1:
        torch.cuda.set_device(group.at % torch.cuda.device_count())
    ready_to_draw(training.env)  # before a suite is opened: MuJoCo may come with it
    training, keep_demos = with_demos(job, training, group)
    limits = read_host().memory_bytes, machine.memory_of(chosen)
    memory.check(training, chosen.type, *limits, group.size, group.here, accepts=job.accepts_contributions)
    must_learn_alike(training, group)
    training, keep_weights = with_weights(job, training, group)
    assists = training.uses_experience and not group.is_first
    start = None if assists else find_start(job, training, chosen)
    if not training.uses_experience:
        group.must_agree("the newest good checkpoint", _digest([start.ref.attempt, start.ref.step] if start else None))
    if group.is_first:
        _begin_attempt(job, training, start, show, keep_weights, keep_demos)
    if group.tell(int(start is not None and is_complete(job, training, start))):
        if group.is_first and start is not None:
            _leave_complete(job, training, start, show)
        return 0
    if assists:
        _assist(training, suite_of(training, job.run_dir / "goals").open().spaces, chosen, group, show)
        return 0
    step = start.ref.step if start else 0
    if group.is_first:
        job.report(step=step, total=training.total_steps, checkpoint_step=step)
    show.say(
        f"attempt {job.attempt}: "
        + (f"continuing at step {step:,} of attempt {start.ref.attempt}" if start else "starting from scratch")
        + (f", {group.size} ranks" if group.size > 1 else "")
    )
    suite = suite_of(training, job.run_dir / "goals")
    num_workers = choose_workers(training, suite, group.here)
    recorded = start.contents.numeric if start is not None else {}
    choose = partial(choose_numerics, training, suite.open().spaces, chosen, show=show)
    numeric = _numerics_of_all(group, recorded, choose)
    numeric["workers"] = num_workers
    spec = VectorSpec(suite, training.num_envs, training.seed, attempt=job.attempt)
    envs = _envs_of(spec, num_workers, training, group, make_envs)
    numeric["stepping"] = envs.stepping
    try:
        state = _state_of(training, chosen, envs, start, numeric["updates"], group)
        if not group.is_first:
            follow(state, numeric)
            return 0
        hand_out(state)
        saver = Saver.after(job, training, start)
        features = _features(job, training, start, numeric, evaluator, partial(resimulate, spec), environ or {}, show)
        attempt = RunningAttempt(job, training, state, start, saver, show.say, features)
        code = Loop(attempt, numeric).to_the_end()
        decide(code)
        group.tell(Order.END)
        return code
    finally:
        envs.close()


def _features(
    job: Job,
    training: Training,
    start: Start | None,
    numeric: Mapping[str, Any],
    evaluator: Begin,
    resimulate: Callable[[], Resimulator | None],
    environ: Mapping[str, str],
    show: TrainingDisplay,
) -> tuple[Feature, ...]:
    """What the training does beside learning, in the order in which each is called."""
    features = (
        Evaluations(job, training, evaluator, numeric["workers"]),
        BestCheckpoint(job),
        FinalExport(),  # before a report says that the last step is saved: that ends the slot
        ProgressReports(show),
        Publication(),
        *([EpisodeGiver(job, training)] if training.group.rows else []),
        Intake(job, training, start, resimulate),
        ShownFrames(),
        Diagnostics(),
        MetricsJournal(job),
        TensorBoardEvents(job.slot_dir / "tb", after=start.ref.step if start else 0),
        *curves_of(job, training.model_dump(mode="json"), environ, show.say),
    )
    if start is not None:
        for feature in features:
            feature.load(start.contents.parts["run"].numbers)
    return features


def must_learn_alike(training: Training, group: Group) -> None:
    """Errors: ConfigError where an encoder that learns keeps statistics of what it reads, and there are ranks, each of
    which reads other batches; or weights are mixed, which are judged by reading what a resume does not read again.
    """
    if group.size == 1 and not training.group.mix:
        return
    for key, spec in spaces_of(training).of_policy.obs.items():
        is_frozen = training.network.freezes(key)
        encoder = None if is_frozen else encoder_for(key, spec, training.network, None)
        for layer in encoder.modules() if encoder is not None else ():
            if layer.training and getattr(layer, "track_running_stats", False):
                kinds = {"encoder": type(encoder).__name__, "layer": type(layer).__name__}
                raise ConfigError("encoder.running-statistics", key=key, **kinds)


def _assist(training: Training, spaces: Spaces, chosen: torch.device, group: Group, show: TrainingDisplay) -> None:
    """All that another rank than the first does of an off-policy training: it has nets, and neither environments nor
    rows, and reads no checkpoint.
    """
    numeric = _numerics_of_all(group, {}, partial(choose_numerics, training, spaces, chosen, show=show))
    experience = Experience(training, kept_spaces(spaces, training.network))  # where no row comes it takes no memory
    kind: Any = find(ALGORITHMS, training.algorithm.name)
    assist(kind(Context(training, spaces, training.num_envs, chosen, experience, numeric["updates"], group)), group)


def _begin_attempt(
    job: Job, training: Training, start: Start | None, show: TrainingDisplay, *keeps: Callable[[], None]
) -> None:
    for keep in keeps:
        keep()
    make_folder(job.attempt_dir)
    job.start_from(start.ref if start else None)
    licence = licence_note(training.network.encoder.arch, training.network.encoder.weights)
    for note in (*(start.notes if start else ()), licence):
        if note:
            show.say(note)


def _leave_complete(job: Job, training: Training, start: Start, show: TrainingDisplay) -> None:
    step = start.ref.step
    leave_final(job, show.say)  # where the job before this one did not come to it
    say_none(job, step, show.say, over=True)
    with contextlib.suppress(OSError):  # they take room alone
        clear_taken(job)
        clear_over(job, training.group)
    job.report(step=step, total=training.total_steps, checkpoint_step=step)
    show.say(f"nothing to do: {step:,} of {training.total_steps:,} steps are trained and evaluated")


def _numerics_of_all(
    group: Group, recorded: Mapping[str, Any], choose: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """What rank 0 measured, all use. Errors: RanksError where a rank's machine is of another kind."""
    if group.is_first:
        numeric = choose(recorded)
        group.share(json.dumps(numeric).encode())
    else:
        numeric = choose(json.loads(group.share()))
    kind = [numeric.get(name) for name in ("device", "processor", "variables", "products")]
    one_kind = ", and so would their results: ask for nodes of one type (slurm.constraint, slurm.gpu_type)"
    group.must_agree("the processor, its variables, the GPU or the products", _digest(kind), one_kind)
    return numeric


def _digest(seen: Any) -> bytes:
    """32 bytes by which ranks compare what each of them sees."""
    return hashlib.sha256(json.dumps(seen).encode()).digest()


def choose_workers(training: Training, suite: SuiteRef, ranks: int = 1) -> int:
    """As many workers as were asked for, else as many as pay on this machine, which `ranks` share: none where a vector
    step is quick.
    """
    if training.num_workers is None and is_quick(suite, training.num_envs):
        return 0
    return machine.default_workers(training.num_workers, training.num_envs, cores_of_rank(read_host().cores, ranks))


def _envs_of(spec: VectorSpec, workers: int, training: Training, group: Group, make_envs: MakeEnvs) -> Envs:
    """The environments of this process: of all, or of its shards, environment i of shard i mod `shards`."""
    if not training.plays_in_shards:
        return make_envs(spec, workers)
    shards = training.algorithm.shards
    own = group.own(shards)
    part = partial(replace, spec, num_envs=spec.num_envs // shards, stride=shards)
    each = max(min(workers, 1), workers // len(own))  # who asks for a worker has nothing stepped in this process
    return ShardedEnvs({shard: make_envs(part(first=shard), each) for shard in own})


def _state_of(
    training: Training, device: torch.device, envs: Envs, start: Start | None, launch_mode: str, group: Group
) -> TrainingRun:
    """The run with its environments, as `start` has it or fresh."""
    if start is not None:
        return resumed(training, device, envs, start.contents, start.experience, launch_mode, group)
    return fresh(training, device, envs, launch_mode, group)


def is_complete(job: Job, training: Training, start: Start) -> bool:
    """Whether all steps are trained and no evaluation is left to make."""
    if start.ref.step < training.total_steps:
        return False
    return training.evaluation_goals == 0 or not read_past(job.slot_dir).pending(
        start.contents.parts["run"].numbers["wanted"]
    )


def choose_numerics(
    training: Training, spaces: Spaces, chosen: torch.device, recorded: Mapping[str, Any], show: TrainingDisplay
) -> dict[str, Any]:
    """Decide all that bit equality depends on beside the seed, as it was `recorded` where that is possible here."""
    machine.set_deterministic(training.threads)
    numeric = {"device": machine.device_name(chosen), "threads": training.threads, "processor": processor()}
    numeric["variables"] = variables()
    for name, now in numeric.items():
        then = recorded.get(name, now)
        if then != now:
            show.say(f"{name} was {then}, is {now}: bits may differ from here on")
    if chosen.type == "cpu":
        numeric["products"], sentence = products.choose_products(training.network.widest, recorded.get("products"))
        if sentence is not None:
            show.say(sentence)
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    # On another device bits are others anyway, so the way is chosen as for a new run.
    is_same_device = recorded.get("device") == numeric["device"]
    then = recorded.get("updates", KERNELS) if is_same_device else None
    numeric["updates"], sentence = algorithm.choose_launch_mode(training, spaces, chosen, then)
    if sentence is not None:
        show.say(sentence)
    if training.cuda_graph and chosen.type != "cuda":
        show.say(f"training.cuda_graph is ignored: it needs a GPU, and this trains on the {chosen.type}")
    return numeric
