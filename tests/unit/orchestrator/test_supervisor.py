"""What a local job's parent does where the clock jumps."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.executors import supervisor
from orchestrator.executors.supervisor import Supervisor


def test_after_a_sleep_past_the_end_a_job_has_its_lead_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"wall": 1000.0, "awake": 0.0}
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(time=lambda: now["wall"], monotonic=lambda: now["awake"]))
    sent: list[signal.Signals] = []
    monkeypatch.setattr(supervisor, "_signal_group", lambda _pid, number: sent.append(number))
    batch: Any = SimpleNamespace(pid=1, send_signal=sent.append)
    one = Supervisor(tmp_path, limit_s=3600, lead_s=600)
    one.look(batch)
    assert sent == []
    now["wall"] += 8 * 3600  # the lid was closed
    one.look(batch)
    assert sent == [signal.SIGUSR2]
    now["awake"] += 599
    one.look(batch)
    assert sent == [signal.SIGUSR2]
    now["awake"] += 1
    one.look(batch)
    assert sent == [signal.SIGUSR2, signal.SIGTERM]
