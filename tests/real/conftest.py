"""Fixtures of the real parts. A missing one skips the test by name; where CI=true it fails it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from accounts import Account, missing_account_parts, throw_away_accounts
from browser import WEBGL, Pages, a_browser, missing_browser_parts
from container import Container, missing_container_parts
from laptops import Machine, machines
from needs import need
from restricted import Friend, a_friend
from slurm_cluster import PrivateSlurm, SlurmCluster, missing_commands, throw_away
from slurm_conf import Layout
from sshd import Sshd, missing_sshd_parts, throw_away_sshd


@pytest.fixture(scope="session")
def shared_slurm() -> Iterator[SlurmCluster]:
    """The cluster that the tests of one worker share, one after the other."""
    need("a real Slurm", missing_commands())
    with throw_away() as cluster:
        yield cluster


@pytest.fixture
def slurm(shared_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm (4 nodes, 8 CPUs and 1 fake GPU each; partitions gpu and short), its queue empty at both ends.

    Shared: do not harm its daemons. For that there is `private_slurm`.
    """
    yield shared_slurm
    shared_slurm.clear()


@pytest.fixture
def private_slurm() -> Iterator[PrivateSlurm]:
    """Starts clusters of the test's own: `private_slurm(nodes=2, overrides={"MinJobAge": "2"})`.

    `accounting=True`: with slurmdbd (some 4 s to start), so that sacct answers. `beside`: the second one of that site.
    """
    need("a real Slurm", missing_commands())
    with ExitStack() as stack:

        def start(
            *,
            nodes: int = 2,
            cpus: int = 8,
            gpus: int = 1,
            accounting: bool = False,
            overrides: Mapping[str, str] | None = None,
            beside: SlurmCluster | None = None,
        ) -> SlurmCluster:
            need("a real Slurm with accounting", missing_commands(accounting=accounting))
            layout = Layout(nodes=nodes, cpus=cpus, gpus=gpus, accounting=accounting)
            return stack.enter_context(throw_away(layout, overrides, beside))

        yield start


@pytest.fixture(scope="session")
def container(tmp_path_factory: pytest.TempPathFactory) -> Container:
    """An image folder with this Python in it, and the ch-run that enters it."""
    need("charliecloud", missing_container_parts())
    return Container.make(tmp_path_factory.mktemp("image"))


@pytest.fixture
def new_sshd() -> Iterator[Callable[..., Sshd]]:
    """Starts servers of the test's own: `new_sshd(PasswordAuthentication="yes")`."""
    need("a real sshd", missing_sshd_parts())
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(throw_away_sshd(settings))


@pytest.fixture
def sshd(new_sshd: Callable[..., Sshd]) -> Sshd:
    """A real sshd on loopback, the test's own."""
    return new_sshd()


@pytest.fixture
def new_machine(new_sshd: Callable[..., Sshd]) -> Iterator[Callable[..., Machine]]:
    """Laptops of the test's own: `new_machine("anna", shared)`."""
    with machines(new_sshd) as make:
        yield make


@pytest.fixture(scope="session")
def ordinary_account() -> Iterator[Account | None]:
    """An account of the tests' own where they run as root; None: the current user is ordinary already."""
    if os.geteuid() != 0:
        yield None
        return
    need("accounts of a test's own", missing_account_parts())
    with throw_away_accounts("owner", env=os.environ) as (_, (account,)):
        yield account


@pytest.fixture
def friend(ordinary_account: Account | None, tmp_path: Path) -> Iterator[Friend]:
    """A contributor with a restricted key to a folder of an ordinary user's."""
    need("a real sshd", missing_sshd_parts())
    with throw_away_sshd(account=ordinary_account) as server:
        made = a_friend(server, tmp_path, ordinary_account)
        yield made
        if ordinary_account:
            shutil.rmtree(made.shared.path.parent)


@pytest.fixture(scope="module")
def browser() -> Iterator[Pages]:
    """Chromium, one for all tests of a file."""
    need("a browser", missing_browser_parts())
    with a_browser(*WEBGL) as opened:
        yield opened


@pytest.fixture
def pages(browser: Pages) -> Iterator[Pages]:
    """Its pages, none of which may complain of anything."""
    browser.errors.clear()
    yield browser
    browser.close()
    assert browser.errors == []
