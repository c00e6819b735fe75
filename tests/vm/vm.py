#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command inside a small virtual machine that has real verbs.

	tests/vm/vm.py [-c] [-s] [-t SECONDS] [-m MIB] COMMAND...

The machine is Debian's kernel under QEMU's software emulation: it needs no KVM
and no rights.  Its root file system is this machine's own, read-only over 9p, so
what was built here runs there; /tmp, /run and /dev/shm are fresh.  It has the
modules of MODULES: soft RoCE on any network device, veth, bridges, tbf and netem,
vgem, which gives out dma-bufs, and overlay, by which a story may write to the root file system.
It has no network to the outside.

With -c its clock counts instructions, one for each nanosecond, of the one processor that it
has then: what is measured inside, and which deadlines pass, does not depend on what else
this machine does.

With -s its first process is systemd, and the command a service.

The command runs as root in the directory that vm.py was called in.  What it prints
is printed here as it comes, its exit status is vm.py's.  When the machine hangs,
panics or does not come up, the end of its console is shown and the status is 125
(124 when the time was up).

The kernel is the newest one installed here, or else comes out of its package,
which is fetched with apt-get but not installed.  Kernel and initramfs are kept in
$BUILD/vm.
"""
import argparse
import glob
import gzip
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
DIR = os.path.join(BUILD, "vm")

# What the initramfs loads, each behind what it depends on.  crc32_generic: without it
# rxe makes no device.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "crc32_generic", "veth", "bridge", "sch_tbf",
           "sch_netem", "sch_prio", "cls_u32", "act_gact", "ib_uverbs", "rdma_ucm", "rdma_rxe",
           "vgem", "overlay"]
# no_timer_check: the emulated IO-APIC's timer is late now and then, which panics else.
KERNEL_ARGS = ("console=ttyS0 panic=-1 oops=panic no_timer_check quiet loglevel=4 "
               "random.trust_cpu=on systemd.show_status=no")
BOOT_SECONDS = 90
CONSOLE_LINES = 40
TIME_UP, BROKEN = 124, 125


def die(text):
    print(f"vm: {text}", file=sys.stderr)
    sys.exit(BROKEN)


# ---- the kernel ------------------------------------------------------------------


def installed_kernel():
    """(image, folder of its modules) of the newest one here that has soft RoCE, or None."""
    found = []
    for image in glob.glob("/boot/vmlinuz-*"):
        modules = "/lib/modules/" + image.split("vmlinuz-", 1)[1]
        if os.access(image, os.R_OK) and find_module(modules, "rdma_rxe"):
            found.append(([int(n) for n in re.findall(r"\d+", image)], image, modules))
    return max(found)[1:] if found else None


def fetched_kernel(where):
    """The same out of the package, unpacked below `where`."""
    depends = subprocess.run(["apt-cache", "depends", "--important", "linux-image-amd64"],
                             capture_output=True, text=True, check=True).stdout
    package = re.search(r"linux-image-\S*-amd64", depends.split("\n", 1)[1])
    if not package:
        die("apt knows no linux-image-amd64: run apt-get update")
    print(f"vm: fetching {package[0]}", file=sys.stderr)
    subprocess.run(["apt-get", "download", "-q", package[0]], cwd=where, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deb = glob.glob(os.path.join(where, "*.deb"))[0]
    subprocess.run(["dpkg-deb", "-x", deb, where], check=True)
    # /lib is a link to /usr/lib in newer packages
    modules = glob.glob(os.path.join(where, "lib/modules/*")) + \
        glob.glob(os.path.join(where, "usr/lib/modules/*"))
    return glob.glob(os.path.join(where, "boot/vmlinuz-*"))[0], modules[0]


def find_module(modules, name):
    for ending in ("", ".xz", ".gz"):
        for spelling in (name, name.replace("_", "-")):
            found = glob.glob(f"{modules}/kernel/**/{spelling}.ko{ending}", recursive=True)
            if found:
                return found[0]
    return None


def is_builtin(modules, name):
    with open(os.path.join(modules, "modules.builtin"), encoding="ascii") as f:
        return any(line.strip().replace("-", "_").endswith(f"/{name}.ko") for line in f)


def read_module(path):
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(os.path.splitext(path)[1], open)
    with opener(path, "rb") as f:
        return f.read()


def collect(modules, name, have):
    """Puts a module into `have` (name: content), what it depends on before it."""
    name = name.replace("-", "_")
    if name in have or is_builtin(modules, name):
        return
    path = find_module(modules, name)
    if not path:
        die(f"the kernel has no module {name}")
    content = read_module(path)
    depends = re.search(rb"\0depends=([^\0]*)\0", content)
    for other in depends[1].decode().split(",") if depends and depends[1] else []:
        collect(modules, other, have)
    have[name] = content


# ---- the initramfs ---------------------------------------------------------------


def cpio_entry(name, mode, content=b""):
    fields = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % v for v in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)


def make_initramfs(modules, path):
    have = {}
    for name in MODULES:
        collect(modules, name, have)
    with open("/bin/busybox", "rb") as f:
        busybox = f.read()
    with open(os.path.join(HERE, "init.sh"), "rb") as f:
        init = f.read()
    parts = [cpio_entry(d, 0o040755) for d in ("bin", "dev", "mod", "out", "proc", "root", "sys")]
    parts += [cpio_entry("bin/busybox", 0o100755, busybox), cpio_entry("init", 0o100755, init)]
    for i, (name, content) in enumerate(have.items()):
        parts.append(cpio_entry(f"mod/{i:03}-{name}.ko", 0o100644, content))
    parts.append(cpio_entry("TRAILER!!!", 0))
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(b"".join(parts))


def prepare():
    """Kernel and initramfs in DIR; made anew when what they are made of is newer."""
    image, initramfs = os.path.join(DIR, "vmlinuz"), os.path.join(DIR, "initramfs.gz")
    made_of = max(os.path.getmtime(os.path.join(HERE, f)) for f in ("vm.py", "init.sh"))
    if os.path.exists(initramfs) and os.path.getmtime(initramfs) > made_of:
        return image, initramfs
    os.makedirs(DIR, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DIR) as where:
        kernel = installed_kernel() or fetched_kernel(where)
        shutil.copyfile(kernel[0], image)
        make_initramfs(kernel[1], os.path.join(where, "initramfs.gz"))
        os.replace(os.path.join(where, "initramfs.gz"), initramfs)
    return image, initramfs


# ---- the machine -----------------------------------------------------------------


def qemu_command(image, initramfs, out, memory, counted):
    share = "local,security_model=none,multidevs=remap"
    clock = ["-accel", "tcg,thread=single", "-icount", "shift=0", "-smp", "1"] if counted else \
        ["-accel", "tcg,thread=multi", "-smp", "2"]
    return ["qemu-system-x86_64", *clock, "-cpu", "max",
            "-m", str(memory), "-display", "none", "-no-reboot", "-nodefaults",
            "-kernel", image, "-initrd", initramfs, "-append", KERNEL_ARGS,
            "-serial", "file:" + os.path.join(out, "console"), "-serial", "stdio",
            "-fsdev", f"{share},id=host,path=/,readonly=on",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-fsdev", f"{share},id=out,path={out}",
            "-device", "virtio-9p-pci,fsdev=out,mount_tag=out"]


def write_job(out, command, systemd):
    """What init.sh reads: the command, and folders to be seen through a fresh /tmp."""
    if systemd:
        with open(os.path.join(out, "systemd"), "w", encoding="utf-8"):
            pass
    keep = [d for d in (ROOT, BUILD, os.getcwd()) if d.startswith(("/tmp/", "/run/"))]
    environment = {k: v for k, v in os.environ.items() if k.startswith(("TALLY_", "CK_", "VM_"))}
    environment.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/tmp", BUILD=BUILD, IN_VM="1")
    words = ["env", "-i"] + [f"{k}={v}" for k, v in environment.items()] + command
    with open(os.path.join(out, "keep"), "w", encoding="utf-8") as f:
        f.writelines(d + "\n" for d in dict.fromkeys(keep))
    with open(os.path.join(out, "job"), "w", encoding="utf-8") as f:
        f.write(f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(words)}\n")


def copy_output(pipe):
    for chunk in iter(lambda: os.read(pipe.fileno(), 65536), b""):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def wait_for(machine, out, seconds):
    """Until it ends, by itself or by a deadline; the reason when it was a deadline."""
    start = time.monotonic()
    while True:
        try:
            machine.wait(timeout=0.5)
            return None
        except subprocess.TimeoutExpired:
            pass
        took = time.monotonic() - start
        if took > BOOT_SECONDS and not os.path.exists(os.path.join(out, "started")):
            return f"it did not come up within {BOOT_SECONDS} s"
        if took > seconds:
            return f"the command did not end within {seconds} s"


def read_status(out):
    try:
        with open(os.path.join(out, "status"), encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):
        return None


def show_console(out):
    try:
        with open(os.path.join(out, "console"), encoding="utf-8", errors="replace") as f:
            lines = f.readlines()[-CONSOLE_LINES:]
    except OSError:
        lines = []
    sys.stderr.write("--- the machine's console\n" + "".join(lines) + "---\n")


def run(command, args):
    image, initramfs = prepare()
    with tempfile.TemporaryDirectory(prefix="tally-vm-") as out:
        write_job(out, command, args.s)
        with subprocess.Popen(qemu_command(image, initramfs, out, args.m, args.c),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
            reader = threading.Thread(target=copy_output, args=(machine.stdout,), daemon=True)
            reader.start()
            try:
                late = wait_for(machine, out, args.t)
            finally:
                machine.kill()
            reader.join()
        status = read_status(out)
        if late or status is None:
            show_console(out)
            print(f"vm: {late or 'it ended without a word: a panic, or QEMU failed'}",
                  file=sys.stderr)
        if late:
            return TIME_UP
        return BROKEN if status is None else status


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-c", action="store_true", help="its clock counts instructions")
    parser.add_argument("-s", action="store_true", help="its first process is systemd")
    parser.add_argument("-t", type=int, default=300, metavar="SECONDS", help="for all of it")
    parser.add_argument("-m", type=int, default=2048, metavar="MIB", help="of memory")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("no command")
    sys.exit(run(args.command, args))


if __name__ == "__main__":
    main()
