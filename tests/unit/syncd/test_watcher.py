"""The watcher at the outbox: it rings for what comes in, and by itself every second."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemons import wait_for

from syncd.outbox import LOOK_S, Outbox, OutboxWatcher


def test_it_rings_for_a_segment_in_a_folder_that_is_new(tmp_path: Path) -> None:
    watcher = OutboxWatcher(tmp_path / "outbox" / "new", monotonic=lambda: 5.0)  # its own clock stands still
    try:
        assert watcher.has_news()  # what lay there before it was put up
        assert not watcher.has_news()
        Outbox(tmp_path).offer("demo-0123abcd", 0, b"one")
        wait_for(watcher.has_news, "the watcher")
        wait_for(lambda: not watcher.has_news(), "silence")
        Outbox(tmp_path).offer("demo-0123abcd", 0, b"two")
        wait_for(watcher.has_news, "the watcher")
    finally:
        watcher.close()


def test_where_no_events_come_it_rings_every_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("watchdog.observers.api.BaseObserver.start", refuses)
    now = [0.0]
    watcher = OutboxWatcher(tmp_path / "new", monotonic=lambda: now[0])
    rings = 0
    for _ in range(101):
        rings += watcher.has_news()
        now[0] += 0.1
    assert rings == pytest.approx(10.1 / LOOK_S, abs=1)
    watcher.close()
