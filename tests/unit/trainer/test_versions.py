"""What a judge knows of a slot's policies: the old ones are thinned out, and no verdict changes by that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from published import draft_of, nets_for
from train_point_mass import section

from syncd import store
from trainer.sharing import versions as known_versions
from trainer.sharing.judge import step_of
from trainer.sharing.versions import Versions, thinned

pytestmark = pytest.mark.trainer
MAX_LAG = 500


@st.composite
def published(draw):
    """Policies of some attempts: numbers and steps rise within an attempt, with gaps; an attempt goes on from any step
    of the one before.
    """
    found, at = [], 0
    for attempt in draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(sorted)):
        at, seq = draw(st.integers(0, at)), -1
        for more, gap in draw(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3)), min_size=1, max_size=12)):
            at, seq = at + more, seq + gap
            found.append((attempt, seq, at))
    return found


@given(published(), st.integers(0, 5_000))
def test_what_is_thinned_out_is_too_old_before_and_after(found, learner):
    left = thinned(found, MAX_LAG, learner)
    assert set(left) <= set(found)
    assert left == sorted(left)
    for attempt in range(10):
        for seq in range(max(one[1] for one in found) + 2):
            then, now = step_of(attempt, seq, found), step_of(attempt, seq, left)
            assert (then is None) == (now is None)
            if then is not None and then != now:
                assert learner - then > MAX_LAG
                assert learner - now > MAX_LAG


def test_however_many_are_published_few_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(known_versions, "MANY", 100)
    known = Versions(store.Shared(tmp_path).slot("run", 0), MAX_LAG)
    for seq in range(5_000):
        known.know(seq // 2_000, seq % 2_000, seq * 10)
        assert len(known.sorted(50_000)) <= 2 * (2 * MAX_LAG // 10 + 1 + 2 * 3)
    assert known.sorted(50_000)[:3] == [(0, 0, 0), (0, 1999, 19_990), (1, 0, 20_000)]
    assert step_of(2, 999, known.sorted(50_000)) == 49_990


def test_what_was_thinned_out_and_is_still_there_is_not_read_again(tmp_path, monkeypatch):
    training = section(horizon=100, contribution_max_lag=MAX_LAG)
    place, tensors = store.Shared(tmp_path).slot("run", 0), nets_for(training)
    for seq, step in enumerate((0, 10, 20, 5_000)):
        fields = {"run_id": "run", "attempt": 0, "seq": seq, "step": step}
        store.publish(place, draft_of(training, tensors, **fields), store.rounded(tensors))
    reads, real = [], store.read_manifest
    monkeypatch.setattr(
        store, "read_manifest", lambda place, version: reads.append(version.seq) or real(place, version)
    )
    monkeypatch.setattr(known_versions, "MANY", 3)
    known = Versions(place, MAX_LAG)
    assert known.found_more()
    assert not known.found_more()  # once a round
    assert known.sorted(50_000) == [(0, 0, 0), (0, 2, 20), (0, 3, 5_000)]
    known.new_round()
    assert not known.found_more()
    assert reads == [0, 1, 2, 3]
