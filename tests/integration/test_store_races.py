"""A reader beside a writer that publishes as fast as it can: never a torn policy."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S, wait_for
from policies import RUN, a_draft, tensors

from syncd import store
from syncd.shared.layout import Shared
from syncd.shared.retention import Keep

REPOSITORY = Path(__file__).parents[2]

READER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from syncd import store
    place = store.Shared(Path(sys.argv[1])).slot("demo-0123abcd", 0)
    marks = open(sys.argv[3], "ab", buffering=0)
    last = (-1, -1)
    while last[1] < int(sys.argv[2]) - 1:
        manifest = store.newest(place)
        if manifest is None:
            continue
        assert manifest.version >= last, (manifest.version, last)
        if manifest.version > last:
            marks.write(b".")
            weights = store.read(place, manifest)  # raises where it is torn, or gone
            assert float(weights["out.bias"][0]) == float(manifest.golden.action[0][0]), manifest.version
        last = manifest.version
    """
)


def races(tmp_path, publications):
    """A reader in a process of its own beside a writer that publishes as fast as it can and clears away, and waits now
    and then until another version was read: how many are read between is the machine's affair.
    """
    shared = Shared(tmp_path)
    place = shared.slot(RUN, 0)
    marks = tmp_path / "marks"  # one for each version that the reader found
    marks.touch()
    command = [sys.executable, "-c", READER, str(tmp_path), str(publications), str(marks)]
    waits = (0, publications // 3, publications // 2)

    def has_read_more(found):
        return marks.stat().st_size > found or reader.poll() is not None

    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        try:
            for seq in range(publications):
                mark = float(store.rounded({"x": np.float32([seq])})["x"][0])  # weights and manifest say the same
                draft = a_draft(place, 0, seq)
                golden = draft.golden.model_copy(update={"action": ((mark, 0.0, 0.0, 0.0),)})
                weights = tensors(seq) | {"out.bias": np.full(8, mark, np.float32)}
                found = marks.stat().st_size
                store.publish(place, draft.model_copy(update={"golden": golden}), store.rounded(weights))
                if seq in waits:
                    wait_for(partial(has_read_more, found), "another version that is read")
                if seq % 50 == 0:
                    assert store.collect(place, now=time.time(), keep=Keep(newest=5)) == []
            _, errors = reader.communicate(timeout=PATIENCE_S)
        finally:
            reader.kill()  # where the writer failed it would read for ever
    assert reader.returncode == 0, errors


@pytest.mark.long
def test_ten_thousand_publications_are_never_torn(tmp_path):
    races(tmp_path, 10_000)
