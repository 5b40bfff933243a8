"""A thousand contributors at one gate and one judge: how long a verdict takes, who is served, what gets in.

`python bench/many_contributors.py [SECONDS] [CONTRIBUTORS]` (60, 1,000; some minutes of a core). Everybody sends an
episode a minute through the real server (`syncd.wire.server`, over pipes, one short connection each) into an inbox of
their own; the real ingester judges, a round a second, and simulates again. Episodes were played beforehand. Of the
contributors 5 % send what is malformed, 2 % play with a policy that is too old, 1 % send again what another one sent,
1 % pay themselves other rewards. Then all lose the server at once, for ten seconds, and come back as
`syncd.laptop.backoff` says, past a door that turns logins away as OpenSSH's `MaxStartups 10:30:100` does, a login
taking half a second.

Time is invented: a round of the judge is a second, whatever it takes here; beside the figures stands the processor time
that a round and a visit took, which must be far below a second for them to hold. What is not in it: ssh, the start of a
Python process for each login, network folders, a learner that trains beside it, and slots that are full.

The claims, from before the first run: p99 of the verdicts below 60 s; the backlog below a minute's segments; a Jain
index of at least 0.9 over the honest ones' accepted rows; nothing malformed, stale, replayed or forged enters (each
contributor's first 20 segments are all simulated again; a liar of long standing gets in ten times on average before it
is found: docs/laptops.md); after the outage all are back within 60 s and have their verdict within 150 s, and no
second sees more than 60 logins.
"""

from __future__ import annotations

import heapq
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import figures
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from segments_of import honest, hostile  # noqa: E402

from anchorleg.job import Job  # noqa: E402
from syncd import store  # noqa: E402
from syncd.laptop.backoff import Backoff  # noqa: E402
from syncd.wire import protocol  # noqa: E402
from syncd.wire.protocol import PREAMBLE, Decoder, encode  # noqa: E402
from syncd.wire.server import Server  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.envs.suite import suite_of  # noqa: E402
from trainer.sharing.ingest import Ingester  # noqa: E402
from trainer.sharing.judge import judge  # noqa: E402
from trainer.sharing.segment import Segment, name_of  # noqa: E402
from trainer.sharing.segment import encode as encoded  # noqa: E402
from trainer.sharing.spotcheck import Resimulator  # noqa: E402

SECONDS, CONTRIBUTORS = 60, 1_000
#: Each contributor's time between two episodes, seconds: 83 % of what the judge does.
PERIOD_S = 60
HORIZON, TASKS, SEED = 10, ("reach-v3", "push-v3"), 42
PARTS = {"malformed": 0.05, "stale": 0.02, "replayed": 0.01, "forged": 0.01}
MALFORMED = ("torn", "no JSON", "NaN observation", "rich reward", "rows shuffled", "double precision")
#: Of the invented learner: where it is, and the steps of the policies that it knows.
STEP, LAG, POLICIES = 1_000_000, 200_000, {(0, 0): 100_000, (0, 1): 950_000}
OUTAGE_S, LOGIN_S = 10.0, 0.5
#: OpenSSH: from so many logins under way on this share is turned away, rising to all.
START, RATE, FULL = 10, 0.3, 100


@dataclass
class World:
    """The invented time, and what was seen in it: by segment, when it was stored and judged."""

    began: float = field(default_factory=time.time)
    now: float = 0.0
    stored: dict[str, float] = field(default_factory=dict)
    judged: dict[str, float] = field(default_factory=dict)
    kind_of: dict[str, str] = field(default_factory=dict)
    entered: Counter[str] = field(default_factory=Counter)
    refused_at_gate: Counter[str] = field(default_factory=Counter)
    backlog: int = 0
    gate_cpu_s: float = 0.0
    visits: int = 0
    judge_cpu_s: list[float] = field(default_factory=list)

    def wall(self) -> float:
        """Unix seconds."""
        return self.began + self.now

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


class Contributor:
    """One of the thousand: its kind, and its next file."""

    def __init__(self, number: int, kind: str, rng: random.Random) -> None:
        self.who, self.kind = f"friend-{number:04d}", kind
        self.waits: list[bytes] = []
        self.backoff = Backoff()
        self.rng = np.random.default_rng(rng.getrandbits(32))

    def file(self, segment: Segment, earlier: Segment) -> bytes:
        """What it makes of an episode; `earlier`: one that somebody sent before."""
        match self.kind:
            case "malformed":
                return hostile(MALFORMED[int(self.rng.integers(len(MALFORMED)))], segment, self.rng)[0]
            case "stale":
                return hostile("old policy", segment, self.rng, old=(0, 0))[0]
            case "replayed":
                return encoded(replace(earlier, actor=f"{int(self.rng.integers(2**63)):016x}"))
            case "forged":
                return encoded(replace(segment, reward=np.full_like(segment.reward, 9.5)))
            case _:
                return encoded(segment)


def kinds(count: int) -> Iterator[str]:
    """Of each contributor, in turn."""
    for kind, part in PARTS.items():
        yield from [kind] * round(part * count)
    yield from ["honest"] * (count - sum(round(part * count) for part in PARTS.values()))


def visit(world: World, job: Job, one: Contributor) -> None:
    """One connection: what waits is sent in one go, and the server runs until its input ends."""
    said = [protocol.Hello(protocol=protocol.PROTOCOL, version="0.1.0", client=one.who), protocol.Listing()]
    data = b"".join(map(encode, said))
    for content in one.waits:
        put = protocol.Put(sha256=name_of(content), run_id=job.run_id, slot=0, bytes=len(content))
        data += encode(put) + encode(protocol.Data(key=put.sha256, offset=0), content)
    (theirs, ours), (back, answers) = os.pipe(), os.pipe()
    for end in (ours, answers):
        os.set_blocking(end, False)
    if os.write(ours, data) != len(data):
        raise RuntimeError("a visit does not fit into a pipe")
    os.close(ours)
    before = time.process_time()
    Server(job.shared_dir, one.who, theirs, answers, clock=world.monotonic, wall=world.wall).run()
    world.gate_cpu_s += time.process_time() - before
    world.visits += 1
    os.close(theirs)
    os.close(answers)
    with open(back, "rb") as file:
        frames = Decoder().feed(file.read().partition(PREAMBLE)[2])
        for message in (frame.message for frame in frames):
            match message:
                case protocol.Welcome(spread_s=spread_s):
                    one.backoff = Backoff(spread_s=spread_s)
                case protocol.SegmentStored(sha256=sha256):
                    world.stored[sha256] = world.now
                case protocol.SegmentRefused(reason=reason):
                    world.refused_at_gate[f"{reason} ({one.kind})"] += 1
    one.waits.clear()


def second(world: World, door: Ingester) -> None:
    """The judge's round, and what the loop takes."""
    before = time.process_time()
    door.one_round()
    world.judge_cpu_s.append(time.process_time() - before)
    for ready in door.ready.take(10**6):
        world.entered[world.kind_of[ready.sha256]] += ready.count
    world.backlog = max(world.backlog, len(world.stored) - len(world.judged))
    world.now += 1.0


def steadily(world: World, job: Job, door: Ingester, all_of_them: list[Contributor], seconds: int) -> None:
    """Everybody sends an episode a minute, each at a moment of its own."""
    rng = random.Random(1)
    episodes = iter(honest(len(all_of_them) * (seconds // PERIOD_S + 2) + 1, **PLAYED, run_id=job.run_id))
    earlier: list[Segment] = []
    due = [(rng.uniform(0, PERIOD_S) + PERIOD_S / 2 * (one.kind == "replayed"), one.who, one) for one in all_of_them]
    heapq.heapify(due)
    while world.now < seconds:
        while due[0][0] < world.now + 1:
            at, _, one = heapq.heapreplace(due, (due[0][0] + PERIOD_S, due[0][1], due[0][2]))
            episode = next(episodes)
            content = one.file(episode, earlier[int(one.rng.integers(len(earlier)))] if earlier else episode)
            if one.kind == "honest" and at < PERIOD_S / 3:
                earlier.append(episode)
            world.kind_of[name_of(content)] = one.kind
            one.waits.append(content)
            visit(world, job, one)
        second(world, door)
    for one in all_of_them:  # what they have played when the line breaks
        episode = next(episodes)
        one.waits.append(one.file(episode, earlier[0]))
        world.kind_of[name_of(one.waits[0])] = one.kind


def after_an_outage(world: World, job: Job, door: Ingester, all_of_them: list[Contributor]) -> tuple[Counter[int], int]:
    """All lose the server now. (logins that got in, by second; logins that were turned away)."""
    rng, lost_at = random.Random(2), world.now
    tries = [(lost_at + one.backoff.delay_s(rng.random()), one.who, one) for one in all_of_them]
    heapq.heapify(tries)
    under_way: list[float] = []
    came: Counter[int] = Counter()
    turned_away = 0
    while tries or any(name not in world.judged and world.kind_of[name] != "forged" for name in world.stored):
        while tries and tries[0][0] < world.now + 1:
            at, who, one = heapq.heappop(tries)
            while under_way and under_way[0] <= at:
                heapq.heappop(under_way)
            crowd = len(under_way)
            refuses = crowd >= START and rng.random() < RATE + (1 - RATE) * (crowd - START) / (FULL - START)
            if at < lost_at + OUTAGE_S or refuses:
                turned_away += at >= lost_at + OUTAGE_S
                one.backoff = one.backoff.failed()
                heapq.heappush(tries, (at + 0.05 + one.backoff.delay_s(rng.random()), who, one))
                continue
            heapq.heappush(under_way, at + LOGIN_S)
            came[int(at - lost_at)] += 1
            visit(world, job, one)
        second(world, door)
    return came, turned_away


PLAYED = {"tasks": TASKS, "horizon": HORIZON, "version": (0, 1), "num_envs": 6}


def jain(values: list[int]) -> float:
    """1: all have the same; 1 / n: one has everything (Jain, Chiu and Hawe, 1984)."""
    squares = sum(value**2 for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def main() -> None:
    """Measure and print."""
    seconds, count = figures.number(1, SECONDS), figures.number(2, CONTRIBUTORS)
    env = {"tasks": TASKS, "horizon": HORIZON}
    training = resolve(TrainingSection(preset="tiny", seed=SEED, contribution_max_lag=LAG, env=env))
    world, rng = World(), random.Random(0)
    everybody = [Contributor(number, kind, rng) for number, kind in enumerate(kinds(count))]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job = Job.standalone(Path(folder) / "bench", accepts_contributions=True)
        job.start_from(None)
        shared = store.Shared(job.shared_dir)
        shared.slot(job.run_id, 0).path.mkdir(parents=True)
        for one in everybody:  # they have been here before
            store.Inbox.of(shared, one.who).path.mkdir(parents=True)

        def seen(data: bytes, name: str, expect: object) -> object:
            world.judged.setdefault(name, world.now)
            return judge(data, name, expect)  # type: ignore[arg-type]

        suite = replace(suite_of(training), seed=SEED)
        door = Ingester(
            job, training, step=STEP, resimulate=lambda: Resimulator(suite), clock=world.wall, judge=seen,  # type: ignore[arg-type]
        )  # fmt: skip
        for (attempt, seq), step in POLICIES.items():
            door.know(attempt, seq, step)
        steadily(world, job, door, everybody, seconds)
        backlog, lost_at = world.backlog, world.now
        quiet = dict(world.stored)
        came, turned_away = after_an_outage(world, job, door, everybody)
        honest_rows = [
            store.given_to(store.Inbox.of(store.Shared(job.shared_dir), one.who).path, job.run_id, 0).rows
            for one in everybody
            if one.kind == "honest"
        ]
    report(world, quiet, backlog, lost_at, came, turned_away, jain(honest_rows), time.process_time() - began)


def report(
    world: World, quiet: dict[str, float], backlog: int, lost_at: float, came: Counter[int], turned_away: int,
    fairness: float, cpu_s: float,
) -> None:  # fmt: skip
    """Print, and write the CSV. Waits count the half second until the server's next look for verdicts."""
    steady = sorted(world.judged[name] - at + 0.5 for name, at in quiet.items() if name in world.judged)
    later = [world.judged[name] - lost_at for name in world.stored if name not in quiet and name in world.judged]
    unjudged = Counter(world.kind_of[name] for name in world.stored if name not in world.judged)
    bad = {kind: world.entered[kind] for kind in PARTS}
    lines = [
        ("segments stored", f"{len(world.stored):,}"),
        ("verdict p50", f"{steady[len(steady) // 2]:.1f} s"),
        ("verdict p99", f"{steady[int(0.99 * len(steady))]:.1f} s"),
        ("backlog at most, steadily", f"{backlog:,} segments"),
        ("backlog at most, after the outage", f"{world.backlog:,} segments"),
        ("Jain index of the honest ones' rows", f"{fairness:.3f}"),
        *((f"{kind} rows that entered", f"{rows:,}") for kind, rows in bad.items()),
        ("most logins in a second after the outage", f"{max(came.values())}"),
        ("logins turned away", f"{turned_away:,}"),
        ("all back after", f"{max(came) + 1} s"),
        ("all judged after", f"{max(later):.0f} s" if later else "-"),
        ("a visit's processor time", f"{1000 * world.gate_cpu_s / world.visits:.1f} ms"),
        ("a round's processor time, mean", f"{sum(world.judge_cpu_s) / len(world.judge_cpu_s):.2f} s"),
    ]
    for name, value in lines:
        print(f"{name}: {value}")
    print(
        f"not judged, by kind: {dict(unjudged)}; refused at the gate: {dict(world.refused_at_gate)}; {cpu_s:.0f} CPU s"
    )
    figures.save("many_contributors", ["what", "value"], lines)


if __name__ == "__main__":
    main()
