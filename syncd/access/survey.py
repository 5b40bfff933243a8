"""What the other side has: its shared folder, its `syncd`. A line for its shell, and what the answer means. Pure.

A login may print anything before our answer, so that every line of ours begins with a mark.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncd.errors import RemoteError
from syncd.remote import is_absolute_path
from syncd.transports.openssh import EXIT_NOT_FOUND

_MARK = "anchorleg-survey:"
#: Not with `echo`: dash's turns the \n in a JSON text into a new line.
_SAY = f'say() {{ printf "%s\\n" "{_MARK}$1:$2"; }}'
#: Folders with our programs, in the order of preference: those below the run folder, then those at people's homes.
_BELOW = ("$p/.venv/bin", "$p/../.venv/bin", "$p/../../.venv/bin", "$p/../../../.venv/bin")
_HOMES = (
    "$HOME/.venv/bin", "$HOME/venv/bin", "$HOME/anchorleg/.venv/bin", "$HOME/anchorleg/bin", "$HOME/.local/bin",
    "$HOME/miniconda3/bin", "$HOME/miniforge3/bin", "$HOME/anaconda3/bin",
)  # fmt: skip
#: run.json's "python": "/…/bin/python", as sed finds it.
_PYTHON = r"""'s/.*"python": *"\(\/[^"]*\)".*/\1/p'"""
#: Where `setup` proposes to install, if nothing is there: the place that it looks into first of all homes.
INSTALL_PLACE = "~/anchorleg"
#: And where the source goes for that, from the account's home.
_SOURCE_PLACE = "anchorleg-source"


@dataclass(frozen=True)
class Findings:
    """`shared`: the shared folder, absolute. `command`: `syncd` there, absolute, None where none was found.

    `has_policies`: whether a run has published into it already.
    """

    shared: str
    command: str | None
    has_policies: bool


def question(path: str) -> str:
    """One line for any shell over there (csh too), about `path` as the user gave it."""
    script = "; ".join(
        [
            *_about(path),
            _SAY,
            'say home "$HOME"',
            'if [ -d "$p" ]; then say path "$(cd "$p" && pwd)"; fi',
            'if [ -d "$p/v1" ]; then say is shared; elif [ -d "$p/shared/v1" ]; then say is parent; fi',
            'if [ ! -f "$f" ] && [ ! -d "$p/v1" ] && [ ! -d "$p/shared" ] && ls "$p" | grep -q .; then say other; fi',
            'for d in "$p/v1/runs" "$p/shared/v1/runs"; do if [ -d "$d" ]; then say runs "$d"; fi; done',
            'if [ -n "$r" ]; then say run "$r"; fi',
            'if [ -x "$b/syncd" ]; then say syncd "$b/syncd"; fi',
            'c=$("${SHELL:-sh}" -lc "command -v syncd" 2> /dev/null < /dev/null | tail -n 1)',
            'case "$c" in /*) say syncd "$c" ;; esac',
            f'for d in {_quoted(_BELOW)}; do if mine "$d" syncd; then say syncd "$d/syncd"; fi; done',
            f'for d in {_quoted(_HOMES)}; do if [ -x "$d/syncd" ]; then say syncd "$(cd "$d" && pwd)/syncd"; fi; done',
        ]
    )
    return f"exec sh -c {shlex.quote(script)}"


def _about(path: str) -> list[str]:
    """How lines about `path` begin. `$p`: the absolute path. `$r`: the text of its run.json, `$b`: the folder of the
    interpreter that this names, which has programs of the run's version; both empty without one of this account's own.
    `mine FOLDER NAME`: whether the folder and the program in it are this account's; `$d` is then where it really is.

    The owner of the folder at `path` may be a stranger, who names no program that this account would run.
    """
    return [
        f"p={shlex.quote(path)}",
        'case "$p" in /*) ;; *) p="$HOME/$p" ;; esac',
        'r=""; f="$p/run.json"; if [ ! -f "$f" ]; then f="$p/../run.json"; fi',
        # Opened first, then looked at and read: a link that is put there meanwhile changes nothing.
        'if [ -f "$f" ]; then { if [ -O /dev/fd/3 ]; then r=$(tr -d "\\n" <&3); fi; } 2> /dev/null 3< "$f"; fi',
        f'b=$(printf %s "$r" | sed -n {_PYTHON}); b="${{b%/*}}"',
        'mine() { d=$(cd -P "$1" 2> /dev/null && pwd -P) && [ -O "$d" ] && [ -O "$d/$2" ] && [ -x "$d/$2" ]; }',
    ]


def _quoted(places: Sequence[str]) -> str:
    return " ".join(f'"{place}"' for place in places)


def program_line(name: str, path: str, words: Sequence[str]) -> str:
    """One line for any shell over there that becomes our program `name` with `words`: that of the run at `path`, which
    is of its version, else the one on its PATH, else one at a usual place. 127 where there is none.
    """
    script = "; ".join(
        [
            *_about(path),
            f'go() {{ c="$1/{name}"; shift; if [ -x "$c" ]; then exec "$c" "$@"; fi; }}',
            'go "$b" "$@"',
            f'c=$(command -v {name}); case "$c" in /*) go "${{c%/*}}" "$@" ;; esac',
            f'c=$("${{SHELL:-sh}}" -lc "command -v {name}" 2> /dev/null < /dev/null | tail -n 1)',
            'case "$c" in /*) go "${c%/*}" "$@" ;; esac',
            f'for d in {_quoted(_BELOW)}; do if mine "$d" {name}; then go "$d" "$@"; fi; done',
            f'for d in {_quoted(_HOMES)}; do go "$d" "$@"; done',
            f'echo "{name} was found neither on PATH nor at a usual place" >&2',
            f"exit {EXIT_NOT_FOUND}",
        ]
    )
    return f"exec sh -c {shlex.join([script, name, *words])}"


def marked(answer: str) -> dict[str, list[str]]:
    """What a question's lines said: name → values, whatever a login printed between them."""
    found: dict[str, list[str]] = {}
    for line in answer.splitlines():
        if line.startswith(_MARK):
            name, _, value = line.removeprefix(_MARK).partition(":")
            found.setdefault(name, []).append(value)
    return found


def findings(answer: str, asked: str, command: str | None = None) -> Findings:
    """What the other side answered. `asked`: the path of the question; `command`: the user knows where syncd is.

    Whatever answers may lie: a path of it is a path, and a program that it names is called `syncd`.
    Errors: RemoteError where the folder is not there, or is another one; or the shell did not answer.
    """
    found = marked(answer)
    if "home" not in found:
        raise RemoteError("survey.no-shell")
    path = next(iter(found.get("path", [])), "")
    if not path:
        raise RemoteError("survey.no-folder", path=asked, home=found["home"][0])
    if "other" in found:  # an empty one may become a shared folder
        raise RemoteError("survey.no-run", path=path)
    shared = _shared(found, path, _run(next(iter(found.get("run", [])), "")))
    if not is_absolute_path(shared):
        raise RemoteError("survey.relative-folder", path=shared[:200])
    named = [each for each in found.get("syncd", []) if is_absolute_path(each) and posixpath.basename(each) == "syncd"]
    return Findings(shared=shared, command=command or next(iter(named), None), has_policies="runs" in found)


def _shared(found: dict[str, list[str]], path: str, run: dict[str, Any]) -> str:
    kind = next(iter(found.get("is", [])), "")
    if kind == "shared":
        return path
    if kind == "parent":
        return posixpath.join(path, "shared")
    config = run.get("config")
    if isinstance(config, dict) and posixpath.basename(path) != "shared":  # a run folder before its first policy
        collaboration = config.get("collaboration")
        named = collaboration.get("shared_dir") if isinstance(collaboration, dict) else None
        if isinstance(named, str):
            if named.startswith("~/"):
                named = posixpath.join(found["home"][0], named[2:])
            return posixpath.normpath(posixpath.join(str(run.get("folder", path)), named))
        return posixpath.join(path, "shared")
    return path


def _run(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def how_to_install(account: str) -> dict[str, str]:
    """The commands that bring `syncd` there: `copy` and `install`."""
    here = Path(__file__).parents[2]
    checkout = shlex.quote(str(here)) if (here / "pyproject.toml").exists() else "CHECKOUT"
    account = shlex.quote(account)
    copy = f"rsync -a --exclude .git --exclude .venv --exclude runs {checkout}/ {account}:{_SOURCE_PLACE}/"
    install = f"python3 -m venv {INSTALL_PLACE} && {INSTALL_PLACE}/bin/pip install ./{_SOURCE_PLACE}"
    return {"copy": copy, "install": f"ssh {account} '{install}'"}
