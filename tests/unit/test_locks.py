"""What `make` installs: every file has a sum, and its version is that of constraints.txt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.lock"))}
#: A requirement, its marker, and its sums.
ENTRY = re.compile(r"^([a-z0-9-]+)==([^ ;]+)(?: ;[^\n\\]*)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: Path) -> dict[str, set[str]]:
    """Name → versions: one may have several, each for other interpreters."""
    found: dict[str, set[str]] = {}
    for name, version, _ in ENTRY.findall(file.read_text()):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_file_has_a_sum(name: str) -> None:
    assert ENTRY.sub("", LOCKS[name].read_text()) == ""


def test_each_package_is_in_one_lock_and_torch_with_what_only_its_builds_need_lies_apart() -> None:
    assert set(LOCKS) == {"base", "docs", "show", "test", "torch", "trainer", "uv"}
    names = [name for use, lock in LOCKS.items() if use != "docs" for name in locked(lock)]
    assert sorted(names) == sorted(set(names))
    assert all(re.match(r"torch$|triton$|cuda-|nvidia-", name) for name in locked(LOCKS["torch"]))
    assert "torch" in locked(LOCKS["torch"])


def test_the_locks_have_the_versions_of_the_constraints() -> None:
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    all_of_them = {name: versions for lock in LOCKS.values() for name, versions in locked(lock).items()}
    assert {normal(name): all_of_them.get(normal(name)) for name in pins} == {
        normal(name): {version} for name, version in pins.items()
    }


def test_each_use_has_all_that_it_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    base = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    there: set[str] = set()
    needed = {"base": base, "torch": [], "trainer": extras["trainer"], "show": extras["show"], "test": extras["dev"]}
    for lock, wanted in needed.items():
        there |= locked(LOCKS[lock]).keys()
        assert {normal(re.split(r"[<>=\[; ]", one)[0]) for one in wanted} - there == set()


def test_nothing_is_installed_unchecked_but_a_torch_from_elsewhere_and_this_checkout() -> None:
    script = (ROOT / "requirements/install.sh").read_text()
    installs = re.findall(r"^ *(?:pip )?install (-[^\n]*)", script, re.MULTILINE)
    unchecked = [words for words in installs if "--require-hashes --only-binary :all: --no-deps" not in words]
    assert unchecked == [
        '-qq --no-compile "$@"',
        '-c "$here/../constraints.txt" torch',
        '--no-deps --no-build-isolation -e "$here/.."',
    ]
    assert "pip install" not in (ROOT / "Makefile").read_text()
