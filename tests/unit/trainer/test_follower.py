"""The follower, look by look: what it takes, what it waits for, what it gives up on."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from published import RUN, publish, training_of

from syncd import store
from trainer.actors.follower import Follower
from trainer.sharing.selection import Choice

pytestmark = pytest.mark.trainer


def test_weights_that_show_late_are_taken_when_they_do(tmp_path):
    training = training_of(horizon=10)
    manifest = publish(tmp_path, training=training)
    blob = store.Shared(tmp_path).slot(RUN, 0).blob(manifest.blob.sha256)
    hidden = blob.rename(blob.with_name("elsewhere"))
    follower = Follower(store.Shared(tmp_path), Choice.parse("latest"))
    follower.look()
    assert follower.newest(None, may_change_slot=True) is None
    assert "waiting for the weights" in follower.waiting_for
    hidden.rename(blob)
    follower.look()
    found = follower.newest(None, may_change_slot=True)
    assert found is not None
    assert found.manifest == manifest


def test_averaged_policies_are_followed_where_they_are_asked_for_and_missed_in_words(tmp_path):
    manifest = publish(tmp_path, training=training_of(horizon=10))
    shared = store.Shared(tmp_path)
    place = shared.slot(RUN, 0)
    plain, averaged = (Follower(shared, Choice.parse("latest"), averaged=each) for each in (False, True))
    averaged.look()
    assert averaged.newest(None, may_change_slot=True) is None
    assert "averaged" in averaged.waiting_for
    assert "without --averaged there is one" in averaged.waiting_for
    weights = store.rounded(store.read(place, manifest))
    draft = store.Draft(**{name: getattr(manifest, name) for name in store.Draft.model_fields})
    store.publish(place.averaged, draft.model_copy(update={"step": 77}), weights)
    for follower, step in ((plain, manifest.step), (averaged, 77)):
        follower.look()
        found = follower.newest(None, may_change_slot=True)
        assert found is not None
        assert found.manifest.step == step
    newer = draft.model_copy(update={"step": 78, "seq": draft.seq + 1})
    store.publish(place.averaged, newer, weights)
    averaged.look()
    assert averaged.newest(None, may_change_slot=True).manifest.step == 78


def test_a_machine_that_computes_otherwise_is_said_once_and_not_with_each_policy(tmp_path):
    """By how much, is another number each time."""
    said = []
    follower = Follower(store.Shared(tmp_path), Choice.parse("latest"))
    for seq in (1, 2):

        def spoil(draft, by=0.1 * seq):
            action = tuple(tuple(value + by for value in row) for row in draft.golden.action)
            return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": action})})

        publish(tmp_path, training=training_of(horizon=10), seq=seq, change=spoil)
        follower.look()
        assert f"{0.1 * seq:.3g} off" in follower.waiting_for
    follower.tell(said.append)
    [sentence] = said
    assert "0.1 off" in sentence
