"""A run's slots and what a look at them finds, as one line of text, so that a decision is one row of a table.

A table (`tests/unit/orchestrator/tables/*.txt`) has one case a line: what it says | slots | looks | slots after them |
actions. One of the last two may be missing; `#` begins a heading. Things are parted by ` / ` (slots), `;` (of a look)
or ` >> ` (looks), their parts by commas, and the words of a part by spaces; quotes and brackets keep a text together.
`name=value` sets a field by its own name: a value is JSON or plain text, and with a sign in front it is seconds from
`NOW`.

* slots: `failures=1, a0 handed-over ended, a1 claimed running 101 + waiting 102 / finished`: fields or status of the
  slot, then its attempts with verdict, `claimed` (`claimed=1`: by its second job), `ahead`, and their jobs, parted by
  ` + `: a state (`STATES`) and an id. `run` in front of a field: it is the ledger's.
* a look: `queue a0 running 101, s1a0.1 TIMEOUT 102` (slot 1, second job of attempt 0), `queue down`, `history …`, or
  what lies in a folder: `a0 claim exit=75 asked=deadline newest=500`; `found a0 …` where the ledger knows no such
  attempt. Fields of `Limits`, `Facts` and `RelaySection` have no word before them; `wish stop`, `folder 0=6`. What a
  look does not say is as in the one before it. Without a word of queue, history or folder the slots stay as given.
* after them: as slots, but only what is named is compared. `why~part`; of the run, also `events=[…]`, `saved=[…]`,
  `avoided=[…]`, `remembered=[…]`, `over=true`, `held=true`.
* actions: `submit a1 after 101, hand-over 101, cancel 102, abort a0`, or `nothing`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, Look, a_claim, a_job, a_row, a_wish, an_exit, blind, job_dir, progress, seen, token

from orchestrator.decisions.evidence import Event, Evidence, Exit, Facts
from orchestrator.decisions.models import (
    Abort,
    Action,
    Attempt,
    Blind,
    Cancel,
    Gone,
    HandOver,
    Ledger,
    Seen,
    Slot,
    SlotStatus,
    Submission,
    SubmissionState,
    Submit,
    Verdict,
    parse_token,
)
from orchestrator.decisions.nodes import excluded
from orchestrator.decisions.plan import Limits, is_held, is_over, plan
from orchestrator.decisions.requests import Control
from orchestrator.decisions.turns import Turns
from orchestrator.executors.base import Accounting, JobRow, JobState
from orchestrator.sections import QueueSection, RelaySection

TABLES = Path(__file__).parents[1] / "unit/orchestrator/tables"
#: A job's words: what the ledger knows of it.
STATES: dict[str, dict[str, Any]] = {
    "intent": {"state": SubmissionState.INTENT, "job_id": None},
    "uncertain": {"state": SubmissionState.UNCERTAIN, "job_id": None},
    "refused": {"state": SubmissionState.NOT_SUBMITTED, "job_id": None},
    "accepted": {},
    "running": {"sighting": seen()},
    "waiting": {"sighting": seen(JobState.PENDING)},
    "unseen": {"sighting": blind()},
    "ended": {"state": SubmissionState.ENDED},
    "over": {"state": SubmissionState.ENDED, "sighting": Gone(proof="its own record", at=NOW - 5, by_job=True)},
}
_VERDICTS = {str(verdict).replace(" ", "-"): verdict for verdict in Verdict}
_ATTEMPT = re.compile(r"(?:s(\d+))?a(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    says: str
    slots: str
    looks: str
    after: str = ""
    actions: str = ""


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table."""
    lines = [line for line in (TABLES / table).read_text().splitlines() if line and not line.startswith("#")]
    return [[cell.strip() for cell in split(line, "|")] for line in lines]


def cases_of(table: str) -> pytest.MarkDecorator:
    """The rows of a table, as parameters of a test by their words."""
    cases = [Case(*row) for row in rows_of(table)]
    assert all(case.after or case.actions for case in cases)
    return pytest.mark.parametrize("case", cases, ids=[case.says for case in cases])


def split(text: str, by: str) -> list[str]:
    """`text` at each `by` that neither quotes nor brackets enclose."""
    found, quoted, depth, at = [""], False, 0, 0
    while at < len(text):
        quoted ^= text[at] == '"'
        depth += 0 if quoted else (text[at] in "[{") - (text[at] in "]}")
        if not quoted and not depth and text.startswith(by, at):
            found.append("")
            at += len(by)
            continue
        found[-1] += text[at]
        at += 1
    return found


def words_of(text: str) -> list[str]:
    """`text` at its spaces."""
    return [word for word in split(text.strip(), " ") if word]


def _value(text: str) -> Any:
    if re.fullmatch(r"[+-]\d+(\.\d+)?", text):
        return NOW + float(text)
    try:
        return json.loads(text)
    except ValueError:
        return text


def fields_of(words: list[str]) -> dict[str, Any]:
    """The values of `name=value` words."""
    return {name: _value(value) for name, _, value in (word.partition("=") for word in words)}


def _where(word: str) -> tuple[int, int, int] | None:
    """(slot, attempt, job) of `a0`, `a0.1`, `s2a0`."""
    match = _ATTEMPT.fullmatch(word)
    return (int(match[1] or 0), int(match[2]), int(match[3] or 0)) if match else None


def _of(model: Any, fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in model.model_fields}


def slots_of(text: str) -> Ledger:
    """The ledger of a run with these slots."""
    run: dict[str, Any] = {"run_id": "mt10-0123abcd", "epoch": 0}
    slots = []
    for index, part in enumerate(split(text, " / ")):
        fields: dict[str, Any] = {}
        attempts: list[Attempt] = []
        for piece in filter(None, (piece.strip() for piece in split(part, ","))):
            words = words_of(piece)
            if words[0] == "run":
                run |= fields_of(words[1:])
            elif (where := _where(words[0])) is not None:
                attempts.append(_attempt(index, where[1], split(piece, " + ")))
            elif words[0] in list(SlotStatus):
                fields["status"] = SlotStatus(words[0])
            else:
                fields |= fields_of(words)
        slots.append(Slot.model_validate({"index": index, "attempts": tuple(attempts), **fields}))
    return Ledger.model_validate({**run, "slots": tuple(slots)})


def _attempt(slot: int, number: int, jobs: list[str]) -> Attempt:
    of_attempt: dict[str, Any] = {"number": number}
    submissions = []
    for place, text in enumerate(jobs):
        name, of_job, of_sight, is_job = token(slot, number, place), {}, {}, False
        for word in words_of(text)[not place :]:
            if word in STATES:
                of_job, is_job = {**STATES[word], **of_job}, True
            elif word.isdigit():
                of_job["job_id"] = word
            elif word in _VERDICTS:
                of_attempt["verdict"] = _VERDICTS[word]
            elif word == "ahead":
                of_attempt["ahead"] = True
            elif word.startswith("claimed") and "_" not in word:
                of_attempt["claimed_by"] = token(slot, number, int(word.partition("=")[2] or 0))
            else:
                field = fields_of([word])
                owner = next(one for one in (Submission, Attempt, Seen, Blind) if _of(one, field))
                (of_job if owner is Submission else of_attempt if owner is Attempt else of_sight).update(field)
        if is_job:
            at = of_job.pop("intent_at", NOW - 600)
            if of_sight:
                of_job["sighting"] = of_job["sighting"].model_copy(update=of_sight)
            submissions.append(a_job(name, at=at, **of_job))
    return Attempt.model_validate({**of_attempt, "submissions": tuple(submissions)})


_RUN = a_wish()
_ALL = Limits(slots=100, max_jobs=None, others=0)


@dataclass(frozen=True)
class Tick:
    """What is known at one moment, by the text of a look."""

    at: float = NOW
    look: Look | None = None
    control: Control = _RUN
    limits: Limits = _ALL
    folders: tuple[tuple[int, int], ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()

    def told(self, text: str) -> Tick:
        """The next one, which knows what this one does and `text`."""
        tick = self
        for piece in split(text, ";"):
            if words := words_of(piece):
                tick = tick._with(words, piece)
        if tick.look is None:
            return tick
        history = tick.look.history
        dated = history.model_copy(update={"at": tick.at}) if history is not None else None
        return replace(tick, look=replace(tick.look, at=tick.at, history=dated))

    def _with(self, words: list[str], piece: str) -> Tick:
        first, *more = words
        look = self.look or Look(history=Accounting(at=NOW, status="ok"))
        if first == "at":
            return replace(self, at=_value(more[0]))
        if first == "wish":
            return replace(self, control=a_wish(more[0], grace_s=float(more[1]) if more[1:] else 180.0))
        if first == "folder":
            return replace(self, folders=tuple((int(s), a) for s, a in fields_of(more).items()))
        if first in {"queue", "history"}:
            rows = tuple(_row(words_of(row)) for row in split(piece.strip().removeprefix(first), ",") if row.strip())
            return replace(self, look=_answered(look, first, more, rows))
        if first == "found":
            where = _where(more[0])
            assert where is not None, piece
            return replace(self, look=look.finding(_evidence(where, more[1:]), where[0], where[1]))
        if (where := _where(first)) is not None:
            return replace(self, look=look.reading(_evidence(where, more), where[0], where[1]))
        fields = fields_of(words)
        if "queue" in fields:
            turns = Turns(queue=QueueSection.model_validate(fields.pop("queue")))
            return replace(self, limits=replace(self.limits, turns=turns))
        of_limits = {name: value for name, value in fields.items() if name in Limits.__dataclass_fields__}
        others = {name: value for name, value in fields.items() if name not in of_limits}
        relay = _of(RelaySection, others)
        others = {name: value for name, value in others.items() if name not in relay}
        assert not set(others) - set(Facts.__dataclass_fields__), piece
        facts = dict(self.facts) | others | ({"relay": RelaySection.model_validate(relay)} if relay else {})
        return replace(self, limits=replace(self.limits, **of_limits), facts=tuple(facts.items()))

    def actions(self, ledger: Ledger) -> list[Action]:
        """What is planned now."""
        serial = iter(range(1000, 2000))
        folders, hexes = dict(self.folders), lambda: f"{next(serial):08x}"
        return plan(ledger, self.control, self.limits, folders, self.at, hexes)


def _answered(look: Look, who: str, words: list[str], rows: tuple[JobRow, ...]) -> Look:
    if who == "queue":
        return replace(look, rows=rows, error="down" if words == ["down"] else None)
    if words == ["unasked"]:
        return replace(look, history=None)
    status = words[0] if words and words[0] in {"blind", "disabled"} else "ok"
    return look.remembering(*rows, status=status, error="slurmdbd is down" if status == "blind" else None)


def _row(words: list[str]) -> JobRow:
    if words in (["down"], ["empty"], ["blind"], ["disabled"], ["unasked"]):
        return JobRow(job_id="", state=JobState.UNKNOWN, raw_state="", work_dir="/elsewhere")
    where, state, *more = words
    place = _where(where)
    folder = job_dir(token(*place) if place is not None else where)
    state = state.strip('"')
    shown = JobState.PENDING if state == "waiting" else JobState.ENDED if state[0].isupper() else JobState(state)
    rest = fields_of([word if "=" in word else f'job_id="{word}"' for word in more])
    raw = rest.pop("raw_state", state if state[0].isupper() else shown.value.upper())
    return a_row(None, shown, raw, **{"work_dir": folder, **rest})


def evidence_of(text: str) -> Evidence:
    """What lies in the folder of attempt 0 of slot 0."""
    return _evidence((0, 0, 0), words_of(text))


def _evidence(where: tuple[int, int, int], words: list[str]) -> Evidence:
    slot, attempt, _ = where
    found: dict[str, Any] = {}
    ended: dict[str, Any] = {}
    done: dict[str, Any] = {}
    claimed: dict[str, Any] = {"name": token(slot, attempt)}
    has_claim = False
    for word in words:
        name, _, text = word.partition("=")
        value = _value(text)
        if name == "claim":
            has_claim, claimed["name"] = True, token(slot, attempt, value or 0)
            claimed["job_id"] = f"10{attempt + (value or 0) + 1}" if "job_id" not in claimed else claimed["job_id"]
        elif name in {"claim_id", "claim_at", "claim_start"}:
            field = {"claim_id": "job_id", "claim_at": "at", "claim_start": "start"}[name]
            claimed[field] = text if name == "claim_id" else f"{value:.0f}" if name == "claim_start" else value
        elif name in {"duplicate", "declined"}:
            other = (token(slot, attempt, value or 0),)
            found["duplicates"] = other
            found |= {"declined": other} if name == "declined" else {}
        elif name == "exit":
            ended["code"] = int(text)
        elif name == "exit_of":
            ended["token"] = token(slot, attempt, value)
        elif name == "exit_at":
            ended["at"] = value
        elif name == "progress":
            done["checkpoint_step"], done["total"] = (int(number) for number in text.split("/"))
        elif name in {"step", "reported_at"}:
            done[name] = value
        elif name in {"saved", "log", "from"}:
            found[{"saved": "newest_checkpoint", "log": "log_tail", "from": "start_step"}[name]] = value
        elif name in Evidence.model_fields:
            found[name] = value
        else:
            assert name in Exit.model_fields, word
            ended[name] = value
    if done:
        reported_at = done.pop("reported_at", 0.0)
        found["progress"] = progress(**done).model_copy(update={"at": reported_at})
    if has_claim:
        start = claimed.pop("start", "")
        found["claim"] = a_claim(**claimed).model_copy(update={"start": start})
    if ended:
        code, name = ended.pop("code"), ended.pop("token", claimed["name"])
        found["exit"] = an_exit(code, name, **ended)
    return Evidence(**found)


def decided(case: Case) -> tuple[Ledger, list[Event], Tick]:
    """The ledger after the looks of a case, the events of the last one, and what is known then."""
    ledger, events, tick = slots_of(case.slots), [], Tick()
    for text in split(case.looks, " >> "):
        tick = tick.told(text)
        if tick.look is not None:
            ledger, events = tick.look.folded_into(ledger, **dict(tick.facts))
    return ledger, events, tick


def check(case: Case) -> None:
    """Whether the case's last columns are what is decided. Errors: AssertionError with both."""
    ledger, events, tick = decided(case)
    if case.after:
        expected, found = compared(case.after, ledger, events, tick)
        assert found == expected
    if case.actions:
        actions = [action_text(action) for action in tick.actions(ledger)]
        assert (", ".join(actions) or "nothing") == case.actions


def compared(text: str, ledger: Ledger, events: list[Event], tick: Tick) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what is to be, what is), by the words of `text`."""
    expected: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for index, part in enumerate(split(text, " / ")):
        for piece in filter(None, (piece.strip() for piece in split(part, ","))):
            words = words_of(piece)
            slot = ledger.slots[index]
            if words[0] == "run":
                for name, value in fields_of(words[1:]).items():
                    expected[f"run {name}"], found[f"run {name}"] = value, _of_run(name, ledger, events, tick)
            elif (where := _where(words[0])) is not None:
                attempt = next((one for one in slot.attempts if one.number == where[1]), Attempt(number=-1))
                for place, job in enumerate(split(piece, " + ")):
                    for word in words_of(job)[not place :]:
                        key = f"{index}:{words[0]}.{place} {word.partition('=')[0]}"
                        expected[key], found[key] = _of_attempt(word, attempt, place)
            elif "~" in piece and "=" not in piece.partition("~")[0]:
                name, _, words_there = piece.partition("~")
                said = getattr(slot, name)
                expected[f"{index} {name}"] = said if (part := words_there.strip('"')) in said else part
                found[f"{index} {name}"] = said
            elif words[0] in list(SlotStatus):
                expected[f"{index} status"], found[f"{index} status"] = words[0], slot.status
            else:
                for name, value in fields_of(words).items():
                    said = [one.number for one in slot.attempts] if name == "numbers" else _of_slot(name, slot)
                    expected[f"{index} {name}"], found[f"{index} {name}"] = value, said
    return expected, found


def _of_slot(name: str, slot: Slot) -> Any:
    if name in {"current", "successor"}:
        attempt = getattr(slot, name)
        return attempt.number if attempt is not None else None
    value = getattr(slot, name)
    return list(value) if isinstance(value, tuple) else value


def _of_run(name: str, ledger: Ledger, events: list[Event], tick: Tick) -> Any:
    match name:
        case "events":
            return [event["kind"] for event in events]
        case "avoided":
            return list(excluded(ledger.nodes, tick.at))
        case "remembered":
            return [bad.node for bad in ledger.nodes]
        case "over":
            return is_over(ledger, tick.control, tick.limits)
        case "held":
            return bool(is_held(ledger.slots[0], tick.control, tick.limits, tick.at))
        case "saved":
            return [event["checkpoint_step"] for event in events if event["kind"] == "ended"]
        case _:
            return getattr(ledger, name)


def _of_attempt(word: str, attempt: Attempt, place: int) -> tuple[Any, Any]:
    job = attempt.submissions[place] if place < len(attempt.submissions) else None
    name, _, text = word.partition("=")
    if word in _VERDICTS:
        return _VERDICTS[word], attempt.verdict
    if word in {"open", "live"}:
        return True, attempt.verdict is None if word == "open" else bool(attempt.live)
    if word == "ahead":
        return True, attempt.ahead
    if name == "claimed":
        return int(text or 0), [one.token for one in attempt.submissions].index(attempt.claimed_by or "")
    sighting = job.sighting if job is not None else None
    if word in {"running", "waiting"}:
        return word.replace("waiting", "pending"), sighting.state if isinstance(sighting, Seen) else sighting
    if word in {"seen", "unseen", "gone"}:
        kinds = {"seen": Seen, "unseen": Blind, "gone": Gone}
        return kinds[word].__name__, type(sighting).__name__
    if word.isdigit():
        return word, job.job_id if job is not None else None
    if word in {*STATES, "submitted"}:
        states = {"accepted": "submitted", "refused": "not submitted", "over": "ended"}
        return states.get(word, word), job.state if job is not None else None
    for owner in (attempt, job, sighting):
        if owner is not None and hasattr(owner, name):
            value = getattr(owner, name)
            return (value if text.startswith('"~') and text[2:-1] in value else _value(text)), value
    return word, None


def action_text(action: Action) -> str:
    """An action, as a table writes it."""
    slot, attempt = parse_token(action.token) or (0, 0)
    which = f"a{attempt}" if slot == 0 else f"s{slot}a{attempt}"
    match action:
        case Submit():
            more = f" after {action.after}" if action.after else ""
            more += f" avoiding {'+'.join(action.exclude)}" if action.exclude else ""
            return f"submit {which}{more}" + (f" to rung {action.level}" if action.level is not None else "")
        case HandOver():
            return f"hand-over {action.job_id or which}"
        case Cancel():
            return f"cancel {action.job_id}"
        case Abort():
            return f"abort {which}"
