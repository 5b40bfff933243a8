"""One multi-task SAC update by two threads against the same by one, by the clock.

`python bench/second_thread.py [ROUNDS]`: MT10's shapes, in one process, by turns; a round is so many updates as take
about a tenth of a second, batches included. Both leave the same bits (tests/unit/trainer/test_native_update.py), so
only the time may differ. It is told by the clock, and without environments that are stepped beside it: a machine with
something else to do tells nothing. The figures are
medians over rounds; the ratio, one thread's time over two threads', is the median over rounds of both in the same
round, with the quarter and three-quarter points. Writes second_thread.csv.

Nothing was claimed before. `trainer.algorithms.common.native.library` has two from where they are worth it here.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import figures
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from learners import fresh, prepared  # noqa: E402
from update import ROUND_S, ROWS, SPACES, TASKS, rows  # noqa: E402 - beside this file

from trainer.algorithms.common.native.library import Beside  # noqa: E402
from trainer.algorithms.common.native.update import NativeUpdates  # noqa: E402
from trainer.buffers.replay import Replay  # noqa: E402
from trainer.buffers.rows import fields_of  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402

#: (widths of every net, rows of a batch).
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((128, 128), 128), ((128, 128), 512), ((128, 128), 1280), ((256, 256), 128), ((256, 256), 256), ((256, 256), 512),
    ((256, 256), 1280), ((400, 400, 400), 128), ((400, 400, 400), 512), ((400, 400, 400), 1280),
)  # fmt: skip
HEAD = ["nets", "batch", "one thread ms", "two threads ms", "ratio", "quarter", "three quarters"]


def update(nets: tuple[int, ...], batch: int, threads: int, replay: Replay) -> Callable[[], object]:
    """An update, batch included."""
    training = resolve(TrainingSection(actor_hidden=nets, critic_hidden=nets, batch_size=batch))
    learner = fresh(training, SPACES)
    rng, updates = np.random.default_rng(0), NativeUpdates(learner, Beside(threads))
    return lambda: updates.learn(prepared(learner, replay.pick(replay.deal(batch), rng)))


def timed(call: Callable[[], object], count: int) -> float:
    """Seconds of the clock each."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def measured(nets: tuple[int, ...], batch: int, replay: Replay, rounds: int) -> list[str]:
    """One row."""
    calls = [update(nets, batch, threads, replay) for threads in (1, 2)]
    for call in calls:
        timed(call, 3)
    count = max(1, round(ROUND_S / timed(calls[0], 3)))
    took = [[timed(call, count) for call in calls] for _ in range(rounds)]
    ratios = [one / two for one, two in took]
    quarter, ratio, three_quarters = statistics.quantiles(ratios, n=4)
    one, two = (1000 * statistics.median(times) for times in zip(*took, strict=True))
    shape = f"{nets[0]}x{len(nets)}"
    return [shape, str(batch), f"{one:.2f}", f"{two:.2f}", f"{ratio:.2f}", f"{quarter:.2f}", f"{three_quarters:.2f}"]


def main() -> None:
    """Measure, print, write."""
    rounds = max(2, int(sys.argv[1])) if len(sys.argv) > 1 else 20
    machine.set_deterministic(1)
    replay = Replay(ROWS, TASKS, fields_of(SPACES))
    replay.add(np.arange(ROWS) % TASKS, rows(np.random.default_rng(0), ROWS))
    found = []
    for nets, batch in SHAPES:
        products.choose_products(max(nets))
        found.append(measured(nets, batch, replay, rounds))
        print(", ".join(found[-1]), flush=True)
    figures.save("second_thread", HEAD, found)


if __name__ == "__main__":
    main()
