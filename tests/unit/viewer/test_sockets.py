"""Token and socket are for nobody else."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from refused import refused

from viewer.server.sockets import (
    MOST_BYTES,
    access_token,
    check_folder,
    free_socket,
    open_socket,
    socket_path,
    write_signpost,
)
from viewer.showing import is_shared


def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_has_256_bits_and_each_viewer_its_own() -> None:
    tokens = {access_token() for _ in range(3)}
    assert [len(token) for token in tokens] == 3 * [43]


def test_the_browser_is_led_by_a_private_file(tmp_path: Path) -> None:
    path = write_signpost("http://127.0.0.1:9999/#secret", env(tmp_path))
    assert mode(path) == 0o600
    assert "#secret" in path.read_text()


def test_a_sockets_folder_is_made_for_us_alone() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="v") as short:  # a test's own folder may be too long for it
        path = socket_path("a run/with ünusual words " + 200 * "x", Path(short))
        assert mode(path.parent) == 0o700
    assert len(bytes(path)) <= MOST_BYTES
    assert path.name.startswith("a-run-with--n")


def test_a_socket_is_for_this_account_alone(tmp_path: Path) -> None:
    with open_socket(tmp_path / "page.sock"):
        assert mode(tmp_path / "page.sock") == 0o600


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    socket_path("x", tmp_path).parent.chmod(0o755)
    with refused("socket.folder-open"):
        socket_path("x", tmp_path)
    with refused("socket.folder-unusable"):
        check_folder(tmp_path / "none")


def test_a_link_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"anchorleg-viewer-{os.getuid()}").symlink_to(elsewhere)
    with refused("socket.folder-of-others"):
        socket_path("x", tmp_path)


def test_a_socket_left_behind_is_cleared_away_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    free_socket(path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    free_socket(path)
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with refused("socket.taken"):
            free_socket(path)
        assert path.exists()


def test_a_file_in_the_sockets_place_stays(tmp_path: Path) -> None:
    (tmp_path / "x.sock").write_text("precious")
    with refused("socket.not-a-socket"):
        free_socket(tmp_path / "x.sock")
    assert (tmp_path / "x.sock").read_text() == "precious"
    with refused("socket.path-too-long"):
        free_socket(tmp_path / (100 * "x"))


@pytest.mark.parametrize(
    ("said", "platform", "sbatch", "shared"),
    [
        ({}, "linux", False, False),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "linux", False, True),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22", "DISPLAY": ":0"}, "linux", False, False),
        ({}, "linux", True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True, False),
        ({}, "darwin", True, False),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "darwin", False, True),
    ],
)
def test_a_shared_machine_is_known_by_its_logins_and_by_slurm(
    said: dict[str, str], platform: str, sbatch: bool, shared: bool
) -> None:
    assert is_shared(said, platform, lambda _name: "/usr/bin/sbatch" if sbatch else None) is shared
