"""Which inbox is which account's, whatever the account is called, and who may write where inboxes are."""

from __future__ import annotations

import os
import pwd
import stat
from types import SimpleNamespace

import pytest

from syncd.shared.accounts import claim_inbox, close_to_others, inbox_of
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared

#: Accounts that this machine does not have.
ANN, BOB = 54_321, 54_322
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEMGCmT2ntTrgCRpDC2o1dDbgDqyPRjrjaDHhmoZ1TbU"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other accounts")


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "v1").mkdir()
    return Shared(tmp_path)


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
    slot = shared.incoming("demo-0123abcd", 0)
    slot.mkdir(parents=True)
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
    assert f"what lies in {shared.path}, which is not yours (mode 2770)" in sentence
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
