"""`syncd watch` through a real sshd: one login for a connection's life, back by itself, and when it must not try."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from needs import need
from policies import RUN, publish_one
from sshd import Laptop, Sshd, make_key
from watching import Watcher, seen, settled, syncd, watching

from syncd.access.keys import endpoint
from syncd.errors import LoginRefusedError, SecondFactorError, UnreachableError
from syncd.laptop.rsync import RsyncPull
from syncd.outbox import Outbox, read_contributions
from syncd.remote import Remote
from syncd.shared.inbox import Inbox
from syncd.store import Shared, Version
from syncd.transports import open_transport
from syncd.wire.arrivals import News

SYNCD = str(Path(sys.executable).parent / "syncd")
#: How long the connection is left alone, to see that waiting costs no login.
IDLE_S = 6.0
TWO_FACTORS = {"AuthenticationMethods": "publickey,keyboard-interactive", "KbdInteractiveAuthentication": "yes"}


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    (tmp_path / "shared" / "v1").mkdir(parents=True)
    return Shared(tmp_path / "shared")


@pytest.fixture
def laptop(sshd: Sshd) -> Laptop:
    return sshd.new_client("anna")


def is_here(folder: Path, version: Version) -> bool:
    manifest = seen(folder, RUN)
    return manifest is not None and manifest.version == version


def watch(folder: Path, env: dict[str, str]):
    return watching(folder, "", env=env)


@pytest.mark.long
def test_one_login_carries_policies_and_experience(sshd: Sshd, laptop: Laptop, shared: Shared, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    with watch(folder, settled(laptop, sshd, shared.path)) as watcher:
        watcher.live()
        for seq in range(1, 6):
            publish_one(shared, 1, seq)
            wait_for(lambda seq=seq: is_here(folder, Version(1, seq)), "the policy")
            Outbox(folder).offer(RUN, 0, f"segment {seq}".encode())
            wait_for(lambda seq=seq: read_contributions(folder).sent == seq, "the segment to leave")
        until = time.monotonic() + IDLE_S
        wait_for(lambda: time.monotonic() > until, "time to pass")
        publish_one(shared, 1, 6)
        wait_for(lambda: is_here(folder, Version(1, 6)), "the policy")
        word = watcher.word()
        assert word is not None
        assert (word.logins, word.contributor) == (1, "anna")
        assert watcher.end(signal.SIGTERM) == 0
    assert sshd.logins() == 1
    assert len(list(Inbox.of(shared, "anna").path.glob(f"new/{RUN}/0/*"))) == 5
    wait_for(lambda: not sshd.processes("syncd", "serve"), "the end of the server")


@pytest.mark.long
def test_a_server_that_was_away_is_found_again(sshd: Sshd, laptop: Laptop, shared: Shared, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    publish_one(shared, 1, 1)
    with watch(folder, settled(laptop, sshd, shared.path)) as watcher:
        watcher.live()
        sshd.stop()
        wait_for(lambda: is_offline(watcher), "it to notice")
        publish_one(shared, 1, 2)
        Outbox(folder).offer(RUN, 0, b"made while it was away")
        sshd.start()
        wait_for(lambda: is_here(folder, Version(1, 2)), "the policy that it missed")
        wait_for(lambda: Outbox(folder).count() == 0, "the segment to leave")
        [served] = [pid for pid in sshd.processes("syncd", "serve") if is_python(pid)]
        os.kill(served, signal.SIGKILL)
        publish_one(shared, 1, 3)
        wait_for(lambda: is_here(folder, Version(1, 3)), "the next policy")
        assert watcher.said().count("offline") <= 3  # two outages, and a login that the first one may have cut
        watcher.live()


def is_offline(watcher: Watcher) -> bool:
    word = watcher.word()
    return word is not None and word.state in {"offline", "connecting"} and bool(word.error)


def is_python(pid: int) -> bool:
    try:
        return b"python" in Path(f"/proc/{pid}/exe").readlink().as_posix().encode()
    except OSError:
        return False


@pytest.mark.long
def test_a_server_that_hangs_is_given_up_and_found_again(
    sshd: Sshd, laptop: Laptop, shared: Shared, tmp_path: Path
) -> None:
    folder = tmp_path / "mirror"
    with watch(folder, settled(laptop, sshd, shared.path)) as watcher:
        watcher.live()
        sshd.pause()
        wait_for(lambda: is_offline(watcher), "it to give the silent server up")
        publish_one(shared, 1, 1)
        sshd.resume()
        wait_for(lambda: is_here(folder, Version(1, 1)), "the policy")


def test_a_site_that_asks_for_a_second_factor_is_none_that_refuses_the_key(
    new_sshd: Callable[..., Sshd], shared: Shared
) -> None:
    site = new_sshd(**TWO_FACTORS)
    for is_known in (True, False):
        laptop = site.new_client("anna" if is_known else "ben", options="" if is_known else None)
        with pytest.raises(LoginRefusedError) as told:
            open_transport(site.remote(laptop, shared.path), client="anna")
        assert isinstance(told.value, SecondFactorError) is is_known, told.value


def test_a_connection_that_stays_takes_the_others_past_a_second_factor(
    new_sshd: Callable[..., Sshd], shared: Shared
) -> None:
    """What we tell whoever is asked for one. Here it is asked for from the moment that the connection is there."""
    site = new_sshd()
    laptop = site.new_client("anna")
    alone = Remote(path=str(shared.path), host="cluster", command=SYNCD, ssh_config=laptop.config)
    kept = alone.model_copy(update={"ssh_config": site.folder / "kept"})
    stays = f"  ControlMaster auto\n  ControlPath {site.folder}/%C\n  ControlPersist 12h\n"
    (site.folder / "kept").write_text(laptop.config.read_text() + stays)
    ssh = ["ssh", "-F", str(kept.ssh_config)]
    subprocess.run([*ssh, "cluster", "true"], stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=True)
    try:
        site.change(**TWO_FACTORS)

        def is_asked() -> bool:
            try:
                open_transport(alone, client="anna").close()
            except SecondFactorError:
                return True
            except UnreachableError:
                return False
            return False

        wait_for(is_asked, "the other way to log in")
        logins = site.logins()
        with closing(open_transport(kept, client="anna")) as transport:
            assert transport.listing() == News()
        assert site.logins() == logins
    finally:
        subprocess.run([*ssh, "-O", "exit", "cluster"], capture_output=True, timeout=PATIENCE_S, check=False)


def test_the_users_own_shells_outlive_our_connection(new_sshd: Callable[..., Sshd], shared: Shared) -> None:
    """Where ~/.ssh/config lets connections be shared and none stays, they end with the ssh that opened the first."""
    site = new_sshd()
    laptop = site.new_client("anna")
    laptop.config.write_text(f"{laptop.config.read_text()}  ControlMaster auto\n  ControlPath {site.folder}/%C\n")
    remote = Remote(path=str(shared.path), host="cluster", command=SYNCD, ssh_config=laptop.config)
    began = site.folder / "began"
    command = ["ssh", "-F", str(laptop.config), "cluster", f"touch {began}; cat"]
    with closing(open_transport(remote, client="anna")) as transport:
        assert transport.listing() == News()
        shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            wait_for(began.exists, "the user's shell")
            transport.close()
            said, _ = shell.communicate(b"still here\n", timeout=PATIENCE_S)
        finally:
            shell.kill()
            shell.wait(PATIENCE_S)
    assert (shell.returncode, said) == (0, b"still here\n")


#: What somebody may have in ~/.ssh/config for their own shells, and breaks a connection that a program makes.
FOR_SHELLS = (
    "RequestTTY force", "RemoteCommand tmux attach", "PermitLocalCommand yes", "LocalCommand echo welcome",
    "ForkAfterAuthentication yes", "StdinNull yes", "SessionType none", "BatchMode no", "EscapeChar A",
    "LogLevel DEBUG3", "LogVerbose *:*:*", "VisualHostKey yes", "UpdateHostKeys ask", "AddKeysToAgent ask",
    "ExitOnForwardFailure yes", "LocalForward 127.0.0.1:1 nowhere:1", "RemoteForward 1 nowhere:1", "DynamicForward 1",
    "Tunnel yes", "ForwardAgent yes", "ForwardX11 yes", "Compression yes", "ControlMaster auto", "ControlPersist 1h",
    "ControlPath {folder}/%C", "PreferredAuthentications password,keyboard-interactive", "PubkeyAuthentication no",
    "SendEnv *", "SetEnv LC_ALL=nonsense", "ServerAliveInterval 0", "ConnectionAttempts 1000", "RekeyLimit 16K",
    "StrictHostKeyChecking ask", "UseKeychain yes", "IPQoS none", "HashKnownHosts yes",
)  # fmt: skip


def test_what_a_person_sets_for_their_own_shells_breaks_no_connection_of_ours(
    sshd: Sshd, laptop: Laptop, shared: Shared, tmp_path: Path
) -> None:
    key = laptop.home / "My%20keys" / "of %h"
    key.parent.mkdir()
    laptop.key.rename(key)
    lines = "".join(f"  {line.format(folder=sshd.folder)}\n" for line in FOR_SHELLS)
    laptop.config.write_text(f"{laptop.config.read_text()}{lines}")
    remote = Remote(path=str(shared.path), host="cluster", command=SYNCD, ssh_config=laptop.config, key=key)

    with closing(open_transport(remote, client="anna")) as transport:
        assert transport.listing() == News()
    need("rsync", [] if shutil.which("rsync") else ["rsync"])
    assert not RsyncPull(remote, tmp_path / "mirror").look()
    assert endpoint(remote).port == sshd.port


def test_a_wrong_host_key_ends_it_before_anything_is_sent(
    sshd: Sshd, laptop: Laptop, shared: Shared, tmp_path: Path
) -> None:
    env = settled(laptop, sshd, shared.path)
    kind, key = make_key(tmp_path / "another", "another").split()[:2]
    laptop.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    with watch(tmp_path / "mirror", env) as watcher:
        assert watcher.child is not None
        assert watcher.child.wait(PATIENCE_S) == 4
        assert "host key" in watcher.said()
        assert watcher.said().count("\n") == 2
    assert sshd.logins() + sshd.refusals() == 0


def test_a_refused_key_is_tried_once(sshd: Sshd, shared: Shared, tmp_path: Path) -> None:
    stranger = sshd.new_client("stranger", options=None)
    env = settled(stranger, sshd, shared.path)
    with watch(tmp_path / "mirror", env) as watcher:
        assert watcher.child is not None
        assert watcher.child.wait(PATIENCE_S) == 5
        assert watcher.said().count("\n") == 2
    shown = syncd("status", str(tmp_path / "mirror"), env=env)
    assert shown.returncode == 0
    wait_for(lambda: attempts(sshd) == 1, "the server's log")
    assert sshd.logins() == 0


def attempts(sshd: Sshd) -> int:
    """How many connections came to a login."""
    return sshd.log.read_text(errors="replace").count("Connection from 127.0.0.1") - probes(sshd)


def probes(sshd: Sshd) -> int:
    """Connections that only looked whether it listens."""
    said = sshd.log.read_text(errors="replace")
    return said.count("kex_exchange_identification: ") + said.count("banner exchange: ")
