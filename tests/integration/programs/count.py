"""Count to argv[1]. Somebody else's program: it knows files, environment variables and exit codes, nothing more.

Where there is a file `data/held`, no slot counts beyond the number in it until the test changes or removes it. A job
that is not held counts five steps before it hands over: so short jobs come to an end on a slow machine, too. Where its
settings have a "score", it reports that.
"""

import json
import os
import sys
import time
from pathlib import Path

here, slot, attempt = (os.environ[f"ANCHORLEG_{name}"] for name in ("ATTEMPT_DIR", "SLOT", "ATTEMPT"))
parent, hand_over = os.environ["ANCHORLEG_PARENT"], Path(os.environ["ANCHORLEG_HANDOVER_FILE"])
total, pace_s = int(sys.argv[1]), float(Path("data/pace.txt").read_text())
deaf = "deaf" in sys.argv  # to every request; saves now and then instead
hungry = "hungry" in sys.argv and attempt == "0"  # takes more memory than it asked for, in its first attempt
settings = json.loads(Path(os.environ["ANCHORLEG_CONFIG"]).read_text())
told = {"score": settings["score"]} if "score" in settings else {}
first = n = saved = int(Path(parent, "n").read_text()) if parent else 0
os.makedirs(f"{here}/checkpoints", exist_ok=True)


def report():
    Path(here, "progress.tmp").write_text(json.dumps({"step": n, "total": total, "checkpoint_step": saved, **told}))
    os.replace(f"{here}/progress.tmp", f"{here}/progress.json")


def save():
    if f"{n}" not in os.listdir(f"{here}/checkpoints"):
        os.mkdir(f"{here}/checkpoints/new")
        Path(here, "checkpoints/new/n").write_text(str(n))
        os.rename(f"{here}/checkpoints/new", f"{here}/checkpoints/{n}")
    return n


def is_held():
    try:
        return n >= int(Path("data/held").read_text())
    except FileNotFoundError:
        return False


while n < total and (deaf or not hand_over.exists() or (n < first + 5 and not is_held())):
    time.sleep(pace_s)
    if is_held():
        continue
    n += 1
    with open("journal.txt", "a") as journal:
        journal.write(f"{slot} {attempt} {n}\n")
    if hungry and n >= 40:
        hog = bytearray(b"x") * (400 << 20)
        time.sleep(600)
    if deaf and n % 100 == 0:
        saved = save()
    report()
saved = save()
report()
sys.exit(75 if n < total else 0)
