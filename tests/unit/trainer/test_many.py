"""Many contributors at one slot: who is served, and what is counted."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import Job
from syncd import store
from trainer.sharing.ingest import JUDGED_A_ROUND, Ingester
from trainer.sharing.segment import encode
from trainer.sharing.spotcheck import Redone

pytestmark = pytest.mark.trainer
NOW = 20_000 * 86_400.0 + 3600
WHO = [f"friend-{number:02d}" for number in range(50)]


@pytest.fixture
def clock():
    return [NOW]


@pytest.fixture
def job(tmp_path):
    made = Job.standalone(tmp_path / "toy", accepts_contributions=True)
    made.start_from(None)
    return made


def door_of(job, clock, *, trusted=tuple(WHO), **more):
    training = section(horizon=HORIZON, contribution_max_lag=500, trusted_contributors=trusted)
    door = Ingester(job, training, step=100, clock=lambda: clock[0], **more)
    door.know(0, 0, 60)
    return door


def sent(job, who, *numbers):
    return [send(job.shared_dir, who, job.run_id, encode(made_up(job.run_id, number))) for number in numbers]


def inbox_of(job, who):
    return store.Inbox.of(store.Shared(job.shared_dir), who)


def given(job, who):
    return store.given_to(inbox_of(job, who).path, job.run_id, 0)


class TestTheJudge:
    def test_the_turns_go_on_where_the_last_round_ended(self, job, clock):
        for number, who in enumerate(WHO):
            sent(job, who, *range(4 * number, 4 * number + 4))
        door = door_of(job, clock)
        for _ in range(5):
            assert door.one_round() == JUDGED_A_ROUND
        assert {given(job, who).accepted for who in WHO} == {2}

    def test_who_has_given_enough_today_waits_until_tomorrow_and_loses_nothing(self, job, clock):
        job.terms = {"rows_per_day": 3 * HORIZON}
        sent(job, WHO[0], *range(8))
        sent(job, WHO[1], 10, 11)
        door = door_of(job, clock)
        for _ in range(2):
            door.one_round()
        assert [given(job, who).accepted for who in WHO[:2]] == [3, 2]
        assert len(inbox_of(job, WHO[0]).waiting(job.run_id, 0, now=NOW)) == 5
        assert store.terms_of(store.Shared(job.shared_dir).runs, job.run_id) == store.Terms(rows_per_day=3 * HORIZON)
        clock[0] += 86_400
        door.one_round()
        assert given(job, WHO[0]).accepted == 6

    def test_rows_are_counted_by_the_day_and_a_liars_are_no_credit(self, job, clock):
        class Checker:
            def redo(self, segment):
                return Redone(0.0, segment.steps, "it paid less" if segment.episode == 3 else "")

            def close(self):
                pass

        sent(job, WHO[0], 1)
        door = door_of(job, clock, trusted=(), resimulate=Checker)
        door.one_round()
        assert (given(job, WHO[0]).credited, given(job, WHO[0]).rows_of(NOW)) == (HORIZON, HORIZON)
        sent(job, WHO[0], 2, 3)
        door.one_round()
        assert (given(job, WHO[0]).credited, given(job, WHO[0]).rows_of(NOW)) == (0, 0)
        assert given(job, WHO[0]).rows >= HORIZON
