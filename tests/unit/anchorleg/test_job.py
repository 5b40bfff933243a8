from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S

from anchorleg.job import (
    HANDED_OVER,
    CheckpointRef,
    Job,
    Stretch,
    candidates_before,
    lineage,
    parent_record,
    passed_over,
)
from anchorleg.rollback import Rollback, roll_back

REPOSITORY = Path(__file__).resolve().parents[3]
#: What `parent.json` of attempt 1 may hold after somebody's hand was in it; who followed the circles never came back.
NO_DECISIONS = ("{}", "null", "[1]", "5", '{"attempt": 0}', '{"attempt": "a", "step": 1, "checkpoint": "1"}', '{"att')
CIRCLES = [{"attempt": number, "step": 200, "checkpoint": "200"} for number in (1, 2, -1)]


class SlotFolder:
    """A slot's folder in the making."""

    def __init__(self, path: Path) -> None:
        self.run_dir = path
        self.path = path / "slots" / "0"

    def attempt(self, number: int, *checkpoints: int, parent: Any = "undecided", claimed: bool = True) -> SlotFolder:
        folder = self.path / "attempts" / str(number)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        if claimed:
            (folder / "claim").write_text("{}")
        if parent != "undecided":
            ref = None if parent is None else CheckpointRef(parent[0], parent[1], Path(str(parent[1])))
            (folder / "parent.json").write_text(json.dumps(parent_record(ref)))
        for step in checkpoints:
            (folder / "checkpoints" / str(step)).mkdir(exist_ok=True)
        return self

    def roll_back(self, attempt: int, step: int) -> None:
        roll_back(self.path, Rollback(attempt, step, 0.0))

    def candidates(self, attempt: int) -> list[tuple[int, int]]:
        return [(ref.attempt, ref.step) for ref in candidates_before(self.path, attempt)]

    def job(self, attempt: int, **more: Any) -> Job:
        return Job(self.run_dir, 0, attempt, **more)


@pytest.fixture
def slot(tmp_path: Path) -> SlotFolder:
    return SlotFolder(tmp_path)


class TestWhereAnAttemptMayStart:
    @pytest.mark.parametrize(
        ("history", "attempt", "found"),  # history: (attempt, its checkpoints, its parent), in the order of writing
        [
            ([(0, (90, 100, 200), None)], 1, [(0, 200), (0, 100), (0, 90)]),
            # A decision hides what a ghost published afterwards, and so on down the whole line.
            ([(0, (100,), None), (1, (150,), (0, 100)), (0, (200, 300), None)], 2, [(1, 150), (0, 100)]),
            ([(0, (10,), None), (1, (20,), (0, 10)), (2, (30,), (1, 20)), (0, (99,), None), (1, (98,), (0, 10))], 3,
             [(2, 30), (1, 20), (0, 10)]),
            # Successors that died before their first checkpoint are skipped, to precisely their parent.
            ([(0, (50, 100), None), (1, (), (0, 100)), (2, (), (0, 100)), (0, (200,), None)], 3, [(0, 100), (0, 50)]),
            ([(0, (100,), None), (1, (), None)], 2, []),  # from scratch
            ([(0, (100,), None), (1, (), "undecided"), (0, (200,), None)], 2, [(0, 200), (0, 100)]),
        ],
    )  # fmt: skip
    def test_it_follows_each_attempts_own_decision(
        self, slot: SlotFolder, history: Any, attempt: int, found: list[tuple[int, int]]
    ) -> None:
        for number, steps, parent in history:
            slot.attempt(number, *steps, parent=parent)
        assert slot.candidates(attempt) == found

    def test_a_decision_to_go_back_hides_what_was_saved_later_by_attempts_up_to_then(self, slot: SlotFolder) -> None:
        slot.attempt(0, 50, 100, parent=None).attempt(1, 150, 200, parent=(0, 100))
        slot.roll_back(1, 160)
        assert slot.candidates(2) == [(1, 150), (0, 100), (0, 50)]
        slot.roll_back(1, 99)
        assert slot.candidates(2) == [(0, 50)]
        slot.attempt(1, 300)  # the one that ran when it was decided goes on
        slot.attempt(2, 80, 120, parent=(0, 50))
        assert slot.candidates(3) == [(2, 120), (2, 80), (0, 50)]
        assert slot.candidates(1) == [(0, 100), (0, 50)]

    def test_an_attempt_that_began_unseen_before_a_decision_to_go_back_is_meant_too(self, slot: SlotFolder) -> None:
        slot.attempt(7, 100, 200, 300, parent=None).attempt(8, 350, 400, parent=(7, 300)).roll_back(7, 100)
        assert slot.candidates(9) == [(7, 100)]
        assert [ref.step for ref in passed_over(slot.path, 8)] == [400, 350, 300, 200]  # until the next one has begun
        slot.attempt(9, 450, parent=(8, 400)).attempt(10, parent="undecided")
        assert slot.candidates(11) == [(7, 100)]
        slot.attempt(11, 90, 150, 500, parent=(7, 100))
        assert slot.candidates(12) == [(11, 500), (11, 150), (11, 90), (7, 100)]
        assert slot.candidates(8) == [(7, 100)]

    def test_a_damaged_decision_to_go_back_is_an_error(self, slot: SlotFolder) -> None:
        slot.attempt(0, 50, parent=None).roll_back(0, 10)
        (slot.path / "rollbacks/0.json").write_text("{}")
        with pytest.raises(ValueError, match="repair it, or delete it"):
            slot.candidates(1)

    @pytest.mark.parametrize("text", [*NO_DECISIONS, *(json.dumps(circle) for circle in CIRCLES)])
    def test_a_decision_that_is_none_is_one_sentence(self, slot: SlotFolder, text: str) -> None:
        slot.attempt(0, 100, parent=None).attempt(1, 150, parent=(0, 100)).attempt(2, 200)
        path = slot.path / "attempts/1/parent.json"
        path.write_text(text)
        for look in (lambda: list(islice(candidates_before(slot.path, 3), 99)), lambda: lineage(slot.path)):
            with pytest.raises(ValueError, match=f"{path}, which says where attempt 1 began, is damaged: restore it"):
                look()

    @pytest.mark.parametrize("text", NO_DECISIONS)
    def test_who_looks_for_what_began_unseen_is_told_so_too(self, slot: SlotFolder, text: str) -> None:
        slot.attempt(0, 100, 200, parent=None).attempt(1, 250, parent=(0, 200)).roll_back(0, 100)
        (slot.path / "attempts/1/parent.json").write_text(text)
        with pytest.raises(ValueError, match="which says where attempt 1 began, is damaged"):
            slot.candidates(2)

    def test_what_is_chosen_is_written_down_before_anything_else(self, slot: SlotFolder) -> None:
        slot.attempt(0, 100, 200, parent=None).attempt(1)
        chosen = slot.job(1).choose_parent(lambda ref: ref.step != 200)
        assert chosen is not None
        assert chosen.step == 100
        record = json.loads((slot.path / "attempts/1/parent.json").read_text())
        assert record == {"attempt": 0, "step": 100, "checkpoint": "100"}


class TestTheHistory:
    def test_each_attempt_is_cut_where_its_successor_began(self, slot: SlotFolder) -> None:
        slot.attempt(0, 100, 200, parent=None).attempt(1, 250, parent=(0, 200)).attempt(2, parent=(1, 250))
        assert lineage(slot.path) == [Stretch(0, 0, 200), Stretch(1, 200, 250), Stretch(2, 250, None)]


class TestSuperseded:
    def test_by_a_higher_claim(self, slot: SlotFolder) -> None:
        slot.attempt(1).attempt(2).attempt(3, claimed=False)
        assert slot.job(1).superseded_by() == 2

    def test_not_by_itself_or_older_ones(self, slot: SlotFolder) -> None:
        slot.attempt(0).attempt(1)
        assert slot.job(1).superseded_by() is None


class TestStandalone:
    def test_it_claims_the_next_attempt(self, slot: SlotFolder) -> None:
        slot.attempt(0).attempt(4, claimed=False)
        assert [Job.standalone(slot.run_dir).attempt for _ in range(2)] == [5, 6]


class TestHandOver:
    def test_the_deadline_asks_at_its_second(self, slot: SlotFolder) -> None:
        now = [99.9]
        job = slot.job(0, deadline=100.0, clock=lambda: now[0])
        assert job.hand_over_reason() is None
        now[0] = 100.0
        assert job.hand_over_reason() == "deadline"

    def test_the_file_asks_and_is_looked_for_only_now_and_then(self, slot: SlotFolder, tmp_path: Path) -> None:
        now = [0.0]
        job = slot.job(0, hand_over_file=tmp_path / "hand-over", clock=lambda: now[0])
        assert job.hand_over_reason() is None
        (tmp_path / "hand-over").touch()
        now[0] = 0.1
        assert job.hand_over_reason() is None
        now[0] = 0.3
        assert job.hand_over_reason() == "asked to"

    @pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM, signal.SIGINT])
    def test_each_signal_asks_and_the_first_reason_stays(self, slot: SlotFolder, number: signal.Signals) -> None:
        before = {n: signal.getsignal(n) for n in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)}
        job = slot.job(0, deadline=0.0)
        try:
            job.listen()
            os.kill(os.getpid(), number)
            assert job.hand_over_reason() == number.name
        finally:
            for n, handler in before.items():
                signal.signal(n, handler)


class TestSaving:
    @pytest.mark.parametrize("step", [1000.0, -1, "1000", None])
    def test_a_step_that_no_job_would_find_is_refused_in_one_sentence(self, slot: SlotFolder, step: Any) -> None:
        with pytest.raises(ValueError, match=r"a checkpoint's step is a whole number, 1000 and not 1000\.0"):
            slot.attempt(0).job(0).save_checkpoint(step, lambda folder: (folder / "x").touch())
        assert list((slot.path / "attempts/0/checkpoints").iterdir()) == []

    def test_who_was_superseded_publishes_nothing_and_hands_over(self, slot: SlotFolder) -> None:
        job = slot.attempt(0).job(0)
        with pytest.raises(SystemExit) as ended:
            job.save_checkpoint(7, lambda folder: (slot.attempt(1), (folder / "x").touch()))
        assert (ended.value.code, list((slot.path / "attempts/0/checkpoints").iterdir())) == (HANDED_OVER, [])


class TestTheEnvironment:
    def test_what_other_machines_see_is_where_the_shim_says(self) -> None:
        names = {"RUN_DIR": "/r", "SLOT": "0", "ATTEMPT": "0", "HANDOVER_FILE": "/h", "SCRATCH": "/s"}
        names |= {"RUN_ID": "mt10-0123abcd", "RUN_NAME": "mt10", "SHARED_DIR": "/group/us", "CONTRIBUTIONS": "1"}
        names |= {"TERMS": '{"rows_per_day": 5000}'}
        job = Job.from_environment({f"ANCHORLEG_{name}": value for name, value in names.items()})
        assert job is not None
        assert (job.run_id, job.run_name, job.shared_dir) == ("mt10-0123abcd", "mt10", Path("/group/us"))
        assert job.accepts_contributions
        assert job.terms == {"rows_per_day": 5000}


LEAVING = """
import os, sys, time
from pathlib import Path
from anchorleg.job import HANDED_OVER, Job

class Last:
    def __del__(self, write=os.write, sleep=time.sleep):
        write(1, b"leaving\\n")
        sleep(0.5)

sys.last = Last()  # outlives everything else
Job(Path("."), 0, 0).listen()
sys.exit(HANDED_OVER)
"""


FORKING = """
import os, signal, sys
from pathlib import Path
from anchorleg.job import Job

Job(Path("."), 0, 0).listen()
Job(Path("."), 0, 1).listen()
if HANDLED:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
child = os.fork()
if not child:
    os.kill(os.getpid(), int(sys.argv[1]))
    os._exit(0)
sys.exit(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


@pytest.mark.parametrize(
    ("number", "is_handled", "ends_with"),
    [(signal.SIGTERM, False, -signal.SIGTERM), (signal.SIGTERM, True, 5), (signal.SIGINT, False, 0)],
)
def test_a_forked_child_ends_at_a_sigterm_unless_somebody_has_set_a_handler_and_not_at_ctrl_c(
    number: signal.Signals, is_handled: bool, ends_with: int
) -> None:
    """Else whoever calls `terminate()` and `join()` waits for ever."""
    command = [sys.executable, "-c", FORKING.replace("HANDLED", str(is_handled)), str(int(number))]
    done = subprocess.run(command, cwd=REPOSITORY, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert done.stderr == f"{int(ends_with)}\n".encode()


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_wake_up_that_comes_while_the_interpreter_leaves_kills_nobody(number: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", LEAVING], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert child.stdout is not None
    assert child.stdout.readline() == b"leaving\n"
    child.send_signal(number)
    assert child.wait(PATIENCE_S) == HANDED_OVER
