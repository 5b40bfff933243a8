"""What others sent in enters again, at the same steps, whatever interrupted the training; and it changes nothing where
nothing was sent. On point masses.
"""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("torch")

import typed_trainings
from slot_digest import slot_digest

from anchorleg.job import HANDED_OVER
from anchorleg.places import begin_id, run_id_of
from trainer.checkpoints.checkpoint import read_manifest
from trainer.sharing.journal import Removed, Taken, entries, of_line
from trainer.sharing.segment import name_of

pytestmark = pytest.mark.trainer
KILLED = -9


def attempts(run_dir, *plans, program="train_contributed.py", journal=None, **fields):
    """As of `typed_trainings`."""
    return typed_trainings.attempts(program, run_dir, plans, fields, *([str(journal)] if journal else []))


def again_from_scratch(run_dir, original, tmp_path, *plans):
    """A run that takes what `original` took, at the same steps, from the inbox; its slot's folder."""
    from train_contributed import pool, send

    files = {name_of(data): data for data in pool(run_id_of(original))}
    taken = history(original / "slots/0")
    begin_id(run_dir)
    for entry in taken:
        if isinstance(entry, Taken):
            send(run_dir / "shared", entry.who, run_id_of(run_dir), files[entry.sha256], state="accepted")
    journal = tmp_path / "journal"
    journal.write_text("".join(json.dumps(vars(entry)) + "\n" for entry in taken))
    codes, printed = attempts(run_dir, *plans, {}, journal=journal)
    assert codes[-1] == 0, printed
    assert "gone or damaged" not in printed
    return run_dir / "slots/0"


def history(slot_dir):
    """All that entered the slot's training from outside, across its attempts, each event once."""
    return list(of_line(slot_dir))


@pytest.mark.long
def test_nothing_sent_is_nothing_changed(tmp_path):
    assert attempts(tmp_path / "open", {})[0] == [0]
    assert attempts(tmp_path / "closed", {}, program="train_point_mass.py", horizon=10)[0] == [0]
    assert slot_digest(tmp_path / "open/slots/0") == slot_digest(tmp_path / "closed/slots/0")


@pytest.mark.long
def test_a_kill_with_segments_taken_since_the_last_checkpoint_changes_nothing(tmp_path):
    plans = [
        {"30": [0, 1, 2, 3], "60": [4, 5], "70": [6], "72": "SIGKILL"},  # the last checkpoint is that of vector step 50
        {"3": "SIGKILL"},  # before it has taken all of them again
        {"40": [7, 8], "90": {"drop": "bob"}, "99": "SIGUSR2"},
        {"10": [10], "60": [12]},
    ]
    codes, printed = attempts(tmp_path / "original", *plans)
    slot = tmp_path / "original/slots/0"
    assert codes == [KILLED, KILLED, HANDED_OVER, 0], printed
    [removed] = [entry.step for entry in history(slot) if isinstance(entry, Removed)]
    begun = json.loads((slot / "attempts/2/parent.json").read_text())["step"]  # where the saver came to before the kill
    assert removed >= begun + 4 * 90  # at whichever barrier the door has noticed it, also in the next attempt
    first = entries(slot / "attempts/0")
    assert first[-1].step > 200
    assert history(slot)[: len(first)] == first  # also what came after the checkpoint, each at its step
    replayed = again_from_scratch(tmp_path / "replayed", tmp_path / "original", tmp_path)
    assert history(replayed) == history(slot)
    digest = slot_digest(slot)
    assert digest["contributed"] is not None
    assert slot_digest(replayed) == digest


@pytest.mark.long
def test_going_back_leaves_nothing_of_who_lied(tmp_path):
    plans = [
        {"20": [0, 2], "60": [1, 3], "70": [4], "90": {"drop": "bob"}},  # the last checkpoint before bob is of step 200
        {"30": [6]},
    ]
    codes, printed = attempts(tmp_path / "original", *plans, contribution_rollback="auto")
    assert codes == [HANDED_OVER, 0], printed
    slot = tmp_path / "original/slots/0"
    parent = json.loads((slot / "attempts/1/parent.json").read_text())
    assert (parent["attempt"], parent["step"]) == (0, 200)
    assert {entry.who for entry in history(slot) if isinstance(entry, Taken)} == {"alice"}
    assert len(history(slot)) == 4  # also what alice had sent after that checkpoint
    assert slot_digest(again_from_scratch(tmp_path / "replayed", tmp_path / "original", tmp_path)) == slot_digest(slot)


@pytest.mark.long
def test_who_would_be_asked_is_told_how_to_go_back(tmp_path):
    codes, printed = attempts(tmp_path, {"60": [1, 3], "90": {"drop": "bob"}})
    assert codes == [0], printed
    assert "`orchestrator rollback 0 --to 200 --without bob --run " in printed
    assert not (tmp_path / "slots/0/rollbacks").exists()


@pytest.mark.long
def test_kills_at_random_moments_change_nothing(tmp_path):
    moments = random.Random(0)
    numbers = iter(range(60))

    def plan(*, dies):
        steps = sorted(moments.sample(range(2, 110), 6))
        made = {str(step): [next(numbers) for _ in range(moments.randrange(1, 4))] for step in steps}
        return made | ({str(steps[-1] + moments.randrange(1, 20)): "SIGKILL"} if dies else {})

    codes, printed = attempts(tmp_path / "original", plan(dies=True), plan(dies=True), plan(dies=False))
    assert codes == [KILLED, KILLED, 0], printed
    slot = tmp_path / "original/slots/0"
    killed = {str(moments.randrange(50, 200)): "SIGKILL"}
    replayed = again_from_scratch(tmp_path / "replayed", tmp_path / "original", tmp_path, killed)
    assert slot_digest(replayed) == slot_digest(slot)


@pytest.mark.long
def test_files_go_when_two_checkpoints_have_their_rows_and_come_from_row_files_then(tmp_path):
    attempts(tmp_path, {"20": [0, 1, 2], "60": [3], "70": "SIGTERM"})
    inbox = tmp_path / "shared/v1/inbox"
    assert len(list(inbox.glob("*/accepted/*/0/*"))) == 1
    (newest,) = (tmp_path / "slots/0/attempts/0/checkpoints").glob("*280")
    manifest = read_manifest(newest)
    assert [sum(segment.counts) for segment in manifest.contributed] == [30, 10]
    codes, printed = attempts(tmp_path, {})
    assert codes == [0]
    assert "40 rows from others" in printed
    assert not list(inbox.glob("*/accepted/*/0/*"))


@pytest.mark.long
def test_walking_back_past_a_damaged_checkpoint_takes_the_same_again(tmp_path):
    attempts(tmp_path / "original", {"20": [0, 1], "60": [2, 3], "70": "SIGTERM"})
    (newest,) = (tmp_path / "original/slots/0/attempts/0/checkpoints").glob("*280")
    (newest / "state.json").write_text("damaged")
    codes, printed = attempts(tmp_path / "original", {"30": [4]})
    assert codes == [0]
    assert "resuming from step 200" in printed
    assert "is gone or damaged" not in printed
    replayed = again_from_scratch(tmp_path / "replayed", tmp_path / "original", tmp_path)
    assert slot_digest(replayed) == slot_digest(tmp_path / "original/slots/0")
