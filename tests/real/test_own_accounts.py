"""Laptops that log in as their own account of the cluster: an inbox belongs to an account, whatever a client says.

The shared folder is `ann`'s; `ben` and `eve` are in its group. Each logs in at a real sshd as who they are.
"""

from __future__ import annotations

import grp
import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from accounts import Account, missing_account_parts, throw_away_accounts
from as_user import as_account
from needs import need
from policies import RUN, publish_one
from sshd import Laptop, Sshd

from syncd.remote import Remote
from syncd.shared import counts, reception  # noqa: F401 - loaded before a child becomes an account that cannot read them
from syncd.shared import incoming as incoming_module
from syncd.shared.counts import Counts
from syncd.shared.inbox import Inbox
from syncd.shared.incoming import Incoming, close_to_others, make_incoming
from syncd.shared.layout import Shared
from syncd.transports import open_transport
from syncd.wire.arrivals import Receipt
from syncd.wire.session import Session

NOW = 1_760_086_400.0
#: A training that goes on until the test ends it.
TINY = (
    "--preset", "tiny", "--set", 'tasks=["reach-v3"]', "--set", "total_steps=10000000", "--set", "num_envs=2",
    "--set", "num_workers=0", "--set", "updates_per_step=0.2", "--set", "random_steps=200", "--set",
    "publish_interval=50", "--set", "evaluation_goals=0",
)  # fmt: skip


class Cluster:
    """`ann`'s shared folder, the accounts, and the sshd at which they log in."""

    def __init__(self, group: str, accounts: list[Account], new_sshd: Callable[..., Sshd], stack: ExitStack) -> None:
        self.gid = grp.getgrnam(group).gr_gid
        self.ann, self.ben, self.eve = accounts
        self.shared = Shared(self.ann.home / "shared")
        above = self.ann.home.parent
        self.keys = above / "keys"
        self.keys.mkdir(mode=0o755)
        self.server = new_sshd(AuthorizedKeysFile=str(self.keys / "%u"))
        self.syncd = self.ann.syncd()
        self.laptops = {account.name: self._laptop(account) for account in accounts}
        self._stack = stack
        self.as_ann(self._make)

    def _laptop(self, account: Account) -> Laptop:
        laptop = self.server.new_client(account.opened(), options=None)
        (self.keys / account.name).write_text(laptop.public_key + "\n")
        (self.keys / account.name).chmod(0o644)
        return laptop

    def _make(self) -> None:
        """As somebody makes a folder of a group's by hand, generously."""
        os.umask(0o022)
        self.shared.path.mkdir()
        os.chown(self.shared.path, -1, self.gid)
        self.shared.path.chmod(0o2770)
        publish_one(self.shared, 1, 1)
        make_incoming(self.shared, RUN, 0)

    def as_ann(self, work: Callable[[], object]) -> None:
        """The owner's side: her learner, her commands."""
        as_account(self.ann.uid, self.ann.uid, [self.gid], work)

    def learn(self) -> None:
        """One round of the learner: it takes in what was given, and accepts all of it."""

        def work() -> None:
            close_to_others(self.shared)
            make_incoming(self.shared, RUN, 0)
            with closing(Incoming(self.shared, RUN, 0)) as incoming:
                incoming.collect(100, now=NOW)
            for inbox in Inbox.all_of(self.shared):
                for path in inbox.waiting(RUN, 0, now=NOW):
                    inbox.accept(path, now=NOW)
                    inbox.note(RUN, 0, Counts(accepted=1, rows=500, last_at=NOW))

        self.as_ann(work)

    def remote(self, account: Account) -> Remote:
        """As the laptop of `account` has it stored."""
        laptop = self.laptops[account.name]
        return self.server.remote(laptop, self.shared.path, user=account.name, command=str(self.syncd))

    def visit(self, account: Account, name: str) -> Session:
        """`account` logs in from its laptop, and calls itself `name`."""
        transport = open_transport(self.remote(account), client=name)
        self._stack.callback(transport.close)
        transport.listing()
        return transport

    def send(self, transport: Session, *seeds: int) -> list[Receipt]:
        return transport.send([(self.segment(seed), RUN, 0) for seed in seeds])

    def segment(self, seed: int) -> Path:
        data = random.Random(seed).randbytes(5_000)
        path = self.ann.home.parent / hashlib.sha256(data).hexdigest()
        path.write_bytes(data)
        return path

    def sum_of(self, seed: int) -> str:
        return self.segment(seed).name

    def accepted(self) -> dict[str, int]:
        """Contributor → segments that the learner took."""
        return {inbox.who: counts.counts(inbox.path).accepted for inbox in Inbox.all_of(self.shared)}

    def drop(self, who: str) -> None:
        self.as_ann(lambda: Inbox.of(self.shared, who).drop(by="ann", now=NOW))


@pytest.fixture
def cluster(new_sshd: Callable[..., Sshd]) -> Iterator[Cluster]:
    need("accounts of a test's own", missing_account_parts())
    with ExitStack() as stack:
        group, accounts = stack.enter_context(throw_away_accounts("ann", "ben", "eve", env=os.environ))
        yield Cluster(group, accounts, new_sshd, stack)


@pytest.mark.long
def test_who_was_dropped_stays_dropped_under_every_name(cluster: Cluster) -> None:
    assert cluster.send(cluster.visit(cluster.ben, "bens-laptop"), 1) == [Receipt(True)]
    cluster.learn()
    (who,) = cluster.accepted()
    cluster.drop(who)
    for name in ("bens-laptop", "somebody-new", f"user-{cluster.eve.name}"):
        laptop = cluster.visit(cluster.ben, name)
        (receipt,) = cluster.send(laptop, 2)
        assert (receipt.stored, receipt.reason) == (False, "dropped")
        assert laptop.facts().contributor == who
    assert cluster.send(cluster.visit(cluster.eve, "bens-laptop"), 3) == [Receipt(True)]


def test_nobody_writes_into_an_inbox_with_a_shell_either(cluster: Cluster) -> None:
    cluster.send(cluster.visit(cluster.eve, "eves-laptop"), 1)
    cluster.learn()
    inboxes = cluster.shared.inbox_folder
    (verdict,) = inboxes.glob("*/verdicts/*.json")
    for account in (cluster.ben, cluster.eve):
        assert account.run("rm", "-f", str(verdict)).returncode != 0
        assert account.run("cp", "/dev/null", str(verdict)).returncode != 0
        assert account.run("mkdir", str(inboxes / "somebody")).returncode != 0
        assert account.run("mv", str(inboxes), str(cluster.shared.path / "v2")).returncode != 0
        assert account.run("mv", str(cluster.shared.path / "v1"), str(cluster.shared.path / "v2")).returncode != 0
        open_to_it = account.run("find", str(cluster.shared.path), "-writable", "!", "-user", account.name).stdout
        assert open_to_it.split() == [str(cluster.shared.incoming(RUN, 0))]
    assert verdict.exists()


JUNK = """
import os, sys
for number in range(300):
    os.mkdir(f"{sys.argv[1]}/{number:064x}.0123abcd")
    if number < 20:
        open(f"{sys.argv[1]}/{number:064x}.0123abcd/file", "w").close()
"""


def test_a_members_folders_keep_no_segment_of_another_out(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of another account that are empty go; the others stay, for the learner's account may not empty them."""
    monkeypatch.setattr(incoming_module, "LOOKS", 20)
    place = cluster.shared.incoming(RUN, 0)
    made = cluster.eve.run(str(cluster.eve.python), "-c", JUNK, str(place))
    assert made.returncode == 0, made.stderr
    assert cluster.send(cluster.visit(cluster.ben, "bens-laptop"), 1, 2, 3) == 3 * [Receipt(True)]

    def rounds() -> None:
        with closing(Incoming(cluster.shared, RUN, 0)) as incoming:
            for _ in range(303 // 20 + 1):
                incoming.collect(2, now=NOW)

    cluster.as_ann(rounds)
    assert len(list(place.iterdir())) == 20
    cluster.learn()
    assert cluster.accepted() == {f"user-{cluster.ben.name}": 3}
