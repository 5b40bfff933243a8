"""An honest contributor whose processor computes otherwise: NumPy and BLAS take the kernels of one without AVX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S
from suites import metaworld, spaces_like

pytest.importorskip("metaworld")


from trainer.config.suites import BENCHMARKS, MT50
from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.sharing.segment import decode
from trainer.sharing.spotcheck import Resimulator

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
#: Kernels that this machine may not have are passed over by NumPy, with a warning.
OLDER = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL",
}
PROGRAM = """
import sys
from pathlib import Path
from segments_of import honest
from trainer.sharing.segment import encode
folder, horizon, tasks = Path(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])
for number, one in enumerate(honest(len(tasks), tasks=tasks, horizon=horizon, num_envs=len(tasks))):
    (folder / str(number)).write_bytes(encode(one))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("tasks", "horizon"), [(BENCHMARKS["MT10"], 100), pytest.param(MT50, 500, marks=pytest.mark.long)],
    ids=["MT10", "MT50"],
)  # fmt: skip
def test_what_it_sends_is_believed(tmp_path, tasks, horizon):
    environment = os.environ | OLDER | {"PYTHONPATH": f"{REPOSITORY}:{SUPPORT}"}
    words = [str(tmp_path), str(horizon), *tasks]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WORK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    referee = Resimulator(metaworld(tasks, seed=42))
    sent = [decode(path.read_bytes(), spaces_like(tasks)) for path in tmp_path.iterdir()]
    assert [gap for one in sent if (gap := BOUNDS.gap(one.obs, one.task))] == []
    found = {one.task: referee.redo(one) for one in sent}
    referee.close()
    assert len(found) == len(tasks)
    assert [one for one in found.values() if one.wrong] == []
