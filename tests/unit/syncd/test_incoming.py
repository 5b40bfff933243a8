"""What other accounts of the machine put into a shared folder, how the learner takes it, and whose inbox is
whose.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
from types import SimpleNamespace

import pytest

from syncd.shared import incoming as incoming_module
from syncd.shared.deposit import Deposit
from syncd.shared.inbox import Inbox
from syncd.shared.incoming import (
    INCOMING_MODE,
    Incoming,
    called,
    claim_inbox,
    close_to_others,
    inbox_of,
    make_incoming,
)
from syncd.shared.layout import Shared

RUN = "demo-0123abcd"
NOW = 1_760_086_400.0
#: Accounts that this machine does not have.
ANN, BOB = 54_321, 54_322
ME = called(os.geteuid())
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other accounts")


@pytest.fixture
def shared(tmp_path):
    os.chmod(tmp_path, 0o2750)
    made = Shared(tmp_path)
    made.slot(RUN, 0).path.mkdir(parents=True)
    assert make_incoming(made, RUN, 0)
    return made


def collect(shared, most=100, now=NOW):
    with contextlib.closing(Incoming(shared, RUN, 0)) as incoming:
        return incoming.collect(most, now=now)


def waiting(shared, who):
    return {path.read_bytes() for path in Inbox.of(shared, who).place("new", RUN, 0).iterdir()}


def given(shared, data, uid=None):
    """A file as somebody's actors leave it."""
    before = set(shared.incoming(RUN, 0).iterdir())
    assert Deposit(shared).offer(RUN, 0, data)
    (path,) = set(shared.incoming(RUN, 0).iterdir()) - before
    if uid is not None:
        os.chown(path, uid, -1)
    return path


def sum_of(data):
    return hashlib.sha256(data).hexdigest()


def a_name(data):
    return f"{sum_of(data)}.0123abcd"


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_slots_own_folder_is_open_to_the_group_whatever_the_umask(shared):
    before = os.umask(0o077)
    try:
        make_incoming(shared, RUN, 7)
    finally:
        os.umask(before)
    slot = shared.incoming(RUN, 7)
    assert mode_of(slot) == INCOMING_MODE == 0o3770
    assert {mode_of(above) for above in (slot.parent, slot.parent.parent)} == {0o2750}


@as_root
def test_nobody_is_at_a_segments_name_first(shared, monkeypatch):
    """Members list the folder: what they see while a segment is written tells neither its sum nor its name."""
    data, folder = b"some rows", shared.incoming(RUN, 0)
    seen, real_fsync = [], os.fsync

    def synced(fd):
        seen.append({path.name for path in folder.iterdir()})
        real_fsync(fd)

    for name in (sum_of(data), f"{sum_of(data)}.eve"):
        (folder / name).write_bytes(b"of somebody else")
        os.chown(folder / name, ANN, -1)
    there = {path.name for path in folder.iterdir()}
    monkeypatch.setattr(os, "fsync", synced)
    for _ in range(2):
        assert Deposit(shared).offer(RUN, 0, data)
    monkeypatch.undo()
    made = {path.name for path in folder.iterdir()} - there
    assert len(made) == 2
    (while_written,) = seen[0] - there
    assert sum_of(data) not in while_written
    assert not [name for name in made if name.split(".")[1] in while_written]
    assert set(collect(shared)) == {sum_of(data)}
    assert waiting(shared, ME) == {data}


def test_no_link_is_followed_and_no_device_opened(shared, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret")
    name = a_name(b"a secret")
    folder = shared.incoming(RUN, 0)
    (folder / name).symlink_to(secret)
    os.mkfifo(folder / a_name(b"fifo"))
    linked = tmp_path / "linked"
    linked.write_bytes(b"hard")
    os.link(linked, folder / a_name(b"hard"))
    (folder / a_name(b"folder")).mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    assert collect(shared) == []
    assert {path.name for path in folder.iterdir()} == {"full", a_name(b"hard")}
    assert not shared.inbox_folder.exists()
    assert secret.read_bytes() == b"a secret"
    assert not (folder / name).is_symlink()


@pytest.fixture
def few_looks(monkeypatch):
    """A round that looks at 10 names, and a bound of 10 segments of one account."""
    monkeypatch.setattr(incoming_module, "LOOKS", 10)
    monkeypatch.setattr(incoming_module, "MAX_WAITING", 5)


def looked_through(shared, names):
    """(sums that were handed over, what is left) after as many rounds as `names` take."""
    found = []
    with contextlib.closing(Incoming(shared, RUN, 0)) as incoming:
        for _ in range(names // 10 + 1):
            found += incoming.collect(4, now=NOW)
    return found, {path.name for path in shared.incoming(RUN, 0).iterdir()}


@pytest.mark.usefixtures("few_looks")
@pytest.mark.parametrize("is_full", [False, True], ids=["empty", "with a file in them"])
def test_folders_of_somebody_hide_nothing_for_good(shared, is_full):
    folder = shared.incoming(RUN, 0)
    junk = {a_name(b"%d" % number) for number in range(60)}
    for name in junk:
        (folder / name).mkdir()
        if is_full:
            (folder / name / "file").touch()
    honest = {sum_of(b"honest %d" % number) for number in range(3)}
    for number in range(3):
        given(shared, b"honest %d" % number)
    found, left = looked_through(shared, 63)
    assert set(found) == honest
    assert left == (junk if is_full else set())


@pytest.mark.usefixtures("few_looks")
def test_of_too_many_files_of_one_account_the_rest_goes_whatever_it_is(shared):
    folder = shared.incoming(RUN, 0)
    for number in range(40):
        (folder / f"notes-{number}").touch()
        given(shared, b"segment %d" % number)
    with contextlib.closing(Incoming(shared, RUN, 0)) as incoming:
        for _ in range(9):
            incoming.collect(0, now=NOW)
    left = [path.name for path in folder.iterdir()]
    assert len([name for name in left if name.startswith("notes")]) == 10
    assert len(left) == 20


@as_root
def test_bad_files_of_one_account_cost_another_no_more_than_its_turn(shared):
    folder = shared.incoming(RUN, 0)
    for number in range(20):
        (folder / a_name(b"%d" % number)).write_bytes(b"torn")
        os.chown(folder / a_name(b"%d" % number), ANN, -1)
    for number in range(3):
        given(shared, b"bob %d" % number, BOB)
    assert len(collect(shared, most=6)) == 3
    assert len(list(folder.iterdir())) == 17


def test_nothing_of_who_was_dropped_is_opened(shared, monkeypatch):
    given(shared, b"the first")
    collect(shared)
    for number in range(5):
        given(shared, b"more %d" % number)
    (shared.incoming(RUN, 0) / "notes.txt").touch()
    Inbox.of(shared, ME).drop(by="the owner", now=NOW)
    monkeypatch.setattr(incoming_module, "_take", None)
    assert collect(shared) == []
    assert list(shared.incoming(RUN, 0).iterdir()) == []


@pytest.fixture
def names(monkeypatch):
    """uid → name, as the machine's directory tells it; a test changes it."""
    told = {ANN: "ann"}

    def getpwuid(uid):
        return SimpleNamespace(pw_name=told[uid])

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    return told


def test_an_account_keeps_its_inbox_when_it_is_renamed_or_its_name_is_not_told(shared, names):
    assert inbox_of(shared, ANN) is None
    assert claim_inbox(shared, ANN).who == "user-ann"
    names[ANN] = "anna"
    assert claim_inbox(shared, ANN).who == inbox_of(shared, ANN).who == "user-ann"
    del names[ANN]
    assert claim_inbox(shared, ANN).who == "user-ann"


def test_who_is_called_as_somebody_was_before_gets_an_inbox_of_its_own(shared, names):
    claim_inbox(shared, ANN).drop(by="the owner", now=1.0)
    names[BOB] = "ann"
    assert claim_inbox(shared, BOB).who == f"user-{BOB}-1"
    assert not inbox_of(shared, BOB).is_dropped


def test_what_the_group_could_write_is_closed(shared):
    inbox = Inbox.of(shared, "ben")
    (inbox.path / "verdicts").mkdir(parents=True)
    slot = shared.incoming(RUN, 0)
    open_ones = [shared.path, shared.path / "v1", shared.inbox_folder, inbox.path, inbox.path / "verdicts"]
    for folder in open_ones:
        folder.chmod(0o2777)
    slot.chmod(0o3770)
    assert close_to_others(shared) == []
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in open_ones} == {0o2755}
    assert stat.S_IMODE(slot.stat().st_mode) == 0o3770


@as_root
def test_an_open_folder_of_somebody_elses_is_said_and_a_sticky_one_is_safe(shared):
    os.chown(shared.path, ANN, -1)
    shared.path.chmod(0o2770)
    (sentence,) = close_to_others(shared)
    assert f"the contents of {shared.path}, which is not yours (mode 2770)" in sentence
    shared.path.chmod(0o3770)
    assert close_to_others(shared) == []


@as_root
def test_nobody_else_says_whose_inbox_it_is(shared, names):
    shared.accounts.mkdir()
    (shared.accounts / f"{BOB}.json").write_text('{"inbox": "user-ann"}')
    os.chown(shared.accounts, BOB, -1)
    with pytest.raises(PermissionError, match="belongs to another account"):
        claim_inbox(shared, BOB)


def test_no_link_is_followed_when_folders_are_closed(shared, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "inner").mkdir()
    (elsewhere / "inner").chmod(0o777)
    shared.inbox_folder.mkdir()
    (shared.inbox_folder / "ben").symlink_to(elsewhere)
    close_to_others(shared)
    assert stat.S_IMODE((elsewhere / "inner").stat().st_mode) == 0o777
