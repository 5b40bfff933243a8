"""What kept.py does, by Lightning's loop and its requeue of Slurm jobs: `python kept_lightning.py FOLDER TOTAL`."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import SLURMEnvironment

PACE_S, EVERY = 0.05, 100
folder, total = Path(sys.argv[1]), int(sys.argv[2])


class Toy(LightningModule):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):  # noqa: D102 - Lightning's
        return self.layer(batch).mean()

    def configure_optimizers(self):  # noqa: D102
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Log(Callback):
    """A line a step, as kept.py's."""

    def on_train_batch_end(self, trainer, *_):  # noqa: D102
        time.sleep(PACE_S)
        with open(folder / "log", "a") as log:
            log.write(f"{time.time():.3f} {os.getpid()} {trainer.global_step}\n")


saver = ModelCheckpoint(folder / "saved", every_n_train_steps=EVERY, save_last=True, save_top_k=1)
Trainer(
    accelerator="cpu", max_steps=total, callbacks=[Log(), saver], default_root_dir=folder, logger=False,
    plugins=[SLURMEnvironment(auto_requeue=True, requeue_signal=signal.SIGUSR2)],
    enable_progress_bar=False, enable_model_summary=False,
).fit(
    Toy(), torch.utils.data.DataLoader(torch.ones(10 * total, 1)),
    ckpt_path="last" if any(folder.glob("saved/*.ckpt")) else None,
)  # fmt: skip
