"""`trainer wandb`, then the real `wandb sync`, against a server of our own: what arrives is the journal, once."""

from __future__ import annotations

import pytest
from refused import refused
from wandb_runs import Run, a_row, an_evaluation, run_command
from wandb_server import serving

from trainer.history.slots import find_histories
from trainer.wandb import Destination, write

pytest.importorskip("wandb")


@pytest.mark.long
def test_a_run_of_many_jobs_is_one_run_of_wandb_whose_history_is_the_journal(tmp_path):
    run = Run(tmp_path / "runs" / "mt10")
    first = [a_row(n, n + 100, 1_700_000_000.5 + n) for n in range(0, 500, 100)]
    run.attempt(0, None, first, [an_evaluation(250, 1_700_000_251.0)])
    # What a shell may be set up with for other trainings must not change what is written here.
    unkind = {"WANDB_RESUME": "allow", "WANDB_MODE": "disabled", "WANDB_RUN_ID": "other", "WANDB_DIR": "/nowhere"}
    unkind |= {"WANDB_SWEEP_ID": "other"}
    with serving() as server:
        printed = run_command(tmp_path, unkind, "trainer", "wandb", "runs/mt10")
        assert "send: env -u WANDB_RESUME wandb sync wandb/offline-run-*-mt10-0123abcd-*" in printed
        [folder] = (tmp_path / "wandb").glob("offline-run-*-mt10-0123abcd-0")
        run_command(tmp_path, server.env(), "wandb", "sync", str(folder))

        assert list(server.files) == ["mt10-0123abcd-0"]
        assert server.projects == {"mt10-0123abcd-0": "anchorleg"}
        assert server.configs["mt10-0123abcd-0"]["batch_size"]["value"] == 64
        history = server.history("mt10-0123abcd-0")
        assert [line["_step"] for line in history] == [100, 200, 250, 300, 400, 500]
        assert [line.get("train/q") for line in history] == [100 / 7, 200 / 7, None, 300 / 7, 400 / 7, 500 / 7]
        assert history[2]["evaluation/success/reach-v3"] == 0.75
        assert [line["_timestamp"] for line in history][:2] == [1_700_000_000.5, 1_700_000_100.5]

        # The next job went on from 400: it wrote the row to 500 again, and two more.
        again = [a_row(n, n + 100, 1_700_009_000.5 + n) for n in range(400, 700, 100)]
        run.attempt(1, (0, 400), again)
        run_command(tmp_path, unkind, "trainer", "wandb", "runs/mt10")
        [folder] = (tmp_path / "wandb").glob("offline-run-*")
        assert not list((tmp_path / "wandb").glob(".new-*"))
        run_command(tmp_path, server.env(), "wandb", "sync", str(folder))
        assert list(server.files) == ["mt10-0123abcd-0"]
        history = server.history("mt10-0123abcd-0")
        assert [line["_step"] for line in history] == [100, 200, 250, 300, 400, 500, 600, 700]
        assert [line["train/q"] for line in history if "train/q" in line] == [row["q"] for row in (*first[:4], *again)]
        assert history[5]["_timestamp"] == again[0]["at"]
        assert "RunResumeStatus" not in server.asked  # a resumed run's steps would be moved


def test_what_wandb_refuses_is_one_sentence_of_one_line(tmp_path, monkeypatch):
    Run(tmp_path / "run").attempt(0, None, [a_row(0, 100, 1.0)], [])
    [history] = find_histories(tmp_path / "run")
    monkeypatch.setenv("WANDB_BASE_URL", "nonsense")
    with refused("wandb.refused", id="mt10-0123abcd-0"):
        write(history, tmp_path / "out", Destination())
