"""What others wrote lies here as they released it, with its licence beside it, and nothing else lies there."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

from viewer.server.http import FILES, STATIC

ROOT = Path(__file__).parents[3]
VENDOR = STATIC / "vendor"
LIST = json.loads((VENDOR / "vendored.json").read_text())


def test_every_file_has_the_sum_of_its_release() -> None:
    sums = {name: sha256 for part in LIST for name, sha256 in part["files"].items()}
    here = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.suffix != ".json"
    }
    assert here == sums


def test_every_part_has_its_licence_and_the_package_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all(any(name.endswith(".LICENSE") for name in part["files"]) for part in LIST)
    assert {part["license"] for part in LIST} | {"MIT"} == set(project["license"].split(" AND "))
    named = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert named == {ROOT / "LICENSE", *VENDOR.glob("*.LICENSE")}


def test_the_page_serves_all_of_it_but_the_licences() -> None:
    served = {name.removeprefix("vendor/") for name in FILES if name.startswith("vendor/")}
    assert served == {name for part in LIST for name in part["files"] if not name.endswith(".LICENSE")}
