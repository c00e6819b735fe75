#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command on a terminal of its own, prints what it draws, ends as it does.

    on_terminal.py COLUMNSxROWS COMMAND...
    on_terminal.py COLUMNSxROWS --interrupt REGEX COMMAND...

The second one presses Ctrl-C when all that was drawn matches.  Control sequences and
carriage returns are left out of what is printed; one that goes home begins a new picture,
with a line "--- picture".  128 + N: a signal ended it; 124: not within 60 s.
"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

LIMIT_S = 60


def plain(drawn):
    drawn = drawn.replace("\r", "").replace("\033[H", "--- picture\n")
    return re.sub(r"\033\[[?0-9;]*[A-Za-z]", "", drawn)


def follow(master, until):
    """Prints what is drawn, line by line, until the end; False: it takes too long."""
    drawn, printed, end = b"", 0, time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            more = os.read(master, 65536)
        except OSError:         # the last one that had it open is gone
            more = b""
        drawn += more or b"\n"
        text = plain(drawn[:drawn.rfind(b"\n") + 1].decode("utf-8"))
        print(text[printed:], end="", flush=True)
        printed = len(text)
        if not more:
            return True
        if until and re.search(until, text):
            os.write(master, b"\3")
            until = None
    return False


def main():
    columns, rows = (int(n) for n in sys.argv[1].split("x"))
    command, until = sys.argv[2:], None
    if command[0] == "--interrupt":
        until, command = command[1], command[2:]
    pid, master = pty.fork()
    if pid == 0:
        # before the command looks: the child has the other end as its standard output
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execvp(command[0], command)
    if not follow(master, until):
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        sys.exit(124)
    _, status = os.waitpid(pid, 0)
    sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
