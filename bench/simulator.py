"""The real controller over simulated months of a bad cluster: how many invariants break (none may), and what it costs.

`python bench/simulator.py [SEEDS]` runs 20 seeds by default (30 days, 4 slots each) over two processes and writes
simulator.csv; with `--experiments` each is a queue of 12 experiments for 4 jobs, and it writes simulator_queue.csv.
Each seed is written to `--kept FILE` (JSON lines) when it ends, and a run that is given a file with seeds of the same
code goes on behind them: a thousand months take hours. `--seed N` runs one alone, with `--story` everything that
happened in it; `--days D` makes it shorter. What is simulated and what must hold: tests/simulator/.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
SIMULATED = ("anchorleg", "orchestrator", "tests/simulator")
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "simulator")]

from profiles import Profile  # noqa: E402
from watch import InvariantError  # noqa: E402
from world import World, simulate, story_of  # noqa: E402

SEEDS = 20
PROCESSES = 2
TELL_EVERY = 10


def one(seed: int, *, experiments: bool = False) -> tuple[dict[str, float], str]:
    """What a seed measured, and how it failed ("" if it did not)."""
    began = time.process_time()
    try:
        measured, failure = simulate(Profile.of_experiments(seed) if experiments else Profile.drawn(seed)), ""
    except AssertionError as error:
        measured, failure = {"seed": seed}, str(error)
    return {**measured, "cpu_s": time.process_time() - began}, failure


def code() -> str:
    """A digest of all the code that a seed's result comes from."""
    sources = sorted(file for folder in SIMULATED for file in (ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]


def kept(file: Path | None, *, experiments: bool) -> dict[int, tuple[dict[str, float], str]]:
    """The seeds that `file` holds of this very code, by number."""
    if file is None or not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    ours = [row for row in rows if (row["code"], row["experiments"]) == (code(), experiments)]
    return {row["seed"]: (row["measured"], row["failure"]) for row in ours}


def alone(seed: int, days: float, *, story: bool, experiments: bool) -> int:
    """One seed, with what happened in it. Returns the exit code."""
    drawn = Profile.of_experiments if experiments else Profile.drawn
    world = World(drawn(seed, days=days), remember=0 if story else 30)
    print(world.profile)
    try:
        measured = world.run_to_the_end()
    except InvariantError as violation:
        print(story_of(world, violation))
        return 1
    if story:
        print("\n".join(world.timeline.story))
    print(", ".join(f"{name} {value:g}" for name, value in measured.items()))
    return 0


def rarely_collected() -> None:
    """A month makes millions of short-lived models and no circle of them: looking for some was a tenth of its time."""
    gc.freeze()
    gc.set_threshold(200_000)


def many(seeds: int, file: Path | None, *, experiments: bool) -> int:
    """All seeds below `seeds` that `file` does not hold yet. Returns the exit code."""
    known = kept(file, experiments=experiments)
    results = [result for seed, result in known.items() if seed < seeds]
    missing = [seed for seed in range(seeds) if seed not in known]
    with ProcessPoolExecutor(PROCESSES, initializer=rarely_collected) as pool:
        under_way = {pool.submit(one, seed, experiments=experiments): seed for seed in missing}
        for done in as_completed(under_way):
            seed, result = under_way[done], done.result()
            results.append(result)
            measured, failure = result
            if file is not None:
                row = {"code": code(), "experiments": experiments, "seed": seed}
                with file.open("a") as lines:
                    lines.write(json.dumps({**row, "measured": measured, "failure": failure}) + "\n")
            if failure:
                print(failure, flush=True)
            if len(results) % TELL_EVERY == 0:
                print(f"{len(results)} of {seeds} seeds, {sum(bool(f) for _, f in results)} violations", flush=True)
    good = [measured for measured, failure in results if not failure]
    broken = len(results) - len(good)

    def middle(name: str) -> float:
        return statistics.median(measured[name] for measured in good) if good else 0.0

    row = {
        "seeds": seeds,
        "violations": broken,
        "jobs": int(sum(measured["jobs"] for measured in good)),
        "ticks": int(sum(measured["ticks"] for measured in good)),
        "goodput_median": f"{middle('goodput'):.4f}",
        "goodput_worst": f"{min((measured['goodput'] for measured in good), default=0.0):.4f}",
        "idle_median": f"{middle('idle'):.4f}",
        "cpu_ms_a_tick": f"{1000 * sum(m['cpu_s'] for m in good) / max(1, sum(m['ticks'] for m in good)):.2f}",
    }
    print(", ".join(f"{name} {value}" for name, value in row.items()))
    if seeds >= SEEDS:  # fewer are for looking, not for the page
        figures.save("simulator_queue" if experiments else "simulator", list(row), [list(row.values())])
    return 1 if broken else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--story", action="store_true")
    parser.add_argument("--experiments", action="store_true")
    parser.add_argument("--kept", type=Path)
    asked = parser.parse_args()
    if asked.seed is not None:
        return alone(asked.seed, asked.days, story=asked.story, experiments=asked.experiments)
    return many(asked.seeds, asked.kept, experiments=asked.experiments)


if __name__ == "__main__":
    sys.exit(main())
