#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A crowd that says nothing.

	trouble_strangers.py HOST:PORT|PATH COUNT

Opens COUNT connections to HOST:PORT, or to the Unix socket PATH, and sends nothing.  One that
the other side closes is opened again, until the crowd is killed.  "crowded" is printed when all
were open once.
"""
import resource
import select
import socket
import sys
import time

AT_ONCE = 50        # opened again before the next look: a crowd, not a flood
LOOK_S = 0.02       # from look to look


def main():
    where, count = sys.argv[1], int(sys.argv[2])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    poll, crowd = select.poll(), {}

    def come():
        if "/" in where:
            s = socket.socket(socket.AF_UNIX)
            s.connect(where)
        else:
            host, port = where.split(":")
            s = socket.create_connection((host, int(port)))
        crowd[s.fileno()] = s
        poll.register(s, select.POLLIN)

    for _ in range(count):
        come()
    print("crowded", flush=True)
    while True:
        for fd, _ in poll.poll()[:AT_ONCE]:
            poll.unregister(fd)
            crowd.pop(fd).close()
            come()
        time.sleep(LOOK_S)


main()
