#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts bytes that are no frame on the links of a daemon, in the place of its own.

	trouble_inject.py PID PORT

Process PID's TCP connections to or from PORT get 64 bytes each; "on COUNT links" is printed.  Says
"cannot" and ends with status 77 where nobody may take another one's descriptors.
"""
import ctypes
import errno
import os
import socket
import sys

PIDFD_GETFD = 438       # the system call's number
BYTES = b"\xa5" * 64


def sockets(pid, port):
    libc, pidfd = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    for entry in os.listdir(f"/proc/{pid}/fd"):
        fd = libc.syscall(PIDFD_GETFD, pidfd, int(entry), 0)
        error = 0 if fd >= 0 else ctypes.get_errno()
        if error == errno.EBADF:
            continue            # closed meanwhile
        if error:
            print("cannot", os.strerror(error), flush=True)
            sys.exit(77)
        if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            os.close(fd)
            continue
        s = socket.socket(fileno=fd)
        try:
            if s.family != socket.AF_UNIX and port in (s.getpeername()[1], s.getsockname()[1]):
                yield s
        except OSError:
            pass                # it listens


def main():
    print("on", sum(s.send(BYTES) == len(BYTES) for s in sockets(*map(int, sys.argv[1:3]))),
          "links", flush=True)


main()
