"""`trainer live`: what the viewer starts to show a policy that this machine plays itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.live.wanted import ANY, LANE, MOST_FPS
from trainer.errors import ConfigError, EnvironmentFailedError, SaveError, TrainerError

#: Who watches, and who works on this machine, come first.
_NICE = 5
#: A step that hangs is not waited for any longer once nobody watches.
_END_S = 5.0

SharedArgument = Annotated[Path, typer.Argument(metavar="SHARED_OR_MIRROR", help="The folder that has v1/runs.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Name or id of the run.")]
SlotArgument = Annotated[int, typer.Argument(metavar="SLOT", min=0, help="Its slot.")]
RingOption = Annotated[Path, typer.Option("--ring", help="Folder for <lane>.ring and its scenes.")]
LaneOption = Annotated[str, typer.Option(help="any: the tasks in turn; or t and the number of one, such as t3.")]
FpsOption = Annotated[int, typer.Option(min=1, max=MOST_FPS, help="Pictures a second.")]


def live(
    shared: SharedArgument,
    run: RunArgument,
    slot: SlotArgument,
    ring: RingOption,
    lane: LaneOption = ANY,
    fps: FpsOption = 30,
) -> None:
    """Play a slot's newest published policy in real time into a ring, until standard input ends; for the viewer."""
    if not LANE.fullmatch(lane):
        raise ConfigError(f"--lane {lane}: use any, or t and the number of a task, such as t3")
    stop = _stopped_by_its_parent()
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
    os.nice(_NICE)
    from trainer.live.player import player_of  # noqa: PLC0415 - torch and the simulator

    try:
        player_of(
            shared, run, slot, ring, lane, fps, stop, lambda words: print(words, file=sys.stderr, flush=True)
        ).run()
    except OSError as error:
        raise SaveError(f"{ring} cannot be written: {error.strerror or error}") from None
    except TrainerError:
        raise
    except Exception as error:
        words = str(error) or type(error).__name__
        raise EnvironmentFailedError(f"{run}/{slot} cannot be played here: {words}") from error


def _stopped_by_its_parent() -> threading.Event:
    """Set once SIGTERM comes or standard input ends, which it does when its other end dies in whatever way."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())

    def listen() -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass
        stop.set()

    def end() -> None:
        stop.wait()
        threading.Event().wait(_END_S)
        os._exit(0)

    for work in (listen, end):
        threading.Thread(target=work, daemon=True).start()
    return stop
