"""No screen of ours lets a foreign value give orders to a terminal, or begin a line: each string of what is shown is
hostile here.
"""

from __future__ import annotations

import enum
import io
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from rich.console import Console

from anchorleg import output
from anchorleg.words import lines_shown, on_one_line
from orchestrator.commands import screens
from orchestrator.hosts.display import RunDisplay, log_line
from orchestrator.run.rundir import Entry, RunDir
from orchestrator.screens import logs
from orchestrator.screens.explain import Explanation
from orchestrator.screens.goodput import RunGoodput
from orchestrator.screens.runview import RunView
from orchestrator.screens.status import changes, marks
from syncd.commands import service as mirror_status
from syncd.laptop.status import Latency, MirrorView
from syncd.shared.manifest import Score
from trainer.commands import demos
from viewer.lines import AgentLines, agent_line
from viewer.model import PageSnapshot
from viewer.showing import print_lines

#: A title, a cleared screen (by 7 and by 8 bits), a name that runs backwards, nothing seen, a line begun anew, another.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202egnp\u200b\U000e0041\rX\x85Y\nforged"
#: What rich itself writes.
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def hostile(kind: Any) -> Any:
    """A value of a field's type: each string in it is hostile, and nothing is left out."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return hostile(next(one for one in arguments if one is not type(None)))
    if origin is typing.Annotated:
        return hostile(arguments[0])
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return tuple(hostile(one) for one in arguments if one is not ...)
    if origin in {dict, Mapping}:
        return {hostile(arguments[0]): hostile(arguments[1])}
    if kind in {str, Any}:
        return HOSTILE
    if kind is Latency:
        return Latency()
    if kind is Score:
        return Score(step=1, mean_success=1.0, goals_per_task=1)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {name: field for name, field in kind.model_fields.items() if not field.exclude}
        return kind.model_validate({name: hostile(field.annotation) for name, field in fields.items()})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    return kind(kind is not bool)


class Screen(io.BytesIO):
    """Where a command's output goes."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def show(self, act: Callable[[], object]) -> str:
        """What `act` prints here, as a command does."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", "2000")
            self.stream = output._Shown(self, encoding="utf-8", errors="backslashreplace")  # type: ignore[arg-type]
            patch.setattr(sys, "stdout", self.stream)
            act()
            self.stream.flush()
            return self.getvalue().decode()


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def screen(request: pytest.FixtureRequest) -> Screen:
    return Screen(is_terminal=request.param)


def assert_harmless(text: str) -> None:
    rest = STYLE.sub("", text)
    assert {letter for letter in rest if not letter.isprintable()} <= set("\n\t")
    assert [line for line in rest.splitlines() if line.startswith("forged")] == []


#: Of each command: what it gets its view from, of which type, and how it is called.
COMMANDS: dict[str, tuple[str, Any, Callable[..., None]]] = {
    "status": ("orchestrator.screens.reading.run_view", RunView, screens.status),
    "explain": ("orchestrator.screens.explain.explain", Explanation, lambda **more: screens.explain("0", **more)),
    "goodput": ("orchestrator.screens.goodput.goodput_of", RunGoodput, screens.goodput),
    "runs": ("orchestrator.run.rundir.entries", list[Entry], screens.runs),
    "syncd status": ("syncd.laptop.status.read_mirror", MirrorView, mirror_status.status),
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    def command(name: str, *, as_json: bool) -> None:
        place, kind, act = COMMANDS[name]
        value = [hostile(Entry)] if kind == list[Entry] else hostile(kind)
        monkeypatch.setattr(place, lambda *_, **__: value)
        monkeypatch.setattr(screens, "locate", lambda *_: None)
        if name in {"explain", "goodput"}:
            monkeypatch.setattr("orchestrator.screens.reading.run_view", lambda *_, **__: None)
        if name == "status":
            act(as_json=as_json, again=False, price=2.0)
        elif name == "explain":
            act(last=15, as_json=as_json)
        elif name == "syncd status":
            act(folder=tmp_path, as_json=as_json)
        else:
            act(as_json=as_json)

    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_for_people(name: str, screen: Screen, run: Callable[..., None]) -> None:
    assert_harmless(screen.show(lambda: run(name, as_json=False)))


@pytest.mark.parametrize("name", COMMANDS)
def test_its_json_says_the_same_and_is_harmless_too(name: str, screen: Screen, run: Callable[..., None]) -> None:
    text = screen.show(lambda: run(name, as_json=True))
    assert_harmless(text)
    assert {HOSTILE, on_one_line(HOSTILE)} & set(strings(json.loads(text))), "it is shown"


def strings(value: Any) -> Iterator[str]:
    """All strings in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in (*value.keys(), *value.values()):
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def test_what_start_shows_while_it_runs_and_at_its_end(screen: Screen, tmp_path: Path) -> None:
    def start() -> None:
        out = Console(emoji=False, highlight=False)
        display = RunDisplay(RunDir(tmp_path), out)
        display.note(f"job 7 said {HOSTILE}")
        view = hostile(RunView)
        for line in changes(view, {}, marks(view), 3.0):
            display.say(line)

    assert_harmless(screen.show(start))


def test_the_controllers_log(tmp_path: Path) -> None:
    log_line(RunDir(tmp_path), f"trouble: {HOSTILE}")
    assert_harmless((tmp_path / "controller.log").read_text())


def test_a_jobs_output_is_harmless_on_a_terminal_and_as_it_is_in_a_pipe(screen: Screen, tmp_path: Path) -> None:
    printed = b"\x1b[32mgreen\x1b[0m\r\n10 %\r20 %\n" + HOSTILE.encode() + b"\n"
    (tmp_path / "job-1.out").write_bytes(printed)
    text = screen.show(lambda: logs.Printer().show(tmp_path, whole=True))
    if screen.is_terminal:
        assert "\ngreen\n10 %\n20 %\n" in text
        assert {letter for letter in text if not letter.isprintable()} == {"\n"}
    else:
        assert printed in screen.getvalue()


def test_agents_at_play_and_data_sets(screen: Screen, tmp_path: Path) -> None:
    header = {
        "origin": HOSTILE,
        "task": HOSTILE,
        "step": 1,
        "return": 1.0,
        "success": None,
        "facts": {HOSTILE: HOSTILE},
    }
    news, batch = SimpleNamespace(slot=0), SimpleNamespace(header=header, kind="")
    manifest = SimpleNamespace(
        source=SimpleNamespace(licence=HOSTILE, kind="films"), spaces=None, cameras=(HOSTILE,), episodes=(), blocks=(),
        num_frames=1, frame=(3, 64, 64),
    )  # fmt: skip

    def show() -> None:
        lines = AgentLines(SimpleNamespace(enter=lambda: None))  # type: ignore[arg-type]
        lines._once([HOSTILE])
        print(lines_shown([agent_line(news, batch)]))  # type: ignore[arg-type]
        print_lines(SimpleNamespace(look=lambda *_: hostile(PageSnapshot).model_copy(update={"note": ""})), rounds=1)  # type: ignore[arg-type]
        demos._show(SimpleNamespace(folder=tmp_path / HOSTILE, manifest=manifest), as_json=False)  # type: ignore[arg-type]

    assert_harmless(screen.show(show))
