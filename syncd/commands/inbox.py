"""`syncd contributors`, `drop` and `readmit`: who sends experience in, and who may."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.output import say
from anchorleg.places import account_name
from anchorleg.words import did_you_mean, roughly, table_lines
from syncd.commands import JsonOption
from syncd.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from syncd.shared.inbox import Inbox
    from syncd.shared.layout import Shared

_SHARED_HELP = "Shared folder, or a run folder."

SharedArgument = Annotated[Path, typer.Argument(help=_SHARED_HELP)]
SharedOption = Annotated[Path, typer.Option("--shared", help=_SHARED_HELP)]
WhoOption = Annotated[str, typer.Option("--contributor", help="Name, as `syncd contributors` shows it.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def contributors(
    shared: SharedArgument = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show who sent experience, and what became of it.

    Sorted by what each contributor gave in the last seven days.
    """
    from syncd.shared.inbox import Inbox

    rows = sorted(map(_row, Inbox.all_of(_shared(shared))), key=_merit)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("nobody has sent anything yet", file=sys.stderr)
    else:
        from rich.console import Console

        cells, out = [_cells(row, time.time()) for row in rows], Console(emoji=False, highlight=False)
        say(*(table_lines(_HEADER, cells, out.width) if out.is_terminal else map("\t".join, cells)))


def _merit(row: dict[str, Any]) -> tuple[int, int, str]:
    """By the last seven days, then by all, then by name."""
    return -row["rows_7d"], -row["rows_credited"], row["contributor"]


def drop(contributor: WhoOption, shared: SharedOption = Path(), yes: YesOption = False) -> None:
    """Drop a contributor and their experience.

    Waiting experience goes to quarantine, learners remove the rows they have, and new experience is refused.
    """
    inbox = _inbox(_shared(shared), contributor)
    if inbox.is_dropped:
        print(f"{inbox.who} is already dropped")
    elif not yes and not _confirmed(inbox):
        print("nothing was changed")
        return
    try:
        moved = inbox.drop(by=account_name(), now=time.time())
    except OSError as error:
        raise StorageError("contributor.unfinished", path=error.filename, why=error.strerror) from error
    print(
        f"{inbox.who} is dropped; {moved} waiting segments went to {inbox.path / 'quarantine'}\n"
        "running learners remove its rows at their next step\n"
        f"undo: syncd readmit --contributor {inbox.who} --shared {shlex.quote(str(shared.absolute()))}"
    )


def readmit(contributor: WhoOption, shared: SharedOption = Path()) -> None:
    """Readmit a contributor who was dropped or held. Experience in quarantine stays there."""
    inbox = _inbox(_shared(shared), contributor)
    try:
        was_out = inbox.readmit()
    except OSError as error:
        raise StorageError("storage.unwritable", path=error.filename, why=error.strerror) from error
    print(f"{inbox.who} is accepted again" if was_out else f"{inbox.who} was neither dropped nor held")


def _shared(path: Path) -> Shared:
    from syncd.shared.layout import Shared

    return Shared.locate(path.absolute())


def _inbox(shared: Shared, who: str) -> Inbox:
    """The inbox of a contributor that exists. Errors: ConfigError with the nearest name."""
    from syncd.shared.inbox import Inbox

    known = {inbox.who: inbox for inbox in Inbox.all_of(shared)}
    if who in known:
        return known[who]
    raise ConfigError("contributor.unknown", name=who[:81], folder=shared.inbox_folder, hint=did_you_mean(who, known))


def _confirmed(inbox: Inbox) -> bool:
    """Whether the person at the terminal says yes. Errors: ConfigError where there is none."""
    if not sys.stdin.isatty():
        raise ConfigError("contributor.no-terminal", name=inbox.who)
    waiting = inbox.usage("new").segments
    question = f"Drop {inbox.who}, in all runs of this folder? {waiting} waiting segments will go to quarantine"
    return typer.confirm(question, default=False)


def _row(inbox: Inbox) -> dict[str, Any]:
    from syncd.shared.counts import BOARD_DAYS, by_slot, counts, held, last_seen

    now = time.time()
    now_held = held(inbox.path, now)
    total, waiting = counts(inbox.path), inbox.usage("new")
    return {
        "contributor": inbox.who,
        "waiting": waiting.segments,
        "waiting_bytes": waiting.bytes,
        "accepted": total.accepted,
        "rows": total.rows,
        "rows_7d": total.rows_of(now, BOARD_DAYS),
        "rows_today": total.rows_of(now),
        "rows_credited": total.credited,
        "checked": total.checked,
        "exact": total.exact,
        "episodes": total.episodes,
        "solved": total.solved,
        "refused": dict(sorted(total.refused.items())),
        "last_seen": last_seen(inbox.path),
        "dropped": inbox.is_dropped,
        "held_until": now_held.until if now_held else None,
        "held_for": now_held.why if now_held else "",
        "slots": {
            slot: {"accepted": one.accepted, "rows": one.rows, "last_at": one.last_at}
            for slot, one in by_slot(inbox.path).items()
        },
    }


_HEADER = (
    "contributor", "waiting", "accepted", "rows", "7 days", "checked", "solved", "refused", "last seen", "state"
)  # fmt: skip


def _part(some: int, of: int) -> str:
    return f"{100 * some / of:.0f} %" if of else "-"


def _cells(row: dict[str, Any], now: float) -> list[str]:
    refused = sum(row["refused"].values())
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(row["refused"].items(), key=lambda i: -i[1]))
    return [
        row["contributor"],
        f"{row['waiting']:,}",
        f"{row['accepted']:,}",
        f"{row['rows']:,}",
        f"{row['rows_7d']:,}",
        _part(row["checked"], row["accepted"] + row["refused"].get("not_reproduced", 0)),
        _part(row["solved"], row["episodes"]),
        f"{refused:,}" + f" ({reasons})" * bool(reasons),
        "never" if row["last_seen"] is None else f"{roughly(now - row['last_seen'])} ago",
        _state(row, now),
    ]


def _state(row: dict[str, Any], now: float) -> str:
    if row["dropped"]:
        return "dropped"
    return f"held for {roughly(row['held_until'] - now)}: {row['held_for']}" if row["held_until"] else "welcome"
