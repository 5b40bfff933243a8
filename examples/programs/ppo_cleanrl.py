"""PPO on CartPole in one file, in CleanRL's manner, over as many jobs as it takes: the same bits, however many."""

from pathlib import Path

import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

from anchorleg.job import Job
from orchestrator.integrations.checkpointer import Checkpointer
from orchestrator.integrations.envs import env_state, restore_env
from orchestrator.integrations.rng import random_state, restore_random_state

job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
job.listen()
args = {"iterations": 200, "num_envs": 4, "num_steps": 128, "lr": 2.5e-4, "gamma": 0.99, "seed": 0} | job.settings()
keeper = Checkpointer(job, total=args["iterations"], every=20)
torch.manual_seed(args["seed"])
n, steps = args["num_envs"], args["num_steps"]
same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
envs = gym.make_vec("CartPole-v1", num_envs=n, vectorization_mode="sync", vector_kwargs=same_step)
actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
agent = nn.ModuleList([actor, critic])
optimizer = torch.optim.Adam(agent.parameters(), lr=args["lr"], eps=1e-5)
next_obs, next_done = torch.tensor(envs.reset(seed=args["seed"])[0]), torch.zeros(n)


def save(folder: Path) -> None:
    episodes = {"envs": env_state(envs), "obs": next_obs, "done": next_done}
    learner = {"agent": agent.state_dict(), "optimizer": optimizer.state_dict(), "chance": random_state()}
    torch.save({**learner, **episodes}, folder / "state.pt")


if keeper.start is not None:
    saved = torch.load(keeper.start.path / "state.pt")
    agent.load_state_dict(saved["agent"])
    optimizer.load_state_dict(saved["optimizer"])
    restore_env(envs, saved["envs"])
    next_obs, next_done = saved["obs"], saved["done"]
    restore_random_state(saved["chance"])

for iteration in range(keeper.start_step, args["iterations"]):
    optimizer.param_groups[0]["lr"] = args["lr"] * (1 - iteration / args["iterations"])
    obs, actions = torch.zeros(steps, n, 4), torch.zeros(steps, n, dtype=torch.long)
    logprobs, rewards, dones, values = (torch.zeros(steps, n) for _ in range(4))
    for t in range(steps):
        obs[t], dones[t] = next_obs, next_done
        with torch.no_grad():
            policy = Categorical(logits=actor(next_obs))
            actions[t], values[t] = policy.sample(), critic(next_obs)[:, 0]
            logprobs[t] = policy.log_prob(actions[t])
        found, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
        rewards[t], next_obs = torch.tensor(reward), torch.tensor(found)
        next_done = torch.tensor(terminated | truncated).float()
    advantages, last = torch.zeros(steps, n), torch.zeros(n)
    with torch.no_grad():
        following, alive = critic(next_obs)[:, 0], 1 - next_done
        for t in reversed(range(steps)):
            delta = rewards[t] + args["gamma"] * following * alive - values[t]
            advantages[t] = last = delta + args["gamma"] * 0.95 * alive * last
            following, alive = values[t], 1 - dones[t]
    flat_obs, returns = obs.reshape(-1, 4), (advantages + values).reshape(-1)
    for _ in range(4):
        for batch in torch.randperm(n * steps).chunk(4):
            policy = Categorical(logits=actor(flat_obs[batch]))
            ratio = (policy.log_prob(actions.reshape(-1)[batch]) - logprobs.reshape(-1)[batch]).exp()
            advantage = advantages.reshape(-1)[batch]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            value_loss = 0.5 * (critic(flat_obs[batch])[:, 0] - returns[batch]).square().mean()
            optimizer.zero_grad()
            (0.5 * value_loss - gain - 0.01 * policy.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    keeper.step_done(iteration + 1, save)
keeper.finish(args["iterations"], save)
envs.close()
