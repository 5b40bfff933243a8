"""What may be stepped natively here: that whose every bit was the Python path's, on this type of processor.

The verdicts are kept beside the library, one file a library, processor type, set of versions and Python code of the
suite and of what all suites share.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, get_args

from anchorleg.files import read_json_or_none, write_json
from trainer.envs.suite import StepperChoice, StepperUnavailableError
from trainer.state import State

_HERE = Path(__file__).parent
_log = logging.getLogger(__name__)


class Judged(Protocol):
    """A library: where it is kept, and what names its build, the processor and how that computes."""

    folder: Path
    digest: str
    machine: str


def approved(
    library: Judged, names: Sequence[str], packages: Sequence[str], suite: Path, steps_alike: Callable[[str], bool]
) -> frozenset[str]:
    """Those of `names` that step alike on both paths; unknown ones are tried, the others are logged.

    `packages`: those whose version may change a bit of a step. `suite`: the folder of the suite's Python code.
    """
    path = verdict_file(library, packages, suite)
    kept = read_json_or_none(path)
    known: dict[str, Any] = kept if isinstance(kept, dict) else {}
    missing = [name for name in names if not isinstance(known.get(name), bool)]
    if missing:
        known = {**known, **{name: steps_alike(name) for name in missing}}
        try:
            write_json(path, known)
        except OSError as error:
            _log.debug("verdicts of the C stepper could not be stored: %s", error)
    refused = sorted(name for name in names if not known[name])
    if refused:
        _log.warning("the C stepper differs from Python here for %s: Python steps these", ", ".join(refused))
    return frozenset(name for name in names if known[name])


def verdict_file(library: Judged, packages: Sequence[str], suite: Path) -> Path:
    """Where they are kept."""
    name = " ".join([library.digest, library.machine, *map(version, packages), code_digest(suite, _HERE.parent)])
    return library.folder / f"checked-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def code_digest(suite: Path, envs: Path) -> str:
    """Of all Python files of a suite, and of those that all suites share."""
    digest = hashlib.sha256()
    for folder, found in ((suite, suite.rglob("*.py")), (envs, (*envs.glob("*.py"), *envs.glob("native/*.py")))):
        for path in sorted(found):
            digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def none_natively(choice: StepperChoice, why: str) -> frozenset[int]:
    """No task is stepped natively. Errors: ValueError for an unknown `choice`; StepperUnavailableError with `why` where
    it is "native".
    """
    if choice not in get_args(StepperChoice):
        raise ValueError(_no_choice(choice))
    if choice == "native":
        raise StepperUnavailableError(why)
    return frozenset()


def chosen(
    choice: StepperChoice, names: Sequence[str], judge: Callable[[Sequence[str]], frozenset[str]]
) -> frozenset[str]:
    """Those of `names`, all ported, that are stepped natively. The first use on a machine compiles and checks.

    Errors: ValueError for an unknown `choice`; StepperUnavailableError where it is "native" and there is no compiler,
    say; with "auto" that is one line of the log.
    """
    if choice not in get_args(StepperChoice):
        raise ValueError(_no_choice(choice))
    if choice == "python" or not names:
        return frozenset()
    try:
        return judge(names)
    except StepperUnavailableError as error:
        if choice == "native":
            raise
        _log.warning("environments step in Python, several times slower: %s", error)
        return frozenset()


def are_same(one: State, other: State) -> bool:
    """Whether two states of environments have the same bits."""
    arrays = [{name: array.tobytes() for name, array in state.tensors.items()} for state in (one, other)]
    return one.numbers == other.numbers and arrays[0] == arrays[1]


def _no_choice(choice: str) -> str:
    return f"the stepper is {choice!r}; it can be {', '.join(get_args(StepperChoice))}"
