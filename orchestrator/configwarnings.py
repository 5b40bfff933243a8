"""What a config asks for and does not get: `start` says it and goes on, and `doctor` has it beside its own checks."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from anchorleg.findings import Check, Judgement, Judgements, as_sentences, examine, warning
from anchorleg.places import home_folder, user_path
from orchestrator.config import RunConfig
from orchestrator.decisions.turns import rung_steps
from trainer.config.section import resolve
from trainer.config.training import ALL_THE_TIME, BY_EVALUATIONS
from trainer.config.wandb import WANDB_MODES, WandbSection, wandb_environment, wandb_mode


def idle_gpus(config: RunConfig) -> Judgement | None:
    """Each job asks for more GPUs than our trainer uses."""
    if config.role == "actors" and config.slurm.gpus:
        return warning(f"slurm.gpus: {config.slurm.gpus}: actors use the CPU, so the GPU stays idle", "Set it to 0")
    used = config.slurm.ranks // config.slurm.nodes
    if config.command is not None or config.slurm.gpus <= max(1, used):
        return None
    idle = config.slurm.gpus - used
    others = "the other stays idle" if idle == 1 else "the others stay idle"
    uses = f"{used} ranks use {used} GPUs" if used > 1 else "the trainer uses one GPU of a job"
    return warning(
        f"slurm.gpus: {config.slurm.gpus}: {uses}, and {others}",
        f"Set it to {used}, and slots to the number of GPUs; docs/cluster.md says when one slot on several is faster",
    )


def _unmeasured(config: RunConfig) -> Judgements:
    """Our trainer is evaluated too seldom for its rungs."""
    halving = config.queue.halving
    metric = config.queue.metric
    if halving is None or not config.trains or metric not in BY_EVALUATIONS:
        return None
    training = resolve(config.training)
    every, most = training.evaluation_interval, rung_steps(1, halving)
    if training.evaluation_goals and 0 < every < most:
        return None
    seldom = f"each {every:,} steps" if training.evaluation_goals and every else "at no step before the end"
    return warning(
        f"queue.halving: the trainer reports {metric} {seldom} (training.evaluation_interval), and an experiment "
        f"without it stops at {most:,} steps: set evaluation_interval to at most first_steps ({halving.first_steps:,})"
    )


def _never_told(config: RunConfig) -> Judgements:
    """Our trainer reports nothing by the metric's name."""
    metric, there_are = config.queue.metric, (*BY_EVALUATIONS, *ALL_THE_TIME)
    if metric is None or not config.trains or metric in there_are:
        return None
    names = ", ".join(there_are)
    return warning(f'queue.metric: the trainer reports no "{metric}", so no experiment has one: set one of {names}')


CHECKS: tuple[Check[RunConfig], ...] = (
    Check("GPUs asked for", idle_gpus),
    Check("queue.halving", _unmeasured),
    Check("queue.metric", _never_told),
)


def warnings_of(config: RunConfig) -> list[str]:
    """What the config asks for and does not get, one sentence each."""
    training = resolve(config.training).warnings_of() if config.trains else ()
    return [*(f"training.{name}: {words}" for name, words in training), *as_sentences(examine(CHECKS, config))]


def wandb_notes(section: WandbSection, environ: Mapping[str, str], home: Path | None = None) -> tuple[str, ...]:
    """One sentence for each thing that somebody who asked for W&B does not expect. `home`: where .netrc lies."""
    told = wandb_environment(section, environ)
    mode, found = wandb_mode(told), []
    if section.mode is not None and mode != section.mode:
        found.append(f"wandb.mode: {section.mode}: WANDB_MODE={mode} in your environment takes precedence.")
    if mode not in WANDB_MODES:
        found.append(f"W&B: WANDB_MODE is {mode!r}, not one of {', '.join(WANDB_MODES)}: jobs send no curves.")
    if mode == "offline":
        found.append("W&B: offline: jobs send nothing; send their curves with `trainer wandb RUN` and `wandb sync`.")
    if mode == "online":
        try:  # as .netrc has it, with the port, as wandb keeps it
            server = urlsplit(environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
        except ValueError:
            server = ""
        if not server:
            found.append(
                "W&B: online: WANDB_BASE_URL is not the address of a server, such as https://wandb.example.org: "
                "jobs train but send nothing."
            )
        elif not _has_key(server, environ, home or home_folder(environ)):
            unsafe = ", and jobs do not get WANDB_API_KEY" if environ.get("WANDB_API_KEY") else ""
            found.append(
                f"W&B: online: there is no key in ~/.netrc{unsafe}: run `wandb login` once on this machine; without "
                "a key, jobs train but send nothing."
            )
    return tuple(found)


def _has_key(server: str, environ: Mapping[str, str], home: Path) -> bool:
    """Whether `wandb login` was typed for that server. What cannot be read is taken for no key."""
    path = user_path(environ["NETRC"]) if environ.get("NETRC") else home / ".netrc"
    try:
        return netrc.netrc(str(path)).authenticators(server) is not None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return False
