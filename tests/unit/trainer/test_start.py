"""What a job does not import before its first update."""

from __future__ import annotations

import subprocess
import sys

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")
pytestmark = pytest.mark.trainer

SCRIPT = """
import sys, torch
from trainer.machine.device import set_deterministic
set_deterministic(1)
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.AdamW([parameter], fused=True)
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


def test_an_optimizer_brings_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.split() == ["False"]
