"""The tests on a real Slurm, once more on those of later Debians, beside this machine's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import LONG_S
from debian_root import ROOT, SLURM, debian_root, entering

pytestmark = pytest.mark.long

#: What is asked of Slurm in each way that the executor asks.
ASKED = ("slurm_executor", "relay_slurm", "alternatives_slurm")
#: Debian 13 has Slurm 24.11; the other one's grows older with the time.
WORLDS = {
    "trixie": (*ASKED, "packed_slurm", "walltime", "faults_nodes", "doctor_slurm"),
    "forky": ASKED,
}
#: They have no database for slurmdbd.
UNLESS = "not history and not wrappers and not limits_of_the_user"


@pytest.mark.parametrize("suite", WORLDS)
def test_the_relay_holds_on_another_slurm(suite: str) -> None:
    root, venv = debian_root(suite, SLURM), Path(sys.prefix)
    same = {folder: str(folder) for folder in (Path(sys.base_prefix), venv, ROOT)}
    path = f"PATH={venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    files = [f"tests/real/test_{name}.py" for name in WORLDS[suite]]
    pytest_words = ["python", "-m", "pytest", "-q", "-rs", "-n2", "-m", "slurm", "-k", UNLESS, "-p", "no:cacheprovider"]
    words = [path, "LANG=C.UTF-8", "OMP_NUM_THREADS=1", "env", "-C", str(ROOT), *pytest_words, *files]
    done = subprocess.run(entering(root, same, words), capture_output=True, text=True, timeout=LONG_S, check=False)
    version = subprocess.run(
        entering(root, {}, ["/usr/sbin/slurmctld", "-V"]), capture_output=True, text=True, timeout=LONG_S, check=True
    ).stdout
    assert not re.match(r"slurm\S* 22\.", version), version
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]
