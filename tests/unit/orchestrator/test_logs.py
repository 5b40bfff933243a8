"""`logs`: the job at work is followed, over its successors, by whole lines, to the end of the slot."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, a_run, a_slot, no_code, token

from orchestrator.config import parse_config
from orchestrator.decisions.models import SlotStatus
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.screens import logs
from orchestrator.screens.logs import show_logs

TOY: dict[str, Any] = {"run_name": "toy", "executor": "local", "command": ["python3", "toy.py"]}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "runs" / "toy")
    prepare_folder(folder)
    begin(parse_config(TOY, "c.json"), tmp_path / "c.json", folder, {"PATH": os.environ["PATH"]}, NOW, fix=no_code)
    be(folder, SlotStatus.ACTIVE)
    return folder


def be(run_dir: RunDir, status: SlotStatus) -> None:
    """From now on the ledger says this of slot 0."""
    run_id = load_run(run_dir).run_id
    save_ledger(run_dir, a_run(a_slot(0, status=status)).model_copy(update={"run_id": run_id}), NOW)


def a_job_folder(run_dir: RunDir, attempt: int, out: str | None = None, err: str | None = None) -> Path:
    folder = run_dir.job(token(0, attempt))
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in (("out", out), ("err", err)):
        if text is not None:
            (folder / f"job-{100 + attempt}.{kind}").write_text(text)
    return folder


def shown_while(run_dir: RunDir, capfd: pytest.CaptureFixture[str], *steps: Callable[[], Any]) -> str:
    """The output of `logs -f`, in whose waits the steps happen one by one; after the last the slot has finished."""
    left = [*steps, lambda: be(run_dir, SlotStatus.FINISHED)]

    show_logs(run_dir, 0, follow=True, clock=count(0, logs.STATE_S).__next__, sleep=lambda _: left.pop(0)())
    assert not left
    return capfd.readouterr().out


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if "==>" not in line]


def test_following_goes_on_to_the_next_job_with_nothing_lost(
    run_dir: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    first = a_job_folder(run_dir, 0, "half a ", "") / "job-100.out"
    a_job_folder(run_dir, 1)

    def complain() -> None:
        a_job_folder(run_dir, 0, err="an error\n")

    def change_over() -> None:
        first.write_text("half a line\nlast words")  # written between two looks, and then the next job begins
        a_job_folder(run_dir, 1, "three\n")

    text = shown_while(run_dir, capfd, complain, lambda: first.write_text("half a line\n"), change_over)
    assert lines_of(text) == ["an error", "half a line", "last words", "three"]


def test_what_is_written_while_half_a_line_is_shown_is_neither_lost_nor_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job-1.out"
    log.write_bytes(b"a\npar")
    more = [b"tial\nb\n"]

    class Pipe(io.BytesIO):
        def write(self, words: Any) -> int:
            with open(log, "ab") as file:
                file.write(more.pop() if more else b"")
            return super().write(words)

    pipe = Pipe()
    monkeypatch.setattr(logs.sys, "stdout", io.TextIOWrapper(pipe, write_through=True))
    printer = logs.Printer()
    for _ in range(3):
        printer.show(tmp_path, whole=False)
    assert pipe.getvalue() == f"==> {log}\na\npartial\nb\n".encode()


@pytest.mark.parametrize(
    "status", [SlotStatus.FINISHED, SlotStatus.FAILED, SlotStatus.PAUSED, SlotStatus.DROPPED, SlotStatus.BEHIND]
)
def test_following_ends_with_the_slot(run_dir: RunDir, capfd: pytest.CaptureFixture[str], status: SlotStatus) -> None:
    a_job_folder(run_dir, 0, "last")
    be(run_dir, status)
    show_logs(run_dir, 0, follow=True, sleep=lambda _: pytest.fail("it waits for more"))
    assert capfd.readouterr().out.endswith("last")
