"""`syncd pull "" DIR 5`: for ever, by hand, in the background, and as a LaunchAgent that a user wrote."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from daemons import wait_for
from policies import RUN, publish_one
from watching import client_env, seen, syncd, watching

from syncd.store import Shared, Version


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    shared = Shared(tmp_path / "shared")
    publish_one(shared, 1, 1)
    return shared


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return client_env(tmp_path / "home")


def is_here(folder: Path, seq: int) -> bool:
    manifest = seen(folder, RUN)
    return manifest is not None and manifest.version == Version(1, seq)


@pytest.mark.long
def test_the_third_word_is_seconds_and_0_is_once(tmp_path: Path, shared: Shared, env: dict[str, str]) -> None:
    folder = tmp_path / "mirror"
    once = syncd("pull", str(shared.path), str(folder), "0", env=env)
    assert (once.returncode, once.stderr) == (0, "")
    assert is_here(folder, 1)
    with watching(folder, str(shared.path), env=env, seconds="0.3") as pulling:
        pulling.live()
        for seq in (2, 3):
            publish_one(shared, 1, seq)
            wait_for(lambda seq=seq: is_here(folder, seq), "the policy")
        assert "live" in syncd("status", str(folder), env=env).stdout.splitlines()[0]
        assert pulling.end(signal.SIGTERM) == 0
        assert "told to end (SIGTERM)" in pulling.said()


@pytest.mark.long
def test_a_second_one_waits_and_goes_on_where_the_first_one_ends(
    tmp_path: Path, shared: Shared, env: dict[str, str]
) -> None:
    folder = tmp_path / "mirror"
    with (
        watching(folder, str(shared.path), env=env, seconds="5") as first,
        watching(folder, str(shared.path), env=env, seconds="5") as second,
        watching(folder, str(shared.path), env=env, seconds="5") as third,
    ):
        keeper, *waiting = sorted((first, second, third), key=lambda each: not waits_not(each))
        for each in waiting:
            wait_for(lambda each=each: f"`syncd pull` (pid {keeper.pid}): waiting" in each.said(), "its word")
            assert each.said().count("\n") == 1
        leaves, takes = waiting
        assert leaves.end(signal.SIGTERM) == 0
        assert "told to end (SIGTERM)" in leaves.said()
        keeper.end(signal.SIGKILL)
        takes.live()
        assert takes.said().count("waiting") == 1
        busy = syncd("push", str(shared.path), str(folder), env=env)
        assert busy.returncode == 2
        assert f"`syncd pull` (pid {takes.pid})" in busy.stderr
        assert "[mirror.only-fetched]" in busy.stderr


def waits_not(watcher) -> bool:
    """Whether it keeps the mirror; looked at once one of them has said that it waits."""
    wait_for(lambda: watcher.word() is not None or "waiting" in watcher.said(), "it to keep the mirror or to wait")
    return "waiting" not in watcher.said()
