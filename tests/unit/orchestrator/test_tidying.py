"""What the shim removes of a foreign program's checkpoints, and what it never does."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guillotine import Guillotine
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorleg.files import remove_folder, write_json
from anchorleg.job import CheckpointRef, Job, candidates_before, parent_record
from anchorleg.rollback import Rollback, roll_back
from orchestrator.jobside import OVER_S, tidy

#: When the attempt under test claimed, by the files' clock.
CLAIMED_AT = 1_760_086_400.0


class SlotFolder:
    """A slot's attempts in the making. Each checkpoint has two files, which name it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def attempt(self, number: int, *steps: int, parent: Any = "undecided", sign: str = "ended") -> Job:
        """`sign`: how it stands: "ended" by its own record, "silent" for long, or "alive"."""
        job = Job(self.run_dir, 0, number)
        for step in steps:
            folder = job.attempt_dir / "checkpoints" / str(step)
            (folder / "sub").mkdir(parents=True)
            for name in ("weights", "sub/state"):
                (folder / name).write_text(f"{number} {step}")
        job.attempt_dir.mkdir(parents=True, exist_ok=True)
        (job.attempt_dir / "claim").touch()
        at = CLAIMED_AT - (OVER_S + 1 if sign == "silent" else OVER_S / 2 if sign == "alive" else 0)
        os.utime(job.attempt_dir / "claim", (at, at))
        if sign == "ended":
            (job.attempt_dir / "exit.json").touch()
        if parent != "undecided":
            write_json(job.attempt_dir / "parent.json", parent_record(parent))
        return job

    def line(self, attempt: int) -> list[tuple[int, int]]:
        return [(ref.attempt, ref.step) for ref in candidates_before(self.run_dir / "slots" / "0", attempt)]

    def kept(self) -> set[tuple[int, int]]:
        """(attempt, step) of what is published. Errors: AssertionError where one is not whole."""
        found = set()
        for path in self.run_dir.glob("slots/0/attempts/*/checkpoints/*"):
            if path.name.isdigit():
                attempt, step = int(path.parts[-3]), int(path.name)
                assert {f.read_text() for f in path.rglob("*") if f.is_file()} == {f"{attempt} {step}"}
                assert len([f for f in path.rglob("*") if f.is_file()]) == 2
                found.add((attempt, step))
        return found

    def ref(self, attempt: int, step: int) -> CheckpointRef:
        return CheckpointRef(attempt, step, Job(self.run_dir, 0, attempt).attempt_dir / "checkpoints" / str(step))


@pytest.fixture
def slot(tmp_path: Path) -> SlotFolder:
    return SlotFolder(tmp_path)


def tidied(job: Job, keep: int, remove: Callable[[Path], None] = remove_folder) -> list[str]:
    said: list[str] = []
    tidy(job, keep, said.append, remove)
    return said


@pytest.mark.parametrize(("sign", "left"), [("alive", {1, 2, 3}), ("silent", {2}), ("ended", {2})])
def test_nothing_of_an_older_job_that_may_be_alive_goes(slot: SlotFolder, sign: str, left: set[int]) -> None:
    slot.attempt(0, 1, 2, 3, parent=None, sign=sign)
    job = slot.attempt(1, parent=slot.ref(0, 2), sign="alive")
    os.utime(job.attempt_dir / "claim", (CLAIMED_AT, CLAIMED_AT))
    tidied(job, 1)
    assert slot.kept() == {(0, step) for step in left}


def test_what_a_decision_to_go_back_passes_over_stays_until_the_next_job_begins(slot: SlotFolder) -> None:
    job = slot.attempt(0, 1, 2, 3, 4, parent=None)
    decision = roll_back(job.slot_dir, Rollback(0, 2, 0.0))
    tidied(job, 1)
    assert slot.kept() == {(0, 2), (0, 4)}
    text = decision.read_text()
    decision.unlink()
    assert slot.line(1) == [(0, 4), (0, 2)]
    decision.write_text(text)
    tidied(slot.attempt(1), 1)
    assert slot.kept() == {(0, 2)}


def test_a_higher_claim_in_the_middle_ends_it(slot: SlotFolder) -> None:
    job = slot.attempt(0, 1, 2, 3, 4, parent=None)

    def then_claimed(path: Path) -> None:
        remove_folder(path)
        slot.attempt(1)

    tidied(job, 1, then_claimed)
    assert slot.kept() == {(0, 2), (0, 3), (0, 4)}


@st.composite
def slots(draw: st.DrawFn) -> tuple[list[tuple[list[int], str, int | None]], int]:
    """Attempts, oldest first: (steps, how it stands, which candidate it began with); and how many to keep."""
    attempts = st.tuples(
        st.lists(st.integers(1, 9), max_size=4, unique=True),
        st.sampled_from(["ended", "silent", "alive"]),
        st.none() | st.integers(0, 5),
    )
    return draw(st.lists(attempts, min_size=1, max_size=5)), draw(st.integers(1, 4))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(slots())
def test_whatever_the_jobs_did_a_successor_starts_from_the_same(case: Any) -> None:
    attempts, keep = case
    with tempfile.TemporaryDirectory() as folder:
        slot = SlotFolder(Path(folder))
        for number, (steps, sign, choice) in enumerate(attempts):
            line = slot.line(number)
            parent = None if choice is None or not line else slot.ref(*line[choice % len(line)])
            job = slot.attempt(number, *steps, parent=parent, sign=sign)
        os.utime(job.attempt_dir / "claim", (CLAIMED_AT, CLAIMED_AT))
        number, before, line = len(attempts), slot.kept(), slot.line(len(attempts))
        alive = {n for n, (_, sign, _) in enumerate(attempts[:-1]) if sign == "alive"}

        assert tidied(job, keep) == []

        assert slot.line(number)[:keep] == line[:keep]
        gone = before - slot.kept()
        assert not {attempt for attempt, _ in gone} & alive
        assert not gone & set(line[:keep])
        expected = before - set(line[:keep]) if len(line) >= keep else set()
        assert gone == {one for one in expected if one[0] not in alive}


def test_kill_9_between_any_two_removals_leaves_whole_checkpoints_and_the_next_job_goes_on(tmp_path: Path) -> None:
    deaths = 0
    while True:
        slot = SlotFolder(tmp_path / str(deaths))
        slot.attempt(0, 1, 2, parent=None)
        job = slot.attempt(1, 3, 4, 5, parent=slot.ref(0, 2))
        line = slot.line(2)
        child = os.fork()
        if child == 0:
            guillotine = Guillotine(deaths + 1)
            guillotine.install()
            tidy(job, 2, print)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert slot.kept() >= {(1, 5), (1, 4)}
        assert slot.line(2)[:2] == line[:2]
        tidied(job, 2)
        assert slot.kept() == {(1, 5), (1, 4)}
        assert [p for p in tmp_path.rglob("*") if p.name.endswith(".deleted")] == []
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        deaths += 1
    assert deaths >= 3 * 5  # of three checkpoints: the rename, its fsync, two files and two folders
