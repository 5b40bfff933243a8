"""The page on the shared folder says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from anchorleg.files import LEFT_BEHIND_S
from syncd.shared import inbox, retention
from syncd.shared.curves import CHUNK_ROWS
from syncd.shared.layout import Shared
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest
from syncd.shared.retention import AVERAGES, LEARNERS, MIRRORS, UNLISTED_S

PAGE = (Path(__file__).parents[3] / "docs/shared-folder.md").read_text(encoding="utf-8")
DAY = 86_400


def example() -> Manifest:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return parse_manifest(text.encode())  # whole, or it raises


def test_its_manifest_is_one_and_lies_where_the_page_says():
    manifest = example()
    place = Shared(Path("$SHARED")).slot(manifest.run_id, manifest.slot)
    assert f"manifests/{place.manifest(manifest.version).name} " in PAGE
    assert str(manifest.version) == "3-17"


def test_every_number_in_it_is_the_codes():
    most = inbox.InboxLimits()
    numbers = [
        f"{CHUNK_ROWS} rows a file",
        f"the newest {LEARNERS.newest}, and of the last {LEARNERS.thinned_s / 3600:.0f} hours",
        f"versions, in `$SHARED` | the newest {AVERAGES.newest}, and of the last {AVERAGES.thinned_s / 3600:.0f} hours",
        f"the newest {MIRRORS.newest} |",
        f"{MAX_MANIFEST_BYTES // 1024} KiB is the most",
        f"{retention.WAITING_S / DAY:.0f} days, then quarantine",
        f"at most {most.waiting_segments:,} and {most.waiting_bytes // 2**20} MiB a contributor",
        f"{inbox.MAX_SEGMENT_BYTES // 2**20} MiB each",
        f"{retention.QUARANTINE_S / DAY:.0f} days; at most {most.quarantined:,} segments",
        f"{most.quarantined_bytes // 2**20} MiB a contributor, oldest first",
        f"{retention.ACCEPTED_S / DAY:.0f} days if none comes",
        f"{retention.VERDICT_S / DAY:.0f} days if it does not come, the newest {most.verdicts_kept:,}",
    ]
    assert [number for number in numbers if number not in PAGE] == []
    assert (LEARNERS.every_s, UNLISTED_S, AVERAGES.every_s) == (60, 600, 600)  # "one a minute", "ten minutes"
    assert LEFT_BEHIND_S == 600  # "goes after ten minutes"


def test_every_field_of_a_manifest_has_its_row():
    rows = set(re.findall(r"`(\w+)`", PAGE.split("| field | meaning |")[1].split("\n\n")[0]))
    assert set(Manifest.model_fields) - rows == {"run_id", "run_name", "slot", "format"}
