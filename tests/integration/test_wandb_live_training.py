"""A training whose curves are sent while it trains comes to the same bits, whatever becomes of the sending."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("wandb")

from daemons import WORK_S, wait_for
from relay import NewRelay
from slot_digest import slot_digest
from wandb_runs import processes_of, serving_alone
from wandb_server import API_KEY, Server

from anchorleg.job import HANDED_OVER
from trainer.history.read import read, read_evaluations

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"


def train(run_dir: Path, *signals: dict[int, str], server: Server | None = None, **env: str) -> Path:
    """Attempts on point masses, as in test_resume_exact; the slot's folder. `env`: see train_point_mass."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environ |= {"PYTHONPATH": f"{REPOSITORY}:{SUPPORT}", **env}
    environ |= {"WANDB_MODE": "online", **server.env()} if server else {}
    command = [sys.executable, str(SUPPORT / "train_point_mass.py"), str(run_dir), json.dumps(signals), "{}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_S, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    *printed, codes = done.stdout.splitlines()
    assert json.loads(codes) == [*[HANDED_OVER] * (len(signals) - 1), 0], printed
    return run_dir / "slots" / "0"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What the training comes to without W&B."""
    return slot_digest(train(tmp_path_factory.mktemp("alone"), {61: "SIGUSR2"}, {77: "SIGTERM"}, {}))


@pytest.mark.long
def test_three_jobs_send_their_rows_to_one_run_and_train_the_same(tmp_path, alone):
    with serving_alone() as server:
        slot = train(tmp_path, {61: "SIGUSR2"}, {77: "SIGTERM"}, {}, server=server, FLUSH_S=str(WORK_S))
        [run] = server.files
        history = server.history(run)
        wait_for(lambda: processes_of(server) == [], "the end of what was beside the training")
    assert slot_digest(slot) == alone
    assert sorted(line["train/step"] for line in history if "train/step" in line) == [row["to"] for row in read(slot)]
    made = [line["evaluation/step"] for line in history if "evaluation/step" in line]
    assert made == [row["step"] for row in read_evaluations(slot)]
    by_step = {line["train/step"]: line for line in history if "train/step" in line}
    for row in read(slot):
        assert by_step[row["to"]]["train/updates"] == row["updates"]


@pytest.mark.long
@pytest.mark.parametrize("fault", ["it hangs", "it refuses"])
def test_neither_a_bad_server_nor_a_stopped_or_killed_service_changes_a_bit(tmp_path, alone, fault):
    hangs = fault == "it hangs"
    with serving_alone() as server:
        if hangs:
            server.hang()
        else:
            server.status = 403
        stopped, killed = ({20: f"wandb {name}"} if hangs else {} for name in ("SIGSTOP", "SIGKILL"))
        slot = train(tmp_path, {**stopped, 61: "SIGUSR2"}, {**killed, 77: "SIGTERM"}, {}, server=server)
        wait_for(lambda: processes_of(server) == [], "the end of what was beside the training")
        assert server.files == {}
    assert slot_digest(slot) == alone


def test_what_start_was_told_reaches_the_jobs_and_the_key_no_file(new_relay: NewRelay, tmp_path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    typed = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    typed |= {"WANDB_MODE": "online", "WANDB_ENTITY": "us", "WANDB_API_KEY": API_KEY, "HOME": str(home)}
    relay = new_relay(
        total=3,
        env=typed,
        command=["bash", "-c", "env > told.txt; exec python3 ./count.py 3"],
        wandb={"mode": "offline", "project": "mine", "tags": ["a", "b"]},
    )
    done = relay.run("start")
    assert done.code == 0, done.words
    told = dict(line.partition("=")[::2] for line in (relay.folder / "told.txt").read_text().splitlines())
    named = {name: value for name, value in told.items() if name.startswith("WANDB_")}
    assert named == {"WANDB_MODE": "online", "WANDB_ENTITY": "us", "WANDB_PROJECT": "mine", "WANDB_TAGS": "a,b"}
    assert "jobs do not get WANDB_API_KEY: run `wandb login` once" in done.words
    assert "WANDB_MODE=online in your environment takes precedence" in done.words
    relay.wait_for_supervisors()
    files = [path for path in relay.folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if API_KEY.encode() in path.read_bytes()] == []
