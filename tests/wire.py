# SPDX-License-Identifier: Apache-2.0
"""Control messages, docs/PROTOCOL.md section 3, as who is no libtally says and reads them."""
import struct

REPLY, HELLO, WELCOME, HEARTBEAT, BARRIER, QUERY, STATUS = 1, 2, 3, 4, 15, 16, 17
ATTACH, ATTACHED, SLAB_WANT, SLAB, SLAB_MAPPED, DECLARED, DETACH = 20, 21, 22, 23, 24, 25, 26


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def fields(*values):
    """(number, value): an integer, or bytes."""
    out = b""
    for number, v in values:
        if isinstance(v, bytes):
            out += varint(number << 3 | 2) + varint(len(v)) + v
        elif v:
            out += varint(number << 3) + varint(v)
    return out


def message(kind, *values):
    body = fields(*values)
    return struct.pack("<IHH", len(body), kind, 1) + body


def parse(body):
    """{number: value}, of each the last one: an integer, or bytes."""
    out, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = body[at]
            at += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n

    while at < len(body):
        tag, value = number(), number()
        if tag & 7 == 2:
            value, at = body[at:at + value], at + value
        elif tag & 7:
            raise ValueError(f"field {tag >> 3} of wire type {tag & 7}")
        out[tag >> 3] = value
    return out


def reply(body):
    """Code and text of a REPLY."""
    got = parse(body)
    code = got.get(2, 0)
    return -(code + 1 >> 1) if code & 1 else code >> 1, got.get(3, b"").decode(errors="replace")
