"""`trainer live` as far as the viewer knows it: writes a ring into the folder until its standard input closes.

`python fake_player.py live SHARED RUN SLOT --ring FOLDER --lane LANE`; with `FAKE_PLAYER=deaf` it hears of no end, with
`FAKE_PLAYER=dies` it says why and ends; with `FAKE_PLAYER=short` an episode has five batches, with `FAKE_PLAYER=facts`
there is nothing to draw.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_agents import FakeAgent, swing


def main() -> int:
    """To the end of its input."""
    words = sys.argv[1:]
    assert words[0] == "live"
    folder, lane = Path(words[words.index("--ring") + 1]), words[words.index("--lane") + 1]
    mode = os.environ.get("FAKE_PLAYER", "")
    if mode == "dies":
        print("Traceback\n  nonsense\ntrainer: slot 3 has published no policy.", file=sys.stderr)
        return 8
    over = threading.Event()
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    agent, k = FakeAgent(folder, lane), 0
    while not over.is_set():
        more = {"episode": k // 30} if mode == "short" else {}
        if mode == "facts":
            agent.facts(slot=words[3])
        else:
            facts = {"slot": words[3], "policy": "1-4"}
            agent.pose(*(swing(k + i) for i in range(6)), origin="played here", attempt=0, facts=facts, **more)
        k += 6
        over.wait(0.1) if mode != "deaf" else time.sleep(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
