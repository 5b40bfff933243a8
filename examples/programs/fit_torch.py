"""Fits a small net to a sine with plain torch, over as many jobs as it takes: the same bits, however many."""

from pathlib import Path

import torch

from anchorleg.job import Job
from orchestrator.integrations.checkpointer import Checkpointer
from orchestrator.integrations.rng import random_state, restore_random_state

job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
job.listen()
params = {"steps": 20_000, "lr": 1e-3, "seed": 0} | job.settings()
keeper = Checkpointer(job, total=params["steps"], every=1000)
torch.manual_seed(params["seed"])
net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), params["lr"])


def save(folder: Path) -> None:
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "chance": random_state()}
    torch.save(state, folder / "state.pt")


if keeper.start is not None:
    state = torch.load(keeper.start.path / "state.pt")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    restore_random_state(state["chance"])

for step in range(keeper.start_step, params["steps"]):
    x = torch.rand(256, 1) * 6 - 3
    loss = torch.nn.functional.mse_loss(net(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    keeper.step_done(step + 1, save)
keeper.finish(params["steps"], save)
