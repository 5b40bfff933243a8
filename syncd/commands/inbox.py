"""`syncd contributors`, `drop` and `readmit`: who sends experience in, and who may."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.places import account_name
from anchorleg.words import did_you_mean, roughly
from syncd.commands.way import JsonOption
from syncd.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rich.table import Table

    from syncd.shared.inbox import Inbox
    from syncd.shared.layout import Shared

_SHARED_HELP = "The shared folder, or a run folder with shared/ in it; default: this folder."

SharedArgument = Annotated[Path, typer.Argument(metavar="SHARED", help=_SHARED_HELP)]
SharedOption = Annotated[Path, typer.Option("--shared", help=_SHARED_HELP)]
WhoOption = Annotated[str, typer.Option("--contributor", help="Name of the contributor, as `syncd contributors` says.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def contributors(
    shared: SharedArgument = Path(),
    as_json: JsonOption = False,
    board: Annotated[
        bool, typer.Option("--board", help="Who gave most: believed rows of the last 7 days (UTC), and of all time.")
    ] = False,
) -> None:
    """Show who sent experience in, and what became of it."""
    from syncd.shared.inbox import Inbox

    rows = [_row(inbox) for inbox in Inbox.all_of(_shared(shared))]
    if board:
        show_board(rows, as_json=as_json)
        return
    if as_json:
        print(json.dumps(rows, indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(emoji=False, highlight=False)
        if not rows:
            console.print("nobody has sent anything in yet")
            return
        wide = console.width >= WIDE
        console.print(_table(rows, time.time(), wide=wide))
        for row in [] if wide else [row for row in rows if row["refused"]]:
            console.print(f"{row['contributor']} refused: {_reasons(row)}", style="dim", markup=False)
        for row in [row for row in rows if row["held_until"]]:
            console.print(f"{row['contributor']} is held: {row['held_for']}", style="yellow", markup=False)
    else:
        for row in rows:
            print("\t".join(_cells(row, time.time())))


def drop(contributor: WhoOption, shared: SharedOption = Path(), yes: YesOption = False) -> None:
    """Throw a contributor out: what waits goes to quarantine, the learners take out the rows, what comes is refused."""
    inbox = _inbox(_shared(shared), contributor)
    if inbox.is_dropped:
        print(f"{inbox.who} is dropped already")
    elif not yes and not _confirmed(inbox):
        print("nothing was changed")
        return
    try:
        moved = inbox.drop(by=account_name(), now=time.time())
    except OSError as error:
        raise StorageError("contributor.unfinished", path=error.filename, why=error.strerror) from error
    print(
        f"{inbox.who} is dropped; {moved} waiting segments went to {inbox.path / 'quarantine'}\n"
        "a learner that runs takes out the rows that it has at its next step\n"
        f"undo: syncd readmit --contributor {inbox.who} --shared {shlex.quote(str(shared.absolute()))}"
    )


def readmit(contributor: WhoOption, shared: SharedOption = Path()) -> None:
    """Take back a contributor who was dropped, or is held. What is in quarantine stays there."""
    inbox = _inbox(_shared(shared), contributor)
    try:
        was_out = inbox.readmit()
    except OSError as error:
        raise StorageError("storage.unwritable", path=error.filename, why=error.strerror) from error
    print(f"{inbox.who} is welcome again" if was_out else f"{inbox.who} was neither dropped nor held")


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
    question = f"Drop {inbox.who}, in all runs of this folder? {waiting} segments wait, and go to quarantine"
    return typer.confirm(question, default=False)


def _row(inbox: Inbox) -> dict[str, Any]:
    from syncd.shared.counts import BOARD_DAYS, by_slot, counts, last_seen
    from syncd.shared.holds import held

    now = time.time()
    now_held = held(inbox.path, now)
    total, waiting = counts(inbox.path), inbox.usage("tmp", "new")
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


#: Below this the reasons stand under the table, so that 80 columns stay readable.
WIDE = 110

_HEADER = ("contributor", "waiting", "accepted", "rows", "checked", "solved", "refused", "last seen", "state")
#: Columns for which 80 columns have no room: part of the segments that were simulated again, and that solved the task.
_WIDE_ONLY = {"checked", "solved"}


def _reasons(row: dict[str, Any]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(row["refused"].items(), key=lambda i: -i[1]))


def _part(some: int, of: int) -> str:
    return f"{100 * some / of:.0f} %" if of else "-"


def _cells(row: dict[str, Any], now: float, *, with_reasons: bool = True) -> list[str]:
    refused = sum(row["refused"].values())
    return [
        row["contributor"],
        f"{row['waiting']:,}",
        f"{row['accepted']:,}",
        f"{row['rows']:,}",
        _part(row["checked"], row["accepted"] + row["refused"].get("not_reproduced", 0)),
        _part(row["solved"], row["episodes"]),
        f"{refused:,}" + (f" ({_reasons(row)})" if with_reasons and refused else ""),
        "never" if row["last_seen"] is None else f"{roughly(now - row['last_seen'])} ago",
        _state(row, now),
    ]


def _state(row: dict[str, Any], now: float) -> str:
    if row["dropped"]:
        return "dropped"
    return f"held for {roughly(row['held_until'] - now)}" if row["held_until"] else "welcome"


def _table(rows: list[dict[str, Any]], now: float, *, wide: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = {"waiting", "accepted", "rows", "checked", "solved"} | (set() if wide else {"refused"})
    shown = [i for i, name in enumerate(_HEADER) if wide or name not in _WIDE_ONLY]
    for name in (_HEADER[i] for i in shown):
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            no_wrap=name not in {"contributor", "refused"},
        )
    for row in rows:
        cells = _cells(row, now, with_reasons=wide)
        table.add_row(*(Text(cells[i]) for i in shown), style="red" if row["dropped"] else None)
    return table


_BOARD_HEADER = ("place", "contributor", "rows, 7 days", "rows, total", "segments", "state")


def ranked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Places from the rows of `syncd contributors --json`: by the last seven days, then by all, then by name. Equal
    rows are one place; a contributor without any has none on the board.
    """
    given = [row for row in rows if row["rows_credited"] > 0]
    found: list[dict[str, Any]] = []
    for number, row in enumerate(sorted(given, key=lambda row: (*_merit(row), row["contributor"])), 1):
        is_same = bool(found) and _merit(found[-1]) == _merit(row)
        names = ("contributor", "rows_7d", "rows_credited", "accepted", "dropped", "held_until")
        found.append({"place": found[-1]["place"] if is_same else number, **{name: row[name] for name in names}})
    return found


def _merit(row: Mapping[str, Any]) -> tuple[int, int]:
    return -row["rows_7d"], -row["rows_credited"]


def show_board(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """A table on a terminal, lines with tabs in a pipe, or JSON."""
    places = ranked(rows)
    if as_json:
        print(json.dumps(places, indent=2))
        return
    lines = [_board_cells(place) for place in places]
    if not sys.stdout.isatty():
        for line in lines:
            print("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(emoji=False, highlight=False)
    if not lines:
        console.print("nobody has rows to their credit yet")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _BOARD_HEADER:
        is_name = name in {"contributor", "state"}
        table.add_column(name, justify="left" if is_name else "right", overflow="fold", no_wrap=name != "contributor")
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)


def _board_cells(place: Mapping[str, Any]) -> list[str]:
    state = "dropped" if place["dropped"] else "held" if place["held_until"] else "welcome"
    numbers = (f"{place[name]:,}" for name in ("rows_7d", "rows_credited", "accepted"))
    return [str(place["place"]), place["contributor"], *numbers, state]
