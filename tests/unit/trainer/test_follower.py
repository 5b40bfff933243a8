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
