#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speaks nonsense to a daemon, in every way there is.

	trouble_garbage.py control|data PATH|HOST:PORT [ROUNDS]

control: a port or socket that takes messages (docs/PROTOCOL.md section 3), data:
one that takes frames (section 1).  Each bad connection must be closed by the
daemon: the fast ones at once, those that say nothing or stop in the middle within
SLOW seconds.  Exit status 1 and a line where one was not.
"""
import random
import socket
import struct
import sys
import time

SLOW = 9        # HANDSHAKE_MS, and as long again for the answer, and a busy machine
FAST = 5


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(version=1, kind=1, node=1, key=(1, 2), magic=b"TLLY", engine=0, good=True):
    """A HELLO, or what should have been one."""
    head = magic + struct.pack("<BBBBBBHIIIIIIIQQI", version, kind, 0, 0, 0, 0, 0, node, engine,
                               0, 0, 1, 0, 0, *key, 1)
    return head + struct.pack("<I", crc32c(head) ^ (not good))


def message(kind, body=b"", version=1, length=None):
    return struct.pack("<IHH", len(body) if length is None else length, kind, version) + body


FAST_DATA = {
    "random": lambda: random.randbytes(4096),
    "zeros": lambda: bytes(64),
    "wrong magic": lambda: frame(magic=b"HTTP"),
    "wrong version": lambda: frame(version=9),
    "wrong check": lambda: frame(good=False),
    "wrong key": frame,
    "unknown agent": lambda: frame(node=4711),
    "no such engine": lambda: frame(engine=99),
    "not a hello": lambda: frame(kind=3),
    "no such type": lambda: frame(kind=200),
    "http": lambda: b"GET / HTTP/1.1\r\nHost: tally\r\nAccept: */*\r\nUser-Agent: me/1.0.0\r\n\r\n",
}
FAST_CONTROL = {
    "random": lambda: b"\xff\xff\xff" + random.randbytes(4096),
    "zeros": lambda: bytes(64),
    "no such type": lambda: message(99),
    "wrong version": lambda: message(2, version=77),
    "too long": lambda: message(2, length=0xFFFFFFF0),
    "bad body": lambda: message(2, b"\xff" * 100),
    "hello that is empty": lambda: message(2),
    "attach that is empty": lambda: message(20),
    "heartbeat first": lambda: message(4, b"\x08\x01"),
    "declare first": lambda: message(10),
    "http": FAST_DATA["http"],
}
SLOW_ALL = {
    "nothing": b"",
    "one byte": b"T",
    "half a prefix": b"\x40\x00\x00\x00",
}


def connect(where):
    if where.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        s.connect(where)
        return s
    host, port = where.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def closed_within(s, seconds):
    end = time.monotonic() + seconds
    try:
        while True:
            s.settimeout(max(0.01, end - time.monotonic()))
            if not s.recv(65536):
                return True
    except socket.timeout:
        return False
    except OSError:
        return True
    finally:
        s.close()


def main():
    kind, where = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    slow, bad = [], []
    if rounds == 1:
        for what, data in SLOW_ALL.items():
            s = connect(where)
            s.sendall(data)
            slow.append((what, s))
    for _ in range(rounds):
        for what, make in (FAST_DATA if kind == "data" else FAST_CONTROL).items():
            s = connect(where)
            try:
                s.sendall(make())
            except OSError:
                pass            # closed before all was said
            if not closed_within(s, FAST):
                bad.append(what)
        connect(where).close()
        s = connect(where)
        s.sendall((frame() if kind == "data" else message(2, b"\x08" * 50))[:33])
        s.close()               # truncated
    end = time.monotonic() + SLOW
    for what, s in slow:
        if not closed_within(s, max(0.1, end - time.monotonic())):
            bad.append(what)
    for what in bad:
        print(f"{where} was not closed after: {what}", flush=True)
    sys.exit(bool(bad))


main()
