"""Runs a command that Linux kills when its worker ends, however that ends: no run outlives its worker.

    python train/sweep/lifeline.py PID COMMAND ARGUMENT ...

PID is the worker's. It is a separate program because a process that has threads, as Optuna's heartbeat is one, must
not run Python between fork and exec.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of the kernel's prctl.h; the setting outlives exec

# Run by its path and never imported, so it is no command with flags.
worker, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(worker):  # it has ended already
        sys.exit(1)
os.execvp(command[0], command)
