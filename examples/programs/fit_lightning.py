"""Fits a small net to a sine with PyTorch Lightning, over as many jobs as it takes."""

from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from anchorleg.job import Job
from orchestrator.integrations.lightning import HandOver


class Sine(lightning.LightningModule):
    """One hidden layer."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)  # `status` and queue.metric know it by this name
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.lr)


job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
job.listen()
params = {"epochs": 200, "batch_size": 100, "lr": 1e-3, "seed": 0} | job.settings()
lightning.seed_everything(params["seed"])
x = torch.linspace(-3, 3, 2000)[:, None]
data = DataLoader(TensorDataset(x, torch.sin(x)), batch_size=params["batch_size"], shuffle=True)
hand_over = HandOver(job, every=1000)
trainer = lightning.Trainer(
    max_epochs=params["epochs"], callbacks=[hand_over], logger=False, enable_checkpointing=False, accelerator="cpu"
)
trainer.fit(Sine(params["lr"]), data, ckpt_path=hand_over.ckpt_path)
