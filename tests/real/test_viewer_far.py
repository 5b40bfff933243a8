"""`viewer HOST:RUN` on a laptop, over a real sshd: one command shows the page, and its end leaves nothing anywhere."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from builders import NOW
from daemons import PATIENCE_S, processes_with, sweep, wait_for
from laptops import end
from sshd import Laptop, Sshd
from viewer_entrance import enter as show_token
from watched_runs import a_watched_run
from websockets.sync.client import connect

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "ANCHORLEG_TEST_FAR"
#: Nobody else's run is called so: a viewer's usual socket has its name, in a place that all checkouts share.
NAME = f"mt10-{secrets.token_hex(4)}"


class Far:
    """A login node with a run, and a laptop that knows it as `cluster`. `program`: the viewer over there."""

    def __init__(self, server: Sshd, folder: Path, stack: ExitStack) -> None:
        self.server, self.folder, self.stack = server, folder, stack
        self.laptop: Laptop = server.new_client("anna")
        self.program = self.a_program("viewer", f'exec {sys.executable} -m viewer "$@"')
        self.run = a_watched_run(folder / NAME, NOW, name=NAME, slots=1, jobs=1).path
        self.remember(self.laptop.config)
        self.children: list[subprocess.Popen[bytes]] = []

    def remember(self, config: Path) -> None:
        """As `syncd setup` stores a host."""
        path = self.laptop.home / ".config" / "anchorleg" / "syncd.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"remote": {"host": "cluster", "path": "/none", "ssh_config": str(config)}}))

    def a_program(self, name: str, line: str) -> str:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\nexport PYTHONPATH={REPOSITORY}\n{line}\n")
        path.chmod(0o755)
        return str(path)

    def env(self) -> dict[str, str]:
        own = {name: value for name, value in self.laptop.env().items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
        return own | {"PYTHONPATH": str(REPOSITORY), MARK: self.server.token}

    def words(self, what: str = "", *, program: str = "", port: int = 0) -> list[str]:
        """The command, as it is typed."""
        there = ["--remote-command", program or self.program, "--port", str(port)]
        return [sys.executable, "-m", "viewer", what or f"cluster:{self.run}", *there]

    def typed(self, what: str = "", **more: Any) -> tuple[int, str]:
        """The exit code and the sentence of a command that ends by itself."""
        done = subprocess.run(
            self.words(what, **more), env=self.env(), cwd=self.laptop.home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.stderr.count("\n") == 1, done.stderr
        return done.returncode, done.stderr

    @property
    def output(self) -> Path:
        return self.laptop.home / f"output-{len(self.children)}.txt"

    def said(self) -> str:
        return self.output.read_text()

    def start(self) -> tuple[subprocess.Popen[bytes], str]:
        """The command in the background, and the address that it prints."""
        self.children.append(None)  # type: ignore[arg-type]
        with self.output.open("wb") as out:
            child = subprocess.Popen(
                self.words(), env=self.env(), cwd=self.laptop.home, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.children[-1] = child
        self.stack.callback(end, child)
        wait_for(lambda: "127.0.0.1" in self.said() or child.poll() is not None, "the address")
        found = re.search(r"http://127\.0\.0\.1:\d+/#\S+", self.said())
        assert found, self.said()
        return child, found[0]

    def far_viewers(self) -> list[int]:
        return self.server.processes("-m viewer", "--forwarded")

    def here(self) -> set[int]:
        """What the laptop's viewer and its ssh left of themselves on the laptop; sshd's sessions do not count."""
        return processes_with(MARK, self.server.token) - set(self.server.processes())

    def nothing_is_left(self) -> None:
        wait_for(lambda: not self.far_viewers(), "the far viewer's end")
        wait_for(lambda: not self.here(), "the laptop's end")
        wait_for(lambda: not self.server.processes("sshd:"), "the session's end")


@pytest.fixture
def far(sshd: Sshd, tmp_path: Path) -> Iterator[Far]:
    with ExitStack() as stack:
        stack.callback(sweep, MARK, sshd.token)
        yield Far(sshd, tmp_path, stack)


def picture_at(url: str) -> dict[str, Any]:
    """The first picture that a page at this address gets."""
    address, token = url.split("#")
    origin = address.rstrip("/")
    with connect(f"ws{origin.removeprefix('http')}/socket", origin=origin, open_timeout=PATIENCE_S) as line:
        show_token(line, token)
        line.send(json.dumps({"choose": {}}))
        while "is" not in (said := json.loads(line.recv(PATIENCE_S))):
            pass  # of agents, or nothing new
        return dict(said["is"])


def is_served(url: str) -> bool:
    """Whether the page itself comes."""
    try:
        with urlopen(url.partition("#")[0], timeout=PATIENCE_S) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def sockets_of_viewers() -> set[Path]:
    """Those that a laptop had made over there."""
    return set(Path("/tmp").glob("anchorleg-viewer-*/page"))


def command_lines() -> list[bytes]:
    """Of all processes that there are."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # a process may end meanwhile
            lines.append(path.read_bytes())
    return lines


@pytest.mark.long
def test_one_command_shows_the_page_and_its_token_stands_on_no_command_line(far: Far) -> None:
    before = sockets_of_viewers()
    child, url = far.start()
    assert picture_at(url)["run"]["name"] == NAME
    token = url.split("#")[1].encode()
    lines = command_lines()
    assert any(NAME.encode() in line for line in lines), "the viewers' own lines are among them"
    assert not [line for line in lines if token in line]
    assert token.decode() not in far.server.log.read_text(errors="replace")
    [there] = [path for path in sockets_of_viewers() - before if path.parent.name.encode() in b"".join(lines)]
    assert there.parent.stat().st_mode & 0o777 == 0o700
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE_S) == 0
    assert "Traceback" not in far.said()
    far.nothing_is_left()
    assert not there.parent.exists()


@pytest.mark.long
def test_a_killed_laptop_leaves_nothing_on_the_login_node(far: Far) -> None:
    child, url = far.start()
    assert picture_at(url)["run"]["name"] == NAME
    child.kill()
    child.wait(PATIENCE_S)
    far.nothing_is_left()


@pytest.mark.long
def test_a_login_node_that_was_away_comes_again(far: Far) -> None:
    child, url = far.start()
    far.server.pause()
    far.server.stop()
    wait_for(lambda: "trying again" in far.said(), "its word")
    far.server.start()
    wait_for(lambda: is_served(url), "the page")
    assert picture_at(url)["run"]["name"] == NAME
    assert far.said().count("trying again") == 1
    assert child.poll() is None


@pytest.mark.long
def test_a_connection_of_the_users_own_carries_it_and_keeps_no_port(far: Far) -> None:
    """ControlMaster, as sites with a second factor have it; and what else a person sets for their own shells."""
    text = far.laptop.config.read_text()
    far.laptop.config.write_text(
        f"{text}  ControlMaster auto\n  ControlPath {far.server.folder}/%C\n  ExitOnForwardFailure yes\n"
        "  LocalForward 127.0.0.1:1 nowhere:1\n  RequestTTY force\n"
    )
    ssh = ["ssh", "-F", str(far.laptop.config), "-o", "ClearAllForwardings=yes"]
    subprocess.run(
        [*ssh, "-o", "ControlPersist=1h", "cluster", "true"], stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE_S
    )
    try:
        child, url = far.start()
        [there] = far.far_viewers()
        os.kill(there, signal.SIGKILL)
        wait_for(lambda: "is reachable again" in far.said(), "another one")
        assert picture_at(url)["run"]["name"] == NAME
        assert far.server.logins() == 1
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 0
        wait_for(lambda: not far.far_viewers(), "the far viewer's end")
        wait_for(lambda: not is_served(url), "the port")
    finally:
        subprocess.run([*ssh, "-O", "exit", "cluster"], capture_output=True, check=False, timeout=PATIENCE_S)


@pytest.mark.long
def test_a_laptop_that_was_stopped_for_long_finds_its_page_again(far: Far) -> None:
    child, url = far.start()
    [there] = far.far_viewers()
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: there not in far.far_viewers(), "the far viewer to give up")
    os.kill(child.pid, signal.SIGCONT)
    wait_for(lambda: is_served(url), "the page")
    assert picture_at(url)["run"]["name"] == NAME


def the_server_is_away(far: Far) -> None:
    far.server.stop()


def the_host_key_is_unknown(far: Far) -> None:
    far.laptop.known_hosts.write_text("")


def the_host_key_is_another(far: Far) -> None:
    other = far.laptop.public_key.split()[1]
    far.laptop.known_hosts.write_text(f"[127.0.0.1]:{far.server.port} ssh-ed25519 {other}\n")


def the_key_is_refused(far: Far) -> None:
    far.server.authorized_keys.write_text("")


def there_is_no_viewer(far: Far) -> None:
    far.program = "/none/bin/viewer"


def the_viewer_is_older(far: Far) -> None:
    far.program = far.a_program("older", 'echo "Error: No such option: --forwarded" >&2; exit 2')


def something_else_answers(far: Far) -> None:
    far.program = far.a_program("other", "yes")


def nothing_is_forwarded(far: Far) -> None:
    far.server.change(AllowStreamLocalForwarding="no")


def no_port_is_forwarded(far: Far) -> None:
    far.server.change(AllowTcpForwarding="no", AllowStreamLocalForwarding="no")


def the_key_is_restricted(far: Far) -> None:
    far.server.authorized_keys.write_text("")
    far.server.add_key(far.laptop.public_key, 'restrict,command="echo not allowed >&2; exit 126"')


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (the_server_is_away, "cluster refuses connections"),
        (the_host_key_is_unknown, "the host key of cluster is not known here"),
        (the_host_key_is_another, "the host key of cluster is not the one that was stored"),
        (the_key_is_refused, "cluster refused the key"),
        (there_is_no_viewer, "[remote.no-viewer]"),
        (the_viewer_is_older, "[remote.older]"),
        (something_else_answers, "[remote.other-program]"),
        (nothing_is_forwarded, "[remote.no-tunnel]"),
        (no_port_is_forwarded, "[remote.no-tunnel]"),
        (
            the_key_is_restricted,
            "does not allow this (not allowed): a key for syncd alone cannot show a page. [remote.not-allowed]",
        ),
    ],
)
def test_what_does_not_go_is_one_sentence(far: Far, spoil: Callable[[Far], None], sentence: str) -> None:
    spoil(far)
    code, said = far.typed()
    assert (code, sentence in said) == (6, True), said
    wait_for(lambda: not far.here(), "the laptop's end")


@pytest.mark.long
def test_words_of_the_other_viewer_come_through_with_their_code(far: Far) -> None:
    code, said = far.typed("cluster:mt1O")
    assert code == 8
    assert '"mt1O"' in said
    assert said.rstrip().endswith("[remote.says]")
    code, said = far.typed("nowhere.invalid:mt10")
    assert code == 6
    assert "nowhere.invalid" in said


def test_a_port_that_is_taken_is_said_and_nothing_stays(far: Far) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = far.typed(port=port)
    assert code == 4
    assert f"Port {port} is in use" in said
    far.nothing_is_left()
