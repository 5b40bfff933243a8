"""The inbox: what comes in, where it goes, and that a kill between any two steps loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace

import pytest
from daemons import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from anchorleg.files import LEFT_BEHIND_S
from syncd.cli import app
from syncd.shared.counts import Counts, counts, held, hold, note
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox, InboxLimits
from syncd.shared.layout import Shared
from syncd.shared.reception import RECOUNT_S, Quota, Reception, Refusal, Stored, receive
from syncd.shared.retention import WAITING_S, prune

RUN = "demo-0123abcd"
NOW = 1_760_086_400.0
DAY = 86_400.0


@pytest.fixture
def shared(tmp_path):
    made = Shared(tmp_path)
    made.slot(RUN, 0).path.mkdir(parents=True)
    return made


@pytest.fixture
def inbox(shared):
    return Inbox.of(shared, "alice")


def limited(inbox, **limits):
    """The same inbox, with less room."""
    return replace(inbox, limits=InboxLimits(**limits))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def arrive(inbox, data, slot=0, quota=None):
    """A segment that came in whole; its path."""
    found = receive(inbox, RUN, slot, sha(data), len(data), quota)
    assert isinstance(found, Reception), found
    found.write(data)
    assert found.finish() == Stored()
    return inbox.place("new", RUN, slot) / sha(data)


def arrive_later_than(earlier, inbox, data):
    """Another one, after the file system's clock moved on."""
    current = earlier if earlier.exists() else next(inbox.path.rglob(earlier.name))
    before = current.stat().st_ctime_ns
    probe = inbox.path / "probe"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > before:
            return arrive(inbox, data)
        probe.unlink()
        assert time.monotonic() < deadline


def states(inbox):
    """Which segments lie where."""
    return {
        state: sorted(file.path.name for file in inbox.files(state))
        for state in ("new", "accepted", "quarantine")
        if list(inbox.files(state))
    }


class TestArriving:
    @given(st.binary(min_size=1, max_size=300), st.data())
    def test_it_comes_in_pieces_and_is_seen_whole(self, tmp_path_factory, data, draw):
        shared = Shared(tmp_path_factory.mktemp("s"))
        shared.slot(RUN, 0).path.mkdir(parents=True)
        inbox = Inbox.of(shared, "alice")
        cut = draw.draw(st.integers(0, len(data)))
        reception = receive(inbox, RUN, 0, sha(data), len(data))
        with pytest.raises(ValueError, match="announced"):
            reception.write(data + b"x")
        for part in (data[:cut], data[cut:]):
            reception.write(part)
            assert states(inbox) == {}
        assert reception.finish() == Stored()
        (path,) = inbox.waiting(RUN, 0, now=NOW)
        assert inbox.read(path) == data
        assert receive(inbox, RUN, 0, sha(data), len(data)) == Stored()

    @pytest.mark.parametrize("came", [b"wrong", b"rig"])
    def test_what_is_not_what_its_name_says_is_not_kept(self, inbox, came):
        reception = receive(inbox, RUN, 0, sha(b"right"), 5)
        reception.write(came)
        assert reception.finish().reason == "damaged"
        assert states(inbox) == {}

    def test_a_full_inbox_says_when_to_come_again_and_counts_now_and_then(self, inbox):
        now = [0.0]
        few, small = limited(inbox, waiting_segments=2), limited(inbox, waiting_bytes=7)
        quota = Quota(few, clock=lambda: now[0])
        late = receive(few, RUN, 0, sha(b"late"), 4, quota)
        paths = [arrive(few, data, quota=quota) for data in (b"one", b"two")]
        late.write(b"late")
        for refusal in (
            late.finish(),
            receive(few, RUN, 0, sha(b"3"), 1, quota),
            receive(small, RUN, 0, sha(b"4!"), 2),
        ):
            assert (refusal.reason, refusal.retry_after_s) == ("quota", 60.0)
        arrive(small, b"4")
        inbox.accept(paths[0], now=NOW)
        inbox.accept(paths[1], now=NOW)
        assert isinstance(receive(few, RUN, 0, sha(b"3"), 1, quota), Refusal)
        now[0] = RECOUNT_S
        arrive(few, b"3", quota=quota)

    @pytest.mark.parametrize(
        ("run", "slot", "name", "size", "reason"),
        [
            ("../x", 0, sha(b""), 5, "name"),
            (RUN, -1, sha(b""), 5, "name"),
            (RUN, 0, "../../../etc/passwd", 5, "name"),
            (RUN, 0, sha(b"").upper(), 5, "name"),
            (RUN, 0, f"{sha(b'')}/../../x", 5, "name"),
            (RUN, 0, sha(b""), 0, "size"),
            (RUN, 0, sha(b""), MAX_SEGMENT_BYTES + 1, "size"),
            (RUN, 7, sha(b""), 5, "other_run"),
            ("somebody-elses", 0, sha(b""), 5, "other_run"),
        ],
    )
    def test_what_is_never_taken(self, inbox, run, slot, name, size, reason):
        refusal = receive(inbox, run, slot, name, size)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.retry_after_s) == (reason, None)
        assert not inbox.path.exists()

    def test_who_is_held_is_refused_for_a_while_longer_each_time(self, inbox):
        now = time.time()
        for times, hours in enumerate((1, 2, 4, 8, 16, 24, 24), 1):
            made = hold(inbox.path, "too much of it is none", now=now)
            assert (made.times, made.until - now) == (times, hours * 3600)
        refusal = receive(inbox, RUN, 0, sha(b"a"), 1)
        assert (refusal.reason, refusal.retry_after_s) == ("held", 600.0)
        assert "too much of it is none" in refusal.sentence
        assert held(inbox.path, now + 24 * 3600) is None
        assert held(inbox.path, now - 10) is None  # a clock that was set back holds nobody for ever
        assert hold(inbox.path, "…", now=now + 9 * DAY).times == 1
        assert inbox.readmit()
        assert not inbox.readmit()
        arrive(inbox, b"a")

    def test_a_nearly_full_disk_takes_nothing(self, inbox, monkeypatch):
        monkeypatch.setattr("syncd.shared.layout.FREE_SHARE", 1.0)
        monkeypatch.setattr("syncd.shared.layout.FREE_BYTES", 2**80)
        refusal = receive(inbox, RUN, 0, sha(b"a"), 1)
        assert (refusal.reason, refusal.retry_after_s) == ("storage", 60.0)
        assert not inbox.path.exists()


class TestWaiting:
    def test_oldest_first_and_only_what_is_ours(self, inbox, tmp_path):
        early = arrive(inbox, b"b")
        os.utime(early, (NOW + 9e8, NOW + 9e8))  # what a laptop's clock says counts for nothing
        late = arrive_later_than(early, inbox, b"a")
        folder = late.parent
        (folder / "README").write_text("hello")
        (folder / sha(b"folder")).mkdir()
        (folder / sha(b"link")).symlink_to("/etc/passwd")
        os.mkfifo(folder / sha(b"pipe"))
        assert inbox.waiting(RUN, 0, now=NOW) == [early, late]
        assert inbox.waiting(RUN, 1, now=NOW) == []

    def test_clearing_away_reaches_nothing_behind_a_link(self, shared, inbox, tmp_path):
        """A member of the group makes `quarantine` a link to blobs/ab/<sha256> of somebody else."""
        other = Shared(tmp_path / "private").slot(RUN, 0)
        blob = other.blob(sha(b"a"))
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"a")
        inbox.path.mkdir(parents=True)
        (inbox.path / "quarantine").symlink_to(other.path)
        prune(inbox, now=time.time() + 60 * DAY)
        assert blob.exists()

    def test_no_link_or_pipe_is_ever_opened(self, inbox):
        folder = arrive(inbox, b"a").parent
        (folder / sha(b"link")).symlink_to("/etc/passwd")
        os.mkfifo(folder / sha(b"pipe"))
        for name in (b"link", b"pipe"):
            with pytest.raises(OSError, match=sha(name)):
                inbox.read(folder / sha(name))

    def test_a_linked_folder_is_no_folder(self, inbox, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / sha(b"x")).write_bytes(b"x")
        inbox.place("new", RUN, 0).parent.mkdir(parents=True)
        inbox.place("new", RUN, 0).symlink_to(tmp_path / "elsewhere")
        assert inbox.waiting(RUN, 0, now=NOW) == []

    def test_what_is_too_large_is_refused_and_counts(self, inbox):
        path = arrive(inbox, b"a")
        path.write_bytes(bytes(MAX_SEGMENT_BYTES + 1))
        assert inbox.waiting(RUN, 0, now=NOW) == []
        assert states(inbox) == {}
        assert [verdict.reason for verdict in inbox.verdicts()] == ["size"]
        assert counts(inbox.path).refused == {"size": 1}
        (verdict,) = inbox.verdicts()
        assert (verdict.accepted, verdict.reason, verdict.at) == (False, "size", NOW)


class TestJudged:
    def test_an_accepted_one_stays_until_a_checkpoint_has_it(self, inbox):
        path = arrive(inbox, b"a")
        accepted = inbox.accept(path, now=NOW)
        assert accepted == inbox.accepted(RUN, 0, sha(b"a")) == inbox.find(RUN, 0, sha(b"a"))
        assert inbox.read(accepted) == b"a"
        assert [verdict.accepted for verdict in inbox.verdicts()] == [True]
        assert receive(inbox, RUN, 0, sha(b"a"), 1) == Stored()  # sent again: it is here
        inbox.consumed(RUN, 0, [sha(b"a"), sha(b"never there")])
        assert states(inbox) == {}
        assert inbox.find(RUN, 0, sha(b"a")) is None

    def test_a_refused_one_lies_beside_its_reason(self, inbox):
        path = arrive(inbox, b"a")
        inbox.refuse(path, "not_finite", "its rewards are not finite", now=NOW)
        assert states(inbox) == {"quarantine": [sha(b"a")]}
        reason = json.loads((inbox.place("quarantine", RUN, 0) / f"{sha(b'a')}.reason.json").read_text())
        assert reason["reason"] == "not_finite"
        (verdict,) = inbox.verdicts()
        assert verdict.sentence == "its rewards are not finite"
        inbox.acknowledge([verdict.sha256])
        assert inbox.verdicts() == []

    @pytest.mark.parametrize("act", ["accept", "refuse"])
    def test_a_kill_anywhere_leaves_it_in_one_place_and_again_finishes(self, shared, act, monkeypatch):
        """Before each fsync and each rename; what is done again afterwards ends as if nothing had been."""

        class Killed(BaseException):
            pass

        def judge(inbox, path):
            if act == "accept":
                inbox.accept(path, now=NOW)
            else:
                inbox.refuse(path, "format", "no segment", now=NOW)

        deaths = 0
        while True:
            inbox = Inbox.of(shared, f"contributor-{deaths}")
            path = arrive(inbox, b"a")
            contacts = []

            def dying(real, contacts=contacts, limit=deaths):
                def call(*args, **more):
                    contacts.append(real)
                    if len(contacts) > limit:
                        raise Killed
                    return real(*args, **more)

                return call

            with monkeypatch.context() as patch:
                for name in ("fsync", "replace", "mkdir"):
                    patch.setattr(f"os.{name}", dying(getattr(os, name)))
                try:
                    judge(inbox, path)
                except Killed:
                    died = True
                else:
                    died = False
            assert sum(map(len, states(inbox).values())) == 1
            judge(inbox, path)
            assert states(inbox) == {("accepted" if act == "accept" else "quarantine"): [sha(b"a")]}
            assert len(inbox.verdicts()) == 1
            if not died:
                break
            deaths += 1
        assert deaths > 5


class TestDropping:
    def test_what_waits_goes_and_what_comes_is_refused_until_readmitted(self, shared, inbox):
        shared.slot(RUN, 1).path.mkdir()
        arrive(inbox, b"a"), arrive(inbox, b"b", slot=1)
        kept = inbox.accept(arrive(inbox, b"c"), now=NOW)
        assert inbox.drop(by="me", now=NOW) == 2
        assert inbox.is_dropped
        assert states(inbox) == {"quarantine": sorted([sha(b"a"), sha(b"b")]), "accepted": [kept.name]}
        assert counts(inbox.path).refused == {"dropped": 2}
        assert receive(inbox, RUN, 0, sha(b"d"), 1).reason == "dropped"
        assert inbox.readmit()
        assert not inbox.readmit()
        arrive(inbox, b"d")

    def test_a_drop_that_was_killed_is_finished_by_the_next(self, inbox):
        arrive(inbox, b"a")
        inbox.path.joinpath("dropped.json").write_text('{"at": 1, "by": "me"}')
        assert inbox.drop(by="me", now=NOW) == 1
        assert states(inbox) == {"quarantine": [sha(b"a")]}

    def test_what_the_learner_took_at_the_same_moment_keeps_its_verdict(self, inbox):
        class AMomentBefore(Inbox):
            def files(self, _state):
                return iter(both)

        path = arrive(inbox, b"a")
        both = list(inbox.files("new"))
        inbox.accept(path, now=NOW)
        assert AMomentBefore(inbox.who, inbox.path).drop(by="me", now=NOW) == 0
        assert [verdict.accepted for verdict in inbox.verdicts()] == [True]
        assert not (inbox.path / "quarantine").exists()


class TestPruning:
    def test_what_waits_for_no_learner_goes_to_quarantine(self, inbox):
        arrive(inbox, b"a")
        prune(inbox, now=time.time())
        assert states(inbox) == {"new": [sha(b"a")]}
        prune(inbox, now=time.time() + WAITING_S + 5)
        assert [verdict.reason for verdict in inbox.verdicts()] == ["stale"]
        assert states(inbox) == {"quarantine": [sha(b"a")]}

    def test_a_full_quarantine_refuses_without_keeping(self, inbox):
        inbox = limited(inbox, quarantined=2)
        for data in (b"0000", b"0001", b"0002", b"0003"):
            inbox.refuse(arrive(inbox, data), "reward_range", "…", now=NOW)
        assert states(inbox) == {"quarantine": sorted([sha(b"0000"), sha(b"0001")])}
        assert len(inbox.verdicts()) == 4
        inbox.refuse(inbox.place("quarantine", RUN, 0) / sha(b"0000"), "reward_range", "…", now=NOW)  # as after a kill
        assert sha(b"0000") in states(inbox)["quarantine"]

    @pytest.mark.parametrize(
        "where", ["", "verdicts", "counts", "new/run/0", "untrue/run", "live/run/0", "../../accounts"]
    )
    def test_an_unfinished_file_goes_ten_minutes_later(self, inbox, where):
        folder = inbox.path / where
        inbox.path.mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        left = folder / f".{sha(b'a')}.17.0a0b0c0d.tmp"
        left.write_text("half")
        prune(inbox, now=time.time() + LEFT_BEHIND_S / 2)
        assert left.exists()
        prune(inbox, now=time.time() + LEFT_BEHIND_S + 5)
        assert not left.exists()
        assert folder.exists()


class TestCommands:
    def run(self, *words):
        return CliRunner().invoke(app, [str(word) for word in words])

    def test_contributors_say_what_became_of_what_they_sent(self, shared, inbox):
        nobody = self.run("contributors", shared.path)
        assert (nobody.stdout, bool(nobody.stderr)) == ("", True)
        arrive(inbox, b"abc")
        inbox.note(RUN, 0, Counts(accepted=2, rows=1000, refused={"size": 1}, last_at=NOW))
        inbox.note(RUN, 1, Counts(accepted=1, rows=500, last_at=NOW - 5))
        note(inbox.path, "drop", Counts())
        (row,) = json.loads(self.run("contributors", shared.path, "--json").stdout)
        assert row == {
            "contributor": "alice",
            "waiting": 1,
            "waiting_bytes": 3,
            "accepted": 3,
            "rows": 1500,
            "rows_7d": 0,
            "rows_today": 0,
            "rows_credited": 1500,
            "checked": 0,
            "exact": 0,
            "episodes": 0,
            "solved": 0,
            "refused": {"size": 1},
            "last_seen": NOW,
            "dropped": False,
            "held_until": None,
            "held_for": "",
            "slots": {
                f"{RUN}/0": {"accepted": 2, "rows": 1000, "last_at": NOW},
                f"{RUN}/1": {"accepted": 1, "rows": 500, "last_at": NOW - 5},
            },
        }
        words = self.run("contributors", shared.path).stdout.strip().split("\t")
        assert words[:8] == ["alice", "1", "3", "1,500", "0", "0 %", "-", "1 (size 1)"]

    def test_dropping_asks_and_says_how_to_undo(self, shared, inbox):
        arrive(inbox, b"abc")
        asked = self.run("drop", "--contributor", "alice", "--shared", shared.path)
        assert asked.exception.id == "contributor.no-terminal"
        assert not inbox.is_dropped
        done = self.run("drop", "--contributor", "alice", "--shared", shared.path, "--yes")
        assert "syncd readmit --contributor alice" in done.stdout
        assert inbox.is_dropped
        assert "accepted again" in self.run("readmit", "--contributor", "alice", "--shared", shared.path).stdout
        again = self.run("readmit", "--contributor", "alice", "--shared", shared.path)
        assert "neither dropped nor held" in again.stdout
