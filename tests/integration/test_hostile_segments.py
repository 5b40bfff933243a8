"""A learner among strangers: thousands of segments, malformed, hostile and honest, through the real inbox."""

from __future__ import annotations

import json

import numpy as np
import pytest
from suites import SPACES, metaworld

pytest.importorskip("torch")

from point_mass import PointMasses
from segments_of import KINDS, honest, hostile
from slot_digest import slot_digest
from train_contributed import HORIZON, send, wait_until
from train_point_mass import TASKS, judge, section

from anchorleg.job import Job
from syncd import store
from syncd.shared.inbox import InboxLimits
from trainer.buffers.contributed import Contributed
from trainer.buffers.experience import Experience
from trainer.sharing import ingest, reader
from trainer.sharing import judge as judge_module
from trainer.sharing.ingest import Ingester
from trainer.sharing.segment import MALFORMED, encode
from trainer.sharing.spotcheck import FIRST, Resimulator
from trainer.training.begin import run
from trainer.training.features.inflow import intake
from trainer.training.features.progress import TrainingDisplay
from trainer.training.run import TrainingRun

pytestmark = pytest.mark.trainer
#: Of each kind; some kinds are the same bytes whatever they are made of.
OF_EACH = 25
HONEST = 3_000
#: Short episodes: the simulator is what takes the time here.
SHORT = 4
#: Honest segments that may be refused: one in a thousand.
REFUSED_AT_MOST = HONEST // 1000


class Counted:
    """Does segments again, and keeps what came out."""

    def __init__(self, redo, checks):
        self.inner, self.checks = redo, checks

    def redo(self, segment):
        self.checks.append(self.inner.redo(segment))
        return self.checks[-1]


class Besieged(PointMasses):
    """At one vector step everything is sent at once; it goes on when all of it is judged."""

    def __init__(self, spec, attack):
        super().__init__(spec)
        self.attack, self.steps = attack, 0

    def step(self, actions):
        self.steps += 1
        if self.steps == 40:
            self.attack()
        return super().step(actions)


def train(run_dir, attack):
    training = section(
        horizon=HORIZON, total_steps=400, contribution_max_lag=100, trusted_contributors=("mallory",)
    )  # so that each kind is refused for its own reason
    job = Job.standalone(run_dir, accepts_contributions=True)
    code = run(
        job, training, TrainingDisplay(), make_envs=lambda spec, _: Besieged(spec, lambda: attack(job)), evaluator=judge
    )
    assert code == 0
    return job


@pytest.fixture
def hasty(monkeypatch):
    """The ingester's bounds are for a training that lasts hours."""
    monkeypatch.setattr(ingest, "JUDGED_A_ROUND", 10_000)
    monkeypatch.setattr(reader, "ROUND_S", 0.01)
    monkeypatch.setattr(intake, "TAKE_EVERY_S", 0.0)


@pytest.mark.long
def test_a_thousand_hostile_segments_are_refused_for_the_right_reasons_and_harm_nobody(tmp_path, hasty, monkeypatch):
    monkeypatch.setattr(judge_module, "LEAST", 10**9)  # else their sender is held, and the others are not judged
    expected = {}

    def attack(job):
        rng = np.random.default_rng(0)
        base = honest(OF_EACH, run_id=job.run_id, tasks=TASKS, horizon=HORIZON, version=(0, 0))
        for kind, reason in KINDS.items():
            for segment in base:
                data, name = hostile(kind, segment, rng, old=(0, 0))
                send(job.shared_dir, "mallory", job.run_id, data, name=name)
                expected.setdefault(name, set()).add(str(reason))
        new = store.Inbox.of(store.Shared(job.shared_dir), "mallory")
        wait_until(lambda: not new.waiting(job.run_id, 0, now=0.0))

    besieged = train(tmp_path / "besieged", attack)
    calm = train(tmp_path / "calm", lambda _job: None)

    inbox = store.Inbox.of(store.Shared(besieged.shared_dir), "mallory")
    verdicts = [json.loads(path.read_text()) for path in (inbox.path / "verdicts").glob("*.json")]
    refused = {verdict["sha256"]: verdict["reason"] for verdict in verdicts}
    kept = list(inbox.place("quarantine", besieged.run_id, 0).glob("*.reason.json"))
    assert 0 < len(kept) <= InboxLimits.quarantined
    assert not {json.loads(path.read_text())["reason"] for path in kept} & {str(reason) for reason in MALFORMED}
    assert len(KINDS) >= 12
    assert len(expected) > 1000
    assert refused.keys() == expected.keys()
    wrong = {name: (reason, expected[name]) for name, reason in refused.items() if reason not in expected[name]}
    assert wrong == {}
    assert not list(inbox.path.glob("accepted/*/0/*"))
    assert slot_digest(besieged.slot_dir) == slot_digest(calm.slot_dir)


@pytest.mark.long
def test_three_thousand_honest_segments_are_taken(tmp_path, hasty):
    job = Job.standalone(tmp_path / "run", accepts_contributions=True)
    job.start_from(None)
    training = section(tasks=TASKS, horizon=SHORT, buffer_size=200_000)
    checks = []
    suite = metaworld(TASKS, SHORT, 42)  # as `honest`
    door = Ingester(job, training, step=500, resimulate=lambda: Counted(Resimulator(suite), checks))
    door.know(0, 0, 400)
    for number, segment in enumerate(honest(HONEST, run_id=job.run_id, tasks=TASKS, horizon=SHORT, version=(0, 0))):
        send(job.shared_dir, f"friend-{number % 5}", job.run_id, encode(segment))
    made, state = intake.Intake(job, training, None), object.__new__(TrainingRun)
    made.ingester, state.step, state.experience = door, 500, Experience(training, SPACES)
    while door.one_round(10_000):
        while door.has_something:
            made.take(state)
    assert sum(door.refused.values()) <= REFUSED_AT_MOST, door.refused
    assert isinstance(state.experience.others, Contributed)
    assert state.experience.others.ring_rows == SHORT * door.accepted
    assert len(state.experience.others.sources) == 5
    assert len(checks) >= 5 * FIRST
    assert {done.gap for done in checks} == {0.0}
