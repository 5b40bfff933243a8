"""Which settings train fastest on a machine: the order in which they are tried, and a pure choice among them.

Only what changes no trained number by itself is chosen: environments stepped together and their workers. What belongs
to a run's identity (batch, buffer, nets) is held against the memory, and the learner's threads are told of: more than
one costs the exact resume, which is not ours to give away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainer.tuning.autotune import NEAR

#: Below this gain the settings stay as they are: a busy machine makes as much of nothing.
WORTH_CHANGING = 1.1
#: Below this gain more threads are not worth a word.
WORTH_A_NOTE = 1.2
#: So many environments a task at most: more only makes the policy that acts older.
_ENVS_A_TASK = (1, 2, 4)
#: With more than this each an update no longer has work for a thread.
_MAX_THREADS = 8
_GB = 2**30
#: An update should take so many times as long as its exchange, for ranks to be faster by what they are.
WORTH_RANKS = 10
#: Bytes a second between GPUs of one node by PCIe, and what any exchange takes (NVIDIA/nccl issues 757 and 1530: 30 and
#: 42 us). Gradients that go by way of the host take longer.
_LINK_BYTES_PER_S = 1e10
_EXCHANGE_S = 4e-5


@dataclass(frozen=True)
class Setting:
    """`workers`: processes, or threads of the trainer where all tasks are stepped natively; 0: neither."""

    num_envs: int
    workers: int
    threads: int
    cuda_graph: bool = False


@dataclass(frozen=True)
class Trial:
    """The training's own loop made so many steps a second with `setting`."""

    setting: Setting
    steps_per_s: float


@dataclass(frozen=True)
class Memory:
    """Bytes: `measured` of the trainer and its workers without the replay, `row` of one transition; `limit` None where
    nothing says.
    """

    measured: int
    replay: int
    row: int
    evaluation: int
    limit: int | None

    @property
    def need(self) -> int:
        """All together, with the replay full."""
        return self.measured + self.replay + self.evaluation


@dataclass(frozen=True)
class Advice:
    """What to set. `gain`: over the settings as they were; `notes` are sentences for the user."""

    setting: Setting
    steps_per_s: float
    gain: float
    notes: tuple[str, ...]


#: Steps a second of a setting; None: there is no time for it, or it does not work here.
Attempt = Callable[[Setting], float | None]


def explore(
    own: Setting, tasks: int, workers: Sequence[int], threads: Sequence[int], attempt: Attempt, *, graph: bool = False
) -> list[Trial]:
    """Try `own`, then other `workers`, then more environments, then other `threads`, then, where a `graph` can be had,
    the other of both ways to make updates; each from the best so far.

    One after another and not every pair: the time is a person's. `own` comes once more at the end, and its better rate
    counts: what a machine does beside slows down one time more than another. Empty where `own` does not work.
    """
    tried: dict[Setting, float] = {}

    def look(setting: Setting) -> None:
        if setting not in tried and (rate := attempt(setting)) is not None:
            tried[setting] = rate

    def best() -> Setting:
        return max(tried, key=lambda setting: tried[setting])

    look(own)
    if not tried:
        return []
    for count in workers:
        if count <= own.num_envs:
            look(replace(own, workers=count))
    start = best()
    for each in _ENVS_A_TASK:
        if each * tasks > own.num_envs:
            look(replace(start, num_envs=each * tasks))
    start = best()
    for count in threads:
        look(replace(start, threads=count))
    if graph:
        look(replace(best(), cuda_graph=not own.cuda_graph))
    if best() != own and (again := attempt(own)) is not None:
        tried[own] = max(tried[own], again)
    return [Trial(setting, rate) for setting, rate in tried.items()]


def worker_counts(cores: int, *, is_native: bool) -> list[int]:
    """0, 1, 2, 4, … and `cores`; natively 0 and 1 are the same, one thread."""
    return [0, *(count for count in _doubling(cores) if count > 1 or not is_native)]


def thread_counts(cores: int, *, is_cpu: bool) -> list[int]:
    """1, 2, 4, … of a learner on the CPU; one beside a GPU, where they have nothing to do."""
    return _doubling(min(cores, _MAX_THREADS)) if is_cpu else []


def _doubling(most: int) -> list[int]:
    """1, 2, 4, … and `most` itself."""
    return sorted({most, *(2**n for n in range(most.bit_length()))})


def advise(own: Setting, trials: Sequence[Trial], memory: Memory) -> Advice:
    """The settings as they are, unless others are clearly faster: then the smallest that is nearly the fastest. Pure.

    `trials` must hold `own`.
    """
    rates = {trial.setting: trial.steps_per_s for trial in trials}
    exact = {setting: rate for setting, rate in rates.items() if setting.threads == own.threads}
    fastest = max(exact.values())
    chosen = own
    if fastest >= WORTH_CHANGING * rates[own]:
        near = [setting for setting, rate in exact.items() if rate >= NEAR * fastest]
        chosen = min(near, key=lambda setting: (setting.num_envs, setting.workers))
    notes = []
    other = max(rates, key=lambda setting: rates[setting])
    if other.threads != own.threads and rates[other] >= WORTH_A_NOTE * rates[chosen]:
        but = "and resumes bit for bit" if other.threads == 1 else "but only 1 resumes bit for bit"
        notes.append(
            f"threads {other.threads} is {rates[other] / rates[chosen]:.1f} times as fast, {but}; "
            "set training.threads yourself if you want that"
        )
    return Advice(chosen, rates[chosen], rates[chosen] / rates[own], (*notes, *_of_memory(memory)))


def of_ranks(update_s: float, gradient_bytes: int, batch_bytes: int = 0, *, shares: bool) -> str:
    """Whether several GPUs (or processes) for one slot would pay: by how long an update and its exchange take. Pure.

    `batch_bytes`: of a batch, where rank 0 sends it to the others; then actor and critics exchange one after the other.
    `shares`: whether the algorithm learns in several shards.
    """
    turns = 3 if batch_bytes else 1
    exchange_s = turns * _EXCHANGE_S + (gradient_bytes + batch_bytes) / _LINK_BYTES_PER_S
    what = f"its {gradient_bytes / 1e6:.1f} MB of gradients"
    what += f" and {batch_bytes / 1e6:.1f} MB of its batch" if batch_bytes else ""
    takes = f"an update takes {1e3 * update_s:.1f} ms, to exchange {what} {1e3 * exchange_s:.2f} ms at best"
    if update_s < WORTH_RANKS * exchange_s:
        return f"more GPUs for one slot would not pay: {takes}; use them for more slots (docs/ranks.md)"
    if not shares:
        return f"one GPU is all that this algorithm uses for a slot: {takes}; more are for more slots (docs/ranks.md)"
    return (
        f"several ranks may pay: {takes}; each learns from a part of the batch, which must fill a GPU (docs/ranks.md)"
    )


def _of_memory(memory: Memory) -> list[str]:
    if memory.limit is None or memory.need <= memory.limit:
        return []
    rest = memory.limit - memory.measured - memory.evaluation
    words = f"it does not fit: {memory.need / _GB:.1f} GB are needed, {memory.limit / _GB:.1f} GB are there; "
    if rest <= 0:
        return [f"{words}ask for more (slurm.mem)"]
    rows = rest // memory.row
    return [f"{words}lower buffer_size to {rows:,} (a new run), or ask for more (slurm.mem)"]
