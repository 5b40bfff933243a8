"""A stepper's shared library, as `trainer.machine.building` keeps it. A node without a compiler uses what another node
has built, and the check of every processor type (`verdicts.py`) judges that.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from trainer.envs.suite import StepperUnavailableError
from trainer.machine import building
from trainer.machine.building import Library, NoLibraryError, Recipe

#: Headers for all steppers.
SHARED = Path(__file__).parent
#: No contraction and no `pow` of the compiler's own: each changes last bits.
FLAGS = ("-O2", "-std=gnu11", "-ffp-contract=off", "-fno-fast-math", "-fno-builtin-pow", "-shared", "-fPIC")


def default_folder(sources: Path) -> Path:
    """Where this version's libraries of `sources` are kept: `$XDG_CACHE_HOME/anchorleg/native-…`.

    Errors: StepperUnavailableError where there is no home folder.
    """
    try:
        return building.cache_folder(recipe(sources), "native")
    except NoLibraryError as error:
        raise StepperUnavailableError(str(error)) from error


def find_or_build(sources: Path, folder: Path) -> Library:
    """A library of `sources` (a folder with a stepper.c) that loads here, from `folder` or new.

    Errors: StepperUnavailableError.
    """
    try:
        return building.find_or_build(recipe(sources), folder)
    except NoLibraryError as error:
        raise StepperUnavailableError(str(error)) from error


def recipe(sources: Path) -> Recipe:
    """Of the stepper.c in `sources`. Errors: StepperUnavailableError where MuJoCo is missing."""
    headers = mujoco_folder() / "include"
    return Recipe("stepper", sources, FLAGS, (SHARED,), (headers,), version("mujoco"))


def mujoco_folder() -> Path:
    """Where the `mujoco` package lies; found without importing it. Errors: StepperUnavailableError."""
    spec = find_spec("mujoco")
    if spec is None or not spec.submodule_search_locations:
        raise StepperUnavailableError("mujoco is not installed")
    return Path(spec.submodule_search_locations[0])


def mujoco_library() -> Path:
    """The simulator's own shared library. Errors: StepperUnavailableError."""
    found = [path for pattern in ("libmujoco.so*", "libmujoco*.dylib") for path in mujoco_folder().glob(pattern)]
    if len(found) != 1:
        raise StepperUnavailableError(f"{len(found)} libraries of MuJoCo in {mujoco_folder()}, expected one")
    return found[0]
