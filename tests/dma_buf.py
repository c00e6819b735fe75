# SPDX-License-Identifier: Apache-2.0
"""Memory behind a dma-buf without a device: the kernel's vgem module gives it."""
import fcntl
import glob
import os
import struct

CREATE_DUMB = 0xC02064B2  # struct drm_mode_create_dumb
PRIME_HANDLE_TO_FD = 0xC00C642D  # struct drm_prime_handle


def card():
    """A descriptor of vgem's card, or None."""
    for path in glob.glob("/dev/dri/card*"):
        name = os.path.basename(path)
        driver = os.path.realpath(f"/sys/class/drm/{name}/device")
        if os.path.basename(driver) == "vgem":
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return None


def make(size):
    """A dma-buf of that many bytes at least, readable and writable."""
    drm = card()
    if drm is None:
        raise OSError("no vgem card in /dev/dri (modprobe vgem)")
    try:
        dumb = bytearray(struct.pack("<IIIIIIQ", -(-size // 4096), 4096, 8, 0, 0, 0, 0))
        fcntl.ioctl(drm, CREATE_DUMB, dumb)
        handle = struct.unpack_from("<I", dumb, 16)[0]
        prime = bytearray(struct.pack("<IIi", handle, os.O_RDWR | os.O_CLOEXEC, -1))
        fcntl.ioctl(drm, PRIME_HANDLE_TO_FD, prime)
        return struct.unpack_from("<i", prime, 8)[0]
    finally:
        os.close(drm)
