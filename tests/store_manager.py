#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service manager with a descriptor store, as systemd's: it runs a daemon, keeps what that
gives it, and starts it again with that whenever it ends.

	store_manager.py SOCKET FILE COMMAND...

SOCKET is the daemon's NOTIFY_SOCKET; FILE always has two numbers: the daemon's process, and how
many descriptors are kept.  SIGTERM ends both.
"""
import array
import ctypes
import os
import select
import signal
import socket
import sys

ROOM = 253		# descriptors of a datagram
KCMP = {"x86_64": 312}.get(os.uname().machine, 272)
KCMP_FILE = 0


def is_same(a, b):
    """The same open file, as systemd asks."""
    me = os.getpid()
    return ctypes.CDLL(None).syscall(KCMP, me, me, KCMP_FILE, a, b) == 0


class Manager:
    def __init__(self, path, shown, command):
        self.shown, self.command, self.kept, self.pid = shown, command, [], 0
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(path)
        self.path = path

    def show(self):
        with open(self.shown + ".new", "w") as f:
            f.write(f"{self.pid} {len(self.kept)}\n")
        os.rename(self.shown + ".new", self.shown)

    def start(self):
        env = dict(os.environ, NOTIFY_SOCKET=self.path)
        if self.kept:
            env |= {"LISTEN_FDS": str(len(self.kept)),
                    "LISTEN_FDNAMES": ":".join(name for name, _ in self.kept)}
        self.pid = os.fork()
        if self.pid:
            self.show()
            return
        if self.kept:
            env["LISTEN_PID"] = str(os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        high = [os.dup2(fd, 1000 + i) for i, (_, fd) in enumerate(self.kept)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
        os.closerange(3 + len(high), 3000)
        os.execvpe(self.command[0], self.command, env)

    def hear(self):
        data, ancillary, _, _ = self.ear.recvmsg(4096, socket.CMSG_SPACE(4 * ROOM))
        fds = array.array("i")
        for _, _, raw in ancillary:
            fds.frombytes(raw)
        said = dict(line.split("=", 1) for line in data.decode().splitlines())
        name = said.get("FDNAME", "stored")
        if "FDSTORE" in said:
            self.kept += [(name, os.dup(fd)) for fd in fds
                          if not any(is_same(fd, k) for _, k in self.kept)]
        if "FDSTOREREMOVE" in said:
            for _, fd in [k for k in self.kept if k[0] == name]:
                os.close(fd)
            self.kept = [k for k in self.kept if k[0] != name]
        for fd in fds:
            os.close(fd)
        self.show()

    def run(self):
        ends = {signal.SIGCHLD, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        struck, strike = os.pipe()
        os.set_blocking(strike, False)
        for number in ends:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(strike)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)
        try:                    # a daemon does not wait long for its answer
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        except PermissionError:
            pass
        self.start()
        while True:
            ready = select.select([self.ear, struck], [], [])[0]
            if self.ear in ready:
                self.hear()
            elif os.read(struck, 1)[0] == signal.SIGTERM:
                os.kill(self.pid, signal.SIGTERM)
                os.waitpid(self.pid, 0)
                return
            elif os.waitpid(self.pid, os.WNOHANG)[0]:
                self.start()


Manager(sys.argv[1], sys.argv[2], sys.argv[3:]).run()
