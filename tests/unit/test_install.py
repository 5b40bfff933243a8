"""What the tests install on a new machine, as tests/real/install.sh says it to an apt that is none."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from daemons import PATIENCE_S

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "tests" / "real" / "install.sh"
#: sudo runs nothing, and writes down what apt-get was to do.
SUDO = '#!/bin/sh\ncase "$*" in *apt-get*) echo "$*" >>"$0.told" ;; esac\n'


def installing(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """It on a machine that has the commands in `path` alone."""
    return subprocess.run(
        ["/bin/sh", str(INSTALL)], env={"PATH": str(path), "SBIN": str(path), **env},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip


def named(words: str) -> set[str]:
    return set(words.partition("not installed:")[2].partition(".")[0].split())


def test_a_new_machine_gets_what_the_image_gets_and_git(tmp_path: Path) -> None:
    image = re.search("packages='(.*)'", (ROOT / "containers" / "install.sh").read_text())
    assert image is not None
    done = installing(tmp_path)
    assert named(done.stderr) >= {*image[1].split(), "git", "rsync", "chromium"}
    assert (done.returncode, installing(tmp_path, CI="true").returncode) == (0, 1)


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """Commands of a machine whose apt knows everything but chromium."""
    programs = {
        "sudo": SUDO,
        "id": "#!/bin/sh\necho 1000\n",
        "apt-get": "#!/bin/sh\n",
        "apt-cache": '#!/bin/sh\n[ "$2" = chromium ] || echo "Package: $2"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_what_apt_does_not_have_is_named_and_the_rest_is_installed(apt: Path) -> None:
    done = installing(apt)
    assert named(done.stderr) == {"chromium"}
    assert (done.returncode, installing(apt, CI="true").returncode) == (0, 1)
    told = (apt / "sudo.told").read_text().splitlines()
    assert ["update" in line.split() for line in told[:3]] == [False, True, False]  # its lists may have been old
    for line in (told[0], told[2]):
        assert {"install", "gcc", "rsync"} <= set(line.split())
        assert "chromium" not in line
