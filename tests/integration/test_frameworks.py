"""The examples in other people's frameworks, with the real libraries: each is handed over three times and goes on.

Every job of the first run is asked to hand over before it begins, so it makes one step (a rollout, an epoch, …) and
leaves. The second run is one job. Where the framework can, both come to the same bits.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from relay import REPOSITORY, NewRelay, Relay

from anchorleg.job import HANDED_OVER, Job

PROGRAMS = REPOSITORY / "examples" / "programs"
#: A job's deadline is over when it begins.
AT_ONCE = {"max_runtime_seconds": 0.001}


def a_relay(new_relay: NewRelay, name: str, program: str, params: dict[str, Any], **more: Any) -> Relay:
    relay = new_relay(name, command=[sys.executable, program], params=params, **more)
    shutil.copy(PROGRAMS / program, relay.folder)
    relay.env["OMP_NUM_THREADS"] = "1"
    return relay


def ended(relay: Relay, jobs: int) -> Path:
    """The last checkpoint of a run that was handed over so often that it took so many jobs."""
    done = relay.run("start")
    logs = "\n".join(path.read_text()[-2000:] for path in relay.run_dir.glob("jobs/*/job-*"))
    assert done.code == 0, done.words + logs
    assert relay.attempts() == list(range(jobs)), logs
    *handed_over, last = [relay.read("exit.json", attempt) for attempt in relay.attempts()]
    assert {record["code"] for record in handed_over} <= {75}
    assert last["code"] == 0
    for before, after in pairwise(relay.attempts()):
        parent = relay.read("parent.json", after)
        assert (parent["attempt"], parent["step"]) == (before, relay.read("progress.json", before)["checkpoint_step"])
    told = relay.read("progress.json", jobs - 1)
    assert told["step"] == told["checkpoint_step"] >= told["total"]
    return relay.attempt_dir(jobs - 1) / "checkpoints" / str(told["step"])


def both(new_relay: NewRelay, program: str, params: dict[str, Any], jobs: int = 4) -> tuple[Path, Path]:
    """The last checkpoints of a run in so many jobs, and of one in a single job."""
    handed_over = ended(a_relay(new_relay, "handed-over", program, params, training=AT_ONCE), jobs)
    return handed_over, ended(a_relay(new_relay, "whole", program, params), 1)


def reported(last_checkpoint: Path, metric: str) -> float:
    """What the run's last report says of `metric`, so that a queue could go by it. Errors: KeyError."""
    return float(json.loads((last_checkpoint.parents[1] / "progress.json").read_text())[metric])


def assert_same_tensors(one: Any, other: Any) -> None:
    """The same structure with the same bits in it. Errors: AssertionError."""
    import torch

    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same_tensors(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_tensors(a, b)
    else:
        assert one == other


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("fit_torch.py", {"steps": 4}),
        pytest.param("ppo_cleanrl.py", {"iterations": 4, "num_steps": 64}, marks=pytest.mark.long),
    ],
)
def test_a_loop_in_plain_torch_comes_to_the_same_bits(
    new_relay: NewRelay, program: str, params: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")

    handed_over, whole = both(new_relay, program, params)

    one, other = (torch.load(folder / "state.pt") for folder in (handed_over, whole))
    for state in (one, other):
        del state["chance"]["python"], state["chance"]["numpy"]  # nobody seeds them, and nobody draws from them
    assert_same_tensors(one, other)


@pytest.mark.long
@pytest.mark.trainer
def test_ppo_of_stable_baselines3_comes_to_the_same_bits(new_relay: NewRelay) -> None:
    sb3 = pytest.importorskip("stable_baselines3")

    handed_over, whole = both(new_relay, "ppo_sb3.py", {"total": 1024, "n_steps": 64})

    one, other = (sb3.PPO.load(folder / "model.zip", device="cpu") for folder in (handed_over, whole))
    assert_same_tensors(one.get_parameters(), other.get_parameters())
    assert (one.num_timesteps, one._n_updates) == (other.num_timesteps, other._n_updates)
    moments = [json.loads((folder / "moment.json").read_text()) for folder in (handed_over, whole)]
    assert moments[0]["chance"] == moments[1]["chance"]
    assert reported(handed_over, "ep_rew_mean") == reported(handed_over, "ep_len_mean") > 1  # one for each step


@pytest.mark.long  # five imports of the library take most of a minute
@pytest.mark.trainer
def test_lightning_comes_to_the_same_bits(new_relay: NewRelay) -> None:
    """Three batches an epoch: jobs begin in the middle of one, and go over the end of one."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("lightning")

    handed_over, whole = both(new_relay, "fit_lightning.py", {"epochs": 2, "batch_size": 667}, jobs=6)

    one, other = (torch.load(folder / "model.ckpt", weights_only=False) for folder in (handed_over, whole))
    assert_same_tensors(one["state_dict"], other["state_dict"])
    assert_same_tensors(one["optimizer_states"], other["optimizer_states"])
    assert reported(handed_over, "loss") == reported(whole, "loss") > 0


def in_jobs(run_dir: Path, work: Callable[[Job], object], *, asked: bool) -> Path:
    """The last checkpoint of `work` in as many jobs of this process as it takes, each asked to hand over if `asked`."""
    codes: list[Any] = []
    while len(codes) < 20:
        job = Job(run_dir, 0, Job.standalone(run_dir).attempt, deadline=0.0 if asked else None)
        try:
            work(job)
        except SystemExit as left:
            codes.append(left.code)
        else:
            assert codes == [HANDED_OVER] * (job.attempt if asked else 0)
            told = json.loads((job.attempt_dir / "progress.json").read_text())
            assert told["step"] == told["checkpoint_step"] == told["total"]
            return job.attempt_dir / "checkpoints" / str(told["step"])
    raise AssertionError("it never ended")


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.parametrize(
    ("jobs", "batch", "more"),  # a batch of 0: data of no known length, one batch of them
    [
        (4, 12, {"max_epochs": 4}),
        (4, 12, {"max_steps": 4, "max_epochs": -1}),
        (5, 0, {"max_epochs": 5}),
        (3, 4, {"max_epochs": 3, "accumulate_grad_batches": 5}),
        (6, 4, {"max_epochs": 2}),
        (7, 4, {"max_steps": 7, "max_epochs": -1, "limit_val_batches": 0}),
    ],
)
def test_lightning_also_goes_on_where_every_batch_is_an_epochs_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, batch: int, more: dict[str, Any]
) -> None:
    torch, lightning = pytest.importorskip("torch"), pytest.importorskip("lightning")
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    from orchestrator.integrations.lightning import HandOver

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield [torch.rand(3)]

    class Small(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

        def on_train_epoch_start(self) -> None:
            if batch in {0, len(data)}:
                torch.rand(())

        def training_step(self, rows: list[torch.Tensor]) -> torch.Tensor:
            loss = self.net(rows[0]).square().mean()
            self.log("loss", loss, on_epoch=True)
            return loss

        def validation_step(self, rows: list[torch.Tensor]) -> None:
            self.log("worth", self.net(rows[0]).mean().abs() + self.global_step)  # it never gets better

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), 0.1)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.9, patience=0)
            return [optimizer], [{"scheduler": plateau, "monitor": "worth", "strict": False}]

    monkeypatch.setattr(Job, "listen", lambda _job: None)
    data = TensorDataset(torch.arange(36.0).reshape(12, 3))
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)

    def fit(job: Job) -> None:
        torch.manual_seed(3 if job.attempt == 0 else 4)
        hand_over = HandOver(job, every=1)
        trainer = lightning.Trainer(callbacks=[hand_over], accelerator="cpu", **quiet, **more)
        loader = DataLoader(data, batch, shuffle=True) if batch else DataLoader(Stream(), 1)
        trainer.fit(Small(), loader, DataLoader(data, 6), ckpt_path=hand_over.ckpt_path)

    handed_over = in_jobs(tmp_path / "jobs", fit, asked=True)
    whole = in_jobs(tmp_path / "whole", fit, asked=False)

    assert (handed_over.parts[-3], whole.parts[-3]) == (str(jobs - 1), "0")
    one, other = (torch.load(folder / "model.ckpt", weights_only=False) for folder in (handed_over, whole))
    for name in ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers"):
        assert_same_tensors(one[name], other[name])
    counts = [saved["loops"]["fit_loop"] for saved in (one, other)]
    for name in ("epoch_progress", "epoch_loop.batch_progress"):
        assert counts[0][name] == counts[1][name]
    chances = [next(iter(saved["callbacks"].values()))["chance"]["torch"] for saved in (one, other)]
    assert chances[0] == chances[1]


@pytest.mark.long
@pytest.mark.trainer
def test_hugging_faces_trainer_comes_to_the_same_bits(new_relay: NewRelay) -> None:
    pytest.importorskip("transformers")
    from safetensors.torch import load_file

    handed_over, whole = both(new_relay, "tune_transformers.py", {"max_steps": 4})

    one, other = (load_file(folder / "model.safetensors") for folder in (handed_over, whole))
    assert_same_tensors(one, other)
    assert reported(whole, "train_loss") > 0
