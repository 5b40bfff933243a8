"""`trainer actors`: play with published policies, and send the experience back if asked to."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.job import HANDED_OVER, Job
from anchorleg.output import Waiting
from anchorleg.places import own_folder, user_path
from trainer.commands import DEVICES, AveragedOption
from trainer.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from syncd import store
    from trainer.actors.follower import Giver
    from trainer.actors.views import Playing
    from trainer.envs.memory import MemoryPlan
    from trainer.machine.host import Host
    from trainer.sharing.selection import Choice

#: The owner's programs come first. 10 is what syncd's service uses too.
_NICE = 10
#: Of one program of actors.
MOST_ENVS = 4096

SharedDirOption = Annotated[
    Path | None, typer.Option(help="Mirror, or a run's shared folder. Default: ~/shared_weights.")
]
EnvsOption = Annotated[str, typer.Option(help="Number of environments. auto: 1 to 16, leaving you a core and 4 GB.")]
AutotuneOption = Annotated[bool, typer.Option("--autotune", help="Measure this machine first, for up to a minute.")]
UserIdOption = Annotated[
    str | None, typer.Option(help="Measurement of `trainer autotune --user-id`. Default: this machine's.")
]
ContributeOption = Annotated[bool, typer.Option("--contribute", help="Record the experience in the outbox.")]
DirectOption = Annotated[
    bool, typer.Option("--direct", help="On the run's own machines: write to --shared-dir, not to the outbox.")
]
StreamOption = Annotated[bool, typer.Option("--stream", help="Show these agents, under your name, on the run's page.")]
DeviceOption = Annotated[str, typer.Option(metavar=DEVICES, help="Where the policy computes. auto: the CPU.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help="latest, best, RUN, RUN/SLOT, or needed: the slot that needs experience most. Default: needed with "
        "--contribute, otherwise latest."
    ),
]
StepsOption = Annotated[int | None, typer.Option(min=1, help="Stop after N steps.")]
ForOption = Annotated[float | None, typer.Option("--for", min=0.1, help="Stop after this time of play.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def actors(
    shared_dir: SharedDirOption = None,
    num_envs: EnvsOption = "auto",
    autotune: AutotuneOption = False,
    user_id: UserIdOption = None,
    contribute: ContributeOption = False,
    direct: DirectOption = False,
    stream: StreamOption = False,
    device: DeviceOption = "auto",
    policy: PolicyOption = None,
    averaged: AveragedOption = False,
    steps: StepsOption = None,
    seconds: ForOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play with published policies and contribute.

    Uses each newer policy when it arrives, and needs no network. With --contribute, the experience waits in the outbox
    until syncd sends it. Ctrl-C ends it. In a job of the orchestrator, it hands over (exit code 75) when asked to, and
    ends (exit code 0) when the training is complete.
    """
    job = Job.from_environment()
    if job is not None:
        job.listen()  # before the slow imports
    if direct and not contribute:
        raise ConfigError("cli.direct-without-contribute")
    if direct and stream:
        raise ConfigError("cli.direct-and-stream")
    wanted = _count(num_envs)
    folder = _folder(shared_dir)
    with Waiting("starting"):
        from syncd import store
        from trainer.actors.actors import Actors, Plan, interrupts
        from trainer.actors.views import ActorDisplay
        from trainer.machine.host import read_host
        from trainer.sharing.selection import Choice

    choice, where = Choice.parse(policy or ("needed" if contribute else "latest")), _shared(folder)
    host = read_host()
    advice = _advice(wanted, user_id, host, autotune=autotune)
    check_room(advice, host)
    chosen = _device("cpu" if device == "auto" else device)
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
    plan = Plan(
        folder=where.path,
        shared=where,
        choice=choice,
        num_envs=advice.num_envs,
        workers=advice.workers,
        device=chosen,
        contribute=contribute,
        steps=steps,
        seconds=seconds,
        goals_cache=own_folder("cache"),
        giver=_giver(choice, job, direct=direct) if contribute else None,
        deposit=store.Deposit(where) if direct else None,
        stream=stream,
        averaged=averaged,
    )
    with ExitStack() as stack:
        is_asked = stack.enter_context(interrupts()) if job is None else lambda: job.hand_over_reason() is not None
        show = stack.enter_context(ActorDisplay(as_json=as_json))
        for note in advice.notes:
            show.say(note)
        if contribute and not direct and not (where.path / "state" / "status.json").exists():
            show.say(
                f"no syncd has run here yet: recordings wait in {where.path / 'outbox'} until "
                "`syncd watch` or `syncd push` sends them"
            )
        running = Actors(plan, show)
        last = running.run(is_asked)
        show.summary(last, _summary(last, is_over=running.is_over))
    raise typer.Exit(HANDED_OVER if job is not None and is_asked() and not running.is_over else 0)


def _giver(choice: Choice, job: Job | None, *, direct: bool) -> Giver | None:
    """Choose by need where that was asked for, and among a named run's slots where what is played is handed in at once.

    Each job of a run has an order of slots of its own.
    """
    from trainer.actors.follower import Giver

    if choice.kind != "needed" and not (direct and choice.kind == "named"):
        return None
    who = f"{job.run_id}/{job.slot}" if job is not None else f"{os.getuid()}@{socket.gethostname()}"
    return Giver(who, waits=direct)


def _count(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MOST_ENVS:
        raise ConfigError("cli.num-envs-no-number", value=text, most=MOST_ENVS)
    return int(text)


def _folder(shared_dir: Path | None) -> Path:
    from trainer.sharing.selection import DEFAULT_SHARED_DIR

    folder = user_path(shared_dir or DEFAULT_SHARED_DIR)
    try:
        is_there = folder.is_dir()
    except PermissionError:
        raise ConfigError("shared.closed", folder=folder) from None
    if not is_there:
        raise ConfigError("shared.no-folder", folder=folder)
    return folder


def _shared(folder: Path) -> store.Shared:
    """The shared folder in `folder`, or itself; it may still be empty: then the actors wait."""
    from syncd import store

    inner = folder / "shared"
    is_run = not (folder / "v1").is_dir() and (inner / "v1").is_dir()
    return store.Shared((inner if is_run else folder).resolve())


def _device(wanted: str) -> torch.device:
    from trainer.machine import device as machine

    if wanted not in {"cpu", "cuda", "mps"}:
        raise ConfigError("cli.unknown-device", device=wanted)
    machine.set_deterministic(1)
    return machine.choose_device(wanted, asked_by="--device")


def _advice(wanted: int | None, user_id: str | None, host: Host, *, autotune: bool) -> MemoryPlan:
    """As `trainer autotune` measured; without it by a rule."""
    from trainer.tuning.autotune import advise

    if autotune:
        from trainer.commands.autotune import AUTOTUNE_S, measured

        measured(host, user_id, budget_s=AUTOTUNE_S, again=False)
    return advise(wanted, user_id, host=host)


def check_room(advice: MemoryPlan, host: Host) -> None:
    """Errors: ConfigError where so many environments need more memory than the whole machine has.

    A number that is merely larger than what is free is the user's own decision; a note warns of it.
    """
    from trainer.envs.memory import need_bytes

    there, need = host.memory_bytes, need_bytes(advice.num_envs, advice.workers)
    if there is not None and advice.num_envs > 1 and need > there:
        raise ConfigError("cli.num-envs-above-memory", num_envs=advice.num_envs, need=need / 2**30, have=there / 2**30)


def _summary(last: Playing, *, is_over: bool) -> str:
    words = f"{last.doing}: {last.steps:,} steps, {last.episodes:,} episodes"
    if last.success is not None:
        words += f", success {100 * last.success:.0f} %"
    if last.policy:
        words += f"; last policy {last.policy} of {last.run}/{last.slot}"
    if last.recording:
        words += f"; recorded {last.recording.recorded:,} segments, {last.recording.words()}"
    return f"the training is complete; {words}" if is_over else words
