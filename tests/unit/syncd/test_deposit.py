"""What `syncd serve` does for an account at somebody else's shared folder. The account is this one: modes are tested
with real accounts (`tests/real/test_own_accounts.py`).
"""

from __future__ import annotations

import hashlib
import os

import pytest

from syncd.laptop.exchange import ABOUT_A_SLOT
from syncd.shared.deposit import Deposit
from syncd.shared.inbox import InboxLimits
from syncd.shared.incoming import claim_inbox, make_incoming
from syncd.shared.layout import Shared
from syncd.shared.reception import Reception, Refusal

RUN = "demo-0123abcd"
NOW = 1_760_086_400.0
DATA = b"some rows"
SUM = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def shared(tmp_path):
    os.chmod(tmp_path, 0o2750)
    made = Shared(tmp_path)
    made.slot(RUN, 0).path.mkdir(parents=True)
    assert make_incoming(made, RUN, 0)
    return made


def sums(verdicts):
    return [verdict.sha256 for verdict in verdicts]


def test_what_is_not_what_was_announced_is_given_to_nobody(shared):
    bundle = Deposit(shared).receive(RUN, 0, SUM, len(DATA))
    assert isinstance(bundle, Reception)
    with pytest.raises(ValueError, match="more than the 9 announced bytes"):
        bundle.write(DATA * 2)
    bundle.write(b"some cows")
    assert bundle.finish().reason == "damaged"
    assert list(shared.incoming(RUN, 0).iterdir()) == []


def test_refusals_say_why_and_whether_to_come_again(shared):
    guest = Deposit(shared)
    assert guest.receive(RUN, 7, SUM, 9).reason == "other_run"
    shared.slot(RUN, 7).path.mkdir()
    assert guest.receive(RUN, 7, SUM, 9).reason == "no inbox"
    full = Deposit(shared, most_waiting=0).receive(RUN, 0, SUM, 9)
    full.write(DATA)
    full = full.finish()
    assert isinstance(full, Refusal)
    assert (full.reason, full.retry_after_s is None) == ("full", False)
    assert full.reason in ABOUT_A_SLOT
    claim_inbox(shared, os.geteuid()).drop(by="the owner", now=NOW)
    gone = guest.receive(RUN, 0, SUM, 9)
    assert (gone.reason, gone.retry_after_s) == ("dropped", None)


def test_verdicts_are_told_until_the_client_has_them_and_nothing_is_deleted(shared):
    most = InboxLimits.verdicts
    guest = Deposit(shared)
    assert guest.verdicts() == []
    mine = claim_inbox(shared, os.geteuid())
    assert guest.verdicts() == []
    mine.write_verdict("0" * 64, accepted=True, now=NOW)
    (said,) = (mine.path / "verdicts").iterdir()
    every = [f"{number:064x}" for number in range(most + 1)]
    for sha256 in every[1:]:
        (said.parent / f"{sha256}.json").write_text(said.read_text().replace("0" * 64, sha256))
    first = sums(guest.verdicts())
    assert (len(first), sums(guest.verdicts())) == (most, first)
    guest.acknowledge([*first, "f" * 64])
    (last,) = sums(guest.verdicts())
    assert sorted([*first, last]) == every
    guest.acknowledge([last])
    assert guest.verdicts() == []
    assert len(mine.verdicts()) == most
    assert len(sums(Deposit(shared).verdicts())) == most
