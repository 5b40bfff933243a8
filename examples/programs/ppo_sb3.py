"""PPO on CartPole with stable-baselines3, over as many jobs as it takes: the same bits, however many."""

from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from anchorleg.job import Job
from orchestrator.integrations.sb3 import HandOver

job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
job.listen()
params = {"total": 100_000, "n_steps": 512, "lr": 3e-4, "seed": 0} | job.settings()
env = make_vec_env("CartPole-v1", n_envs=4, seed=params["seed"])
hand_over = HandOver(job, total=params["total"], every=20_000)
model = hand_over.load(PPO, env, device="cpu") or PPO(
    "MlpPolicy", env, n_steps=params["n_steps"], learning_rate=params["lr"], seed=params["seed"], device="cpu"
)
hand_over.learn(model)
