"""N environments stepped together, in this process or in workers."""

from __future__ import annotations

from trainer.envs.spec import ACT_DIM, F32, OBS_DIM, Observed, Step, VectorSpec, VectorState


class VectorEnv:
    """N Meta-World environments; the same results for any number of workers (0: in this process)."""

    obs_dim = OBS_DIM
    act_dim = ACT_DIM

    def __init__(self, spec: VectorSpec, num_workers: int = 0) -> None:
        self.spec = spec
        self.num_envs = spec.num_envs
        self.num_workers = num_workers

    def reset(self) -> Observed:
        """Start the first episode of every environment."""
        raise NotImplementedError

    def step(self, actions: F32) -> Step:
        """Act in every environment: `actions` [N, 4]."""
        raise NotImplementedError

    def snapshot(self) -> VectorState:
        """Everything that `restore` needs, between two steps."""
        raise NotImplementedError

    def restore(self, state: VectorState) -> Observed:
        """Go on from `state`, and say where the environments stand."""
        raise NotImplementedError

    def close(self) -> None:
        """End the workers."""
        raise NotImplementedError
