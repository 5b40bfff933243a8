"""`orchestrator` on another machine, as far as it can tell: elsewhere.py HOST TTL WORD…

HOST: this machine's name, for this process alone (it needs root). TTL: seconds for which an owner on another machine
may be silent before it counts as gone; minutes in earnest.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

from orchestrator.cli import main
from orchestrator.run import lease

#: <linux/sched.h>: a host name of one's own.
CLONE_NEWUTS = 0x04000000

if __name__ == "__main__":
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    socket.sethostname(sys.argv[1])
    lease.TTL_S = float(sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    main()
