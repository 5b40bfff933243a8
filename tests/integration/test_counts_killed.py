"""kill -9 at every write of a round of the judge: what a contributor gave is counted once, or by chance not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("metaworld")

from guillotine import ORDERLY, in_a_fork, killed_at_every_write
from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import Job
from syncd import store
from trainer.sharing.ingest import Ingester
from trainer.sharing.segment import encode

pytestmark = [pytest.mark.trainer, pytest.mark.long]
RUN, WHO = "demo-0123abcd", ("ann", "ben")
#: The judges' one moment: no midnight (UTC) comes between what they count and who looks.
NOON = 1_760_097_600.0


def prepare(folder: Path) -> None:
    """Three segments of two contributors wait."""
    first = Job.standalone(folder, accepts_contributions=True)
    first.start_from(None)
    for number, who in enumerate((*WHO, WHO[0])):
        send(first.shared_dir, who, RUN, encode(made_up(RUN, number)))


def job_in(folder: Path) -> Job:
    return Job(folder, 0, 0, run_id=RUN, accepts_contributions=True, terms={"rows_per_day": 10**6})


def program(folder: Path, fall: Callable[[], None] = lambda: None) -> None:
    """Two rounds of the judge."""
    training = section(horizon=HORIZON, contribution_max_lag=500, trusted_contributors=WHO)
    door = Ingester(job_in(folder), training, step=100, clock=lambda: NOON)
    door.know(0, 0, 60)
    fall()
    door.one_round()
    door.one_round()


def look(folder: Path) -> dict[str, Any]:
    """What is counted, and what lies accepted, when a successor has judged what is left."""
    assert in_a_fork(lambda: program(folder)) == ORDERLY
    inboxes = store.Inbox.all_of(store.Shared(job_in(folder).shared_dir))
    given = [store.given_to(inbox.path, RUN, 0) for inbox in inboxes]
    return {
        "accepted": sum(each.accepted for each in given),
        "rows": sum(each.rows for each in given),
        "of_today": sum(each.rows_of(NOON) for each in given),
        "there": sum(inbox.usage("accepted").segments for inbox in inboxes),
    }


def test_after_a_kill_at_any_write_nothing_is_counted_twice(tmp_path):
    records = killed_at_every_write(__file__, tmp_path)
    assert len(records) > 30
    for record in records:
        assert record["accepted"] * HORIZON == record["rows"] == record["of_today"]
        assert record["there"] == 3  # every segment is accepted in the end, whoever counted it
        assert 0 <= record["there"] - record["accepted"] <= 3
    assert records[-1]["accepted"] == 3
