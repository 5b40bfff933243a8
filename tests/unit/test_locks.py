"""What `make` installs: every file has a sum, and its version is that of constraints.txt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK, TORCH_LOCK = ROOT / "requirements.lock", ROOT / "requirements-torch.lock"
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


@pytest.mark.parametrize("file", [LOCK, TORCH_LOCK], ids=lambda file: file.name)
def test_every_file_has_a_sum(file: Path) -> None:
    assert ENTRY.sub("", file.read_text()) == ""


def test_torch_and_what_only_its_builds_need_lie_apart() -> None:
    assert all(re.match(r"torch$|triton$|cuda-|nvidia-", name) for name in locked(TORCH_LOCK))
    assert not locked(TORCH_LOCK).keys() & locked(LOCK).keys()
    assert "torch" in locked(TORCH_LOCK)


def test_the_locks_have_the_versions_of_the_constraints() -> None:
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    both = locked(LOCK) | locked(TORCH_LOCK)
    assert {normal(name): both.get(normal(name)) for name in pins} == {
        normal(name): {version} for name, version in pins.items()
    }


def test_all_that_a_checkout_needs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["project"]["dependencies"],
        *extras["trainer"],
        *extras["dev"],
        *project["build-system"]["requires"],
    ]
    names = {normal(re.split(r"[<>=\[; ]", requirement)[0]) for requirement in wanted}
    assert names - locked(LOCK).keys() - locked(TORCH_LOCK).keys() == set()


def test_nothing_is_installed_unchecked_but_a_torch_from_elsewhere() -> None:
    installs = re.findall(r"\$\(PIP\) install ([^\n]*)", (ROOT / "Makefile").read_text())
    unchecked = [words for words in installs if not words.startswith("$(CHECKED)")]
    assert [words.rstrip("; \\") for words in unchecked] == [
        "--quiet -c constraints.txt torch",
        "--quiet --no-deps --no-build-isolation -e .",
    ]
