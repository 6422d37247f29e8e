"""Source code that makes a child process die at the n-th time it forces something to disk."""

DIE_AT_FSYNC = """
import os, signal, sys
calls, deadly = 0, int(sys.argv[2])
real = os.fsync
def fsync(descriptor):
    global calls
    calls += 1
    if calls == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
"""
