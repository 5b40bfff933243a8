"""What a laptop meets and gives once more, by tests that run as an ordinary user from end to end: root may do what a
file's mode forbids.

What a restricted key can do is attacked at an ordinary account's sshd anyway (`test_gate_attacks.py` and its
neighbours), and what needs several accounts is in `test_own_accounts.py`.
"""

from __future__ import annotations

import pytest
from accounts import REPOSITORY, Account
from daemons import WORK_S
from needs import need

pytestmark = pytest.mark.long
#: File → which of its tests.
FILES = {
    **dict.fromkeys(("test_hostile_server", "test_client_ssh", "test_transports", "test_ways"), "not long and not gpu"),
    "test_laptops": "not gpu",
}


@pytest.mark.parametrize("file", FILES)
def test_the_same_holds_for_an_ordinary_user(ordinary_account: Account | None, file: str) -> None:
    need("root, which becomes another account", [] if ordinary_account else ["root"])
    assert ordinary_account is not None
    settings, path = REPOSITORY / "pyproject.toml", REPOSITORY / "tests" / "real" / f"{file}.py"
    # CI: a part that is missing is a failure, and no skip.
    done = ordinary_account.run(
        "env", "CI=true", str(ordinary_account.python), "-m", "pytest", "--color=no", "-m", FILES[file],
        "--rootdir", str(REPOSITORY), "-c", str(settings), str(path), timeout_s=WORK_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
