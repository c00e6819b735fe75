#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the machines beside this file, as lstopo would: XML of hwloc's,
without comments, which its own parser does not take.

A machine is a list of sockets; a socket holds what hangs on its CPU: a GPU, a card, or
a switch with such things below it.  Speeds are GB/s, as hwloc has them; NVLinks are MB/s
between GPUs in order, as hwloc has them, too."""

import os

GEN3, GEN4 = 15.753846, 31.507692       # x16
CLASS = {"gpu": "0302 [10de:1db5] [10de:1249] a1", "card": "0207 [15b3:1017] [15b3:0007] 00",
         "ethernet": "0200 [8086:1563] [8086:0000] 01", "vga": "0300 [1a03:2000] [1a03:2000] 30"}


def gpu(speed=GEN3):
    return ("gpu", None, speed)


def card(name, speed=GEN3, kind="card"):
    return (kind, name, speed)


def switch(*below, speed=GEN3):
    return ("switch", below, speed)


class Writer:
    def __init__(self):
        self.lines, self.index, self.bus, self.gpus = [], 0, 0, []

    def gp(self):
        self.index += 1
        return self.index

    def put(self, depth, text):
        self.lines.append("  " * depth + text)

    def bridge(self, depth, speed, bus, dev, inside):
        """A bridge at bus:dev; inside(secondary bus) writes what is below."""
        self.bus += 1
        second, at, gp = self.bus, len(self.lines), self.gp()
        inside(second)
        self.lines.insert(at, "  " * depth + (
            f'<object type="Bridge" gp_index="{gp}" bridge_type="1-1" depth="{depth - 3}" '
            f'bridge_pci="0000:[{second:02x}-{self.bus:02x}]" '
            f'pci_busid="0000:{bus:02x}:{dev:02x}.0" '
            f'pci_type="0604 [10b5:9765] [0000:0000] ca" pci_link_speed="{speed:.6f}">'))
        self.put(depth, "</object>")

    def device(self, depth, thing, bus):
        kind, name, speed = thing
        gp = self.gp()
        head = (f'<object type="PCIDev" gp_index="{gp}" pci_busid="0000:{bus:02x}:00.0" '
                f'pci_type="{CLASS[kind]}" pci_link_speed="{speed:.6f}"')
        if kind == "gpu":
            self.gpus.append(gp)
        if not name:
            self.put(depth, head + "/>")
            return
        self.put(depth, head + ">")
        self.put(depth + 1, f'<object type="OSDev" gp_index="{self.gp()}" name="{name}" '
                 f'osdev_type="{3 if kind == "card" else 2}"/>')
        self.put(depth, "</object>")

    def below(self, depth, thing, bus):
        if thing[0] != "switch":
            self.device(depth, thing, bus)
            return

        def ports(second):
            for dev, t in enumerate(thing[1]):
                speed = t[2]
                self.bridge(depth + 1, speed, second, dev,
                            lambda b, t=t: self.below(depth + 2, t, b))
        self.bridge(depth, thing[2], bus, 0, ports)

    def socket(self, number, sockets, things):
        me = (f'cpuset="0x{1 << number:08x}" complete_cpuset="0x{1 << number:08x}" '
              f'nodeset="0x{1 << number:08x}" complete_nodeset="0x{1 << number:08x}"')
        self.put(2, f'<object type="Package" os_index="{number}" {me} gp_index="{self.gp()}">')
        for kind, more in (("NUMANode", ' local_memory="137438953472"'), ("Core", "")):
            self.put(3, f'<object type="{kind}" os_index="{number}" {me} '
                     f'gp_index="{self.gp()}"{more}{"/" if kind == "NUMANode" else ""}>')
        self.put(4, f'<object type="PU" os_index="{number}" {me} gp_index="{self.gp()}"/>')
        self.put(3, "</object>")
        if things:
            self.bus = root = number * 0x80
            at, gp = len(self.lines), self.gp()
            for dev, t in enumerate(things, 1):
                self.bridge(4, t[2], root, dev, lambda b, t=t: self.below(5, t, b))
            self.lines.insert(at, f'      <object type="Bridge" gp_index="{gp}" '
                              f'bridge_type="0-1" depth="0" '
                              f'bridge_pci="0000:[{root:02x}-{self.bus:02x}]">')
            self.put(3, "</object>")
        self.put(2, "</object>")

    def nvlinks(self, matrix):
        n = len(self.gpus)
        ids = " ".join(str(g) for g in self.gpus) + " "
        self.put(1, f'<distances2 type="PCIDev" nbobjs="{n}" kind="26" name="NVLinkBandwidth" '
                 f'indexing="gp">')
        self.put(2, f'<indexes length="{len(ids)}">{ids}</indexes>')
        for row in matrix:
            text = " ".join(str(v) for v in row) + " "
            self.put(2, f'<u64values length="{len(text)}">{text}</u64values>')
        self.put(1, "</distances2>")


def write(name, sockets, nvlink=None):
    w, everything = Writer(), (1 << len(sockets)) - 1
    w.put(0, '<?xml version="1.0" encoding="UTF-8"?>')
    w.put(0, '<!DOCTYPE topology SYSTEM "hwloc2.dtd">')
    w.put(0, '<topology version="2.0">')
    sets = " ".join(f'{k}="0x{everything:08x}"' for k in (
        "cpuset", "complete_cpuset", "allowed_cpuset", "nodeset", "complete_nodeset",
        "allowed_nodeset"))
    w.put(1, f'<object type="Machine" os_index="0" {sets} gp_index="{w.gp()}">')
    for number, things in enumerate(sockets):
        w.socket(number, len(sockets), things)
    w.put(1, "</object>")
    if nvlink:
        w.nvlinks(nvlink)
    w.put(0, "</topology>")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".xml"), "w",
              encoding="utf-8") as f:
        f.write("\n".join(w.lines) + "\n")


# GPU pairs of the hybrid cube mesh, and how many NVLinks (25 GB/s) they have.
MESH = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
        (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}


def mesh():
    m = [[1000000 if i == j else 0 for j in range(8)] for i in range(8)]
    for (a, b), links in MESH.items():
        m[a][b] = m[b][a] = 25000 * links
    return m


def main():
    gpus2, gpus4 = (gpu(), gpu()), (gpu(), gpu(), gpu(), gpu())
    write("pcie-2x4-card-apart", [[switch(*gpus4), card("mlx5_0")], [switch(*gpus4)]])
    write("pcie-4x2", [[switch(*gpus2), switch(*gpus2), card("mlx5_0")],
                       [switch(*gpus2), switch(*gpus2)]])
    write("dgx1-one-card", [[switch(*gpus2, card("mlx5_0")), switch(*gpus2)],
                            [switch(*gpus2), switch(*gpus2)]], mesh())
    four = [[switch(gpu(GEN4), gpu(GEN4), card(f"mlx5_{i}", GEN4), card(f"mlx5_{i + 1}", GEN4),
                    speed=GEN4) for i in range(0, 4, 2)]]
    write("a100-card-per-switch", [four[0] + [card("eno1", 0.984615, "ethernet")],
                                   [switch(gpu(GEN4), gpu(GEN4), card(f"mlx5_{i}", GEN4),
                                           card(f"mlx5_{i + 1}", GEN4), speed=GEN4)
                                    for i in range(4, 8, 2)]],
          [[1000000 if i == j else 300000 for j in range(8)] for i in range(8)])
    unused = card(None, kind="ethernet")        # no interface: lent to a virtual machine
    write("single-switch", [[switch(*gpus4, card("mlx5_0")), unused, ("vga", None, 0.25)]])
    write("one-gpu", [[gpu(), card("eth0", 3.938462, "ethernet")]])
    write("one-of-two-sockets", [[card("mlx5_0")], [switch(*gpus4)]])
    write("two-cards-one-switch", [[switch(*gpus2, card("mlx5_0"), card("mlx5_1")),
                                    switch(*gpus2)],
                                   [switch(*gpus2), switch(*gpus2)]], mesh())
    write("consumer-board", [[gpu(7.876923), gpu(7.876923), card("enp5s0", 0.5, "ethernet"),
                              ("vga", None, 0.25)]])
    write("no-gpu", [[card("eth0", 7.876923, "ethernet")], []])


if __name__ == "__main__":
    main()
