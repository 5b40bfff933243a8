"""Slots of a group take each other's episodes in, and the same again at the same steps, whatever interrupted them.
A group of one changes nothing. On point masses.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")

from slot_digest import slot_digest
from train_point_mass import section

from anchorleg.job import HANDED_OVER, CheckpointRef, Job
from trainer.history.read import read
from trainer.sharing.copies import find_learner
from trainer.sharing.journal import Adopted, Mixed, TakenFromPeer, of_line

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
KILLED = -9


def begun(run_dir, slot, *plans, journal=None, **fields):
    """One attempt of `slot` for each plan, one after another, in a process of their own."""
    command = [sys.executable, str(SUPPORT / "train_group.py"), str(run_dir), str(slot)]
    command += [json.dumps(plans), json.dumps(fields), *([str(journal)] if journal else [])]
    environment = {"PYTHONPATH": f"{REPOSITORY}:{SUPPORT}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process):
    """The exit codes of its attempts, and all that they printed."""
    out, err = process.communicate(timeout=WORK_S)
    assert process.returncode == 0, err
    *printed, codes = out.splitlines()
    return json.loads(codes), "\n".join(printed)


def together(run_dir, plans, **fields):
    """All slots at once; by slot what `ended` says."""
    return [ended(one) for one in [begun(run_dir, slot, *its, **fields) for slot, its in enumerate(plans)]]


def history(slot_dir):
    """All that entered the slot's training from other slots, across its attempts, each event once."""
    return list(of_line(slot_dir))


def replayed(original, slot, tmp_path, *plans, score=None, **fields):
    """A run that has slot `slot` of `original` alone, and takes what that took, at the same steps; its digest."""
    run_dir, journal = tmp_path / f"replay-{slot}", tmp_path / f"journal-{slot}"
    taken = history(original / f"slots/{slot}")
    journal.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in taken))
    shutil.copytree(original / "kept", run_dir / "kept")
    last = {} if score is None else {"score": score}
    codes, printed = ended(begun(run_dir, 0, *plans, last, journal=journal, seed=slot, **fields))
    assert codes[-1] == 0, printed
    assert "gone or damaged" not in printed
    assert history(run_dir / "slots/0") == taken
    return slot_digest(run_dir / "slots/0")


def test_a_group_of_one_changes_nothing(tmp_path):
    assert ended(begun(tmp_path / "group", 0, {}))[0] == [0]
    assert ended(begun(tmp_path / "alone", 0, {}, group={}))[0] == [0]
    group, alone = (slot_digest(tmp_path / name / "slots/0") for name in ("group", "alone"))
    assert group["parts"]["run"][1].pop("episodes") == 60
    assert group == alone


def test_two_slots_learn_from_each_other_and_a_killed_one_comes_to_the_same(tmp_path):
    waits = {"30": "wait"}
    plans = [[{**waits, "72": "SIGKILL"}, {"3": "SIGKILL"}, {"40": "SIGUSR2"}, {}], [waits]]
    (codes, printed), (others_codes, others_printed) = together(tmp_path / "run", plans)
    assert (codes, others_codes) == ([KILLED, KILLED, HANDED_OVER, 0], [0]), printed + others_printed
    for slot in (0, 1):
        taken = history(tmp_path / f"run/slots/{slot}")
        assert {entry.peer for entry in taken} == {1 - slot}
        assert all(isinstance(entry, TakenFromPeer) for entry in taken)
        digest = slot_digest(tmp_path / f"run/slots/{slot}")
        assert digest["peers"] is not None
        assert replayed(tmp_path / "run", slot, tmp_path, {"120": "SIGKILL"}) == digest
        last = read(tmp_path / f"run/slots/{slot}")[-1]["group"]
        assert last["group_rows"] == {str(1 - slot): last["rows"]}
        assert 0 < last["share"] <= 0.3


@pytest.mark.long
def test_a_laggard_goes_on_with_what_the_other_has_learned_and_a_kill_changes_nothing(tmp_path):
    run, fields = tmp_path / "run", {"group": {"adopt": True, "rows": True}, "evaluation_goals": 50}
    assert ended(begun(run, 0, {"score": 1.0}, **fields))[0] == [0]
    codes, printed = ended(begun(run, 1, {"score": 0.0, "205": "adopt", "215": "SIGKILL"}, {"score": 0.0}, **fields))
    assert codes == [KILLED, 0], printed
    assert "adopts the learner of slot 0 at its step 1,200, which solved 100% more" in printed
    (adopted,) = [entry for entry in history(run / "slots/1") if isinstance(entry, Adopted)]
    assert (adopted.adopt, adopted.of, adopted.step) == (0, 1200, 820)  # the newest checkpoint is that of step 800
    assert not [entry for entry in history(run / "slots/0") if isinstance(entry, Adopted)]
    digest = slot_digest(run / "slots/1")
    assert replayed(run, 1, tmp_path, score=0.0, **{**fields, "group": {"rows": True}}) == digest


@pytest.mark.long
def test_two_slots_mix_their_weights_and_a_killed_one_comes_to_the_same(tmp_path):
    run, fields = tmp_path / "run", {"init_seed": 7, "group": {"mix": True, "mix_every": 60}}
    # Update 60 is made in the 74th vector step; the checkpoint of the 25th is whole when that of the 50th is begun.
    waits = {"70": "mix"}
    plans = [[{**waits, "75": "SIGKILL"}, {"40": "SIGUSR2"}, {}], [waits]]
    (codes, printed), (others_codes, others_printed) = together(run, plans, **fields)
    assert (codes, others_codes) == ([KILLED, HANDED_OVER, 0], [0]), printed + others_printed
    assert "the weights of slot 0 are mixed in from step 296 on" in others_printed
    for slot in (0, 1):
        taken = history(run / f"slots/{slot}")
        assert all(isinstance(entry, Mixed) for entry in taken)
        assert (taken[0].step, [peer.slot for peer in taken[0].mix]) == (296, [1 - slot])
        assert read(run / f"slots/{slot}")[-1]["group"] == {"mixed": len(taken)}
        replay = replayed(run, slot, tmp_path, {"120": "SIGKILL"}, init_seed=7, group={})
        assert replay == slot_digest(run / f"slots/{slot}")
    of_slot_1(run / "slots/1", section(**{"seed": 0, "horizon": 20, **fields}))


def of_slot_1(slot_dir, training):
    """What the others find of it: its newest whole checkpoint, and never one of an attempt that is not in its line."""
    newest = find_learner(slot_dir, 1, training)
    assert (newest.attempt, newest.step) == (0, 1200)
    assert find_learner(slot_dir, 1, training, known=(0, 1200)) is None
    assert find_learner(slot_dir, 1, training.changed(actor_hidden=[8])) is None
    assert find_learner(slot_dir, 1, training.changed(init_seed=8)) is None
    checkpoints = slot_dir / "attempts/0/checkpoints"
    learner = checkpoints / f"{1200:012d}/learner.safetensors"
    learner.write_bytes(learner.read_bytes()[:-1])
    before = find_learner(slot_dir, 1, training)
    assert before.step == 1100
    assert 290 < before.updates < 310
    # An attempt that goes on from an older checkpoint: what came after it is a ghost's.
    (slot_dir / "attempts/1").mkdir()
    Job(slot_dir.parents[1], 1, 1).start_from(CheckpointRef(0, 1000, checkpoints / f"{1000:012d}"))
    assert find_learner(slot_dir, 1, training).step == 1000
