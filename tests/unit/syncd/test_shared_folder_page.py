"""The section on the shared folder says what the code does."""

from __future__ import annotations

from pathlib import Path

from syncd.shared import inbox, retention
from syncd.shared.curves import CHUNK_ROWS
from syncd.shared.layout import Shared, Version
from syncd.shared.retention import AVERAGES, LEARNERS, MIRRORS

PAGE = (Path(__file__).parents[3] / "docs/laptops.md").read_text(encoding="utf-8").split("## The shared folder")[1]
DAY = 86_400


def test_a_manifest_lies_where_the_page_says():
    assert f"manifests/{Shared(Path('$SHARED')).slot('run', 0).manifest(Version(3, 17)).name} " in PAGE
    assert str(Version(3, 17)) == "3-17"


def test_every_number_in_it_is_the_codes():
    most = inbox.InboxLimits()
    numbers = [
        f"{CHUNK_ROWS} rows a file",
        f"the newest {LEARNERS.newest}, and one a minute per attempt of the last {LEARNERS.thinned_s / 3600:.0f} hours",
        f"the newest {AVERAGES.newest}, and one every ten minutes of the last {AVERAGES.thinned_s / 3600:.0f} hours",
        f"the newest {MIRRORS.newest} |",
        f"{retention.WAITING_S / DAY:.0f} days, then quarantine",
        f"at most {most.waiting_segments:,} and {most.waiting_bytes // 2**20} MiB a contributor",
        f"{inbox.MAX_SEGMENT_BYTES // 2**20} MiB each",
        f"{retention.QUARANTINE_S / DAY:.0f} days; at most {most.quarantined:,} segments",
        f"{most.quarantined_bytes // 2**20} MiB a contributor, oldest first",
        f"{retention.ACCEPTED_S / DAY:.0f} days if none comes",
        f"{retention.VERDICT_S / DAY:.0f} days if it does not come, the newest {most.verdicts_kept:,}",
    ]
    assert [number for number in numbers if number not in PAGE] == []
    assert (LEARNERS.every_s, AVERAGES.every_s) == (60, 600)  # "one a minute", "one every ten minutes"
