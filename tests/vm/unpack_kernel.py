#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unpack_kernel.py VMLINUZ VMLINUX: takes the bare ELF kernel out of a compressed x86 kernel image.

QEMU enters the ELF file directly, and nothing has to be decompressed under emulation, which would take seconds.
"""

import pathlib
import struct
import subprocess
import sys

# Offsets of the Linux/x86 boot protocol.
SETUP_SECTORS, HEADER_MAGIC, PAYLOAD = 0x1F1, 0x202, 0x248
UNPACKERS = {b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b\x08": "gzip"}


def main():
    image = pathlib.Path(sys.argv[1]).read_bytes()
    if image[HEADER_MAGIC : HEADER_MAGIC + 4] != b"HdrS":
        sys.exit(f"{sys.argv[1]}: not a Linux kernel for x86")
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    begin = (image[SETUP_SECTORS] + 1) * 512 + offset
    payload = image[begin : begin + length]
    program = next((name for magic, name in UNPACKERS.items() if payload.startswith(magic)), None)
    if program is None:
        sys.exit(f"{sys.argv[1]}: compressed in an unknown way ({payload[:6].hex()})")
    # The unpackers complain about the length that stands behind the payload, after they have written all of it.
    unpacked = subprocess.run([program, "-dcq"], input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    if unpacked[:4] != b"\x7fELF":
        sys.exit(f"{sys.argv[1]}: {program} did not find an ELF kernel in it")
    pathlib.Path(sys.argv[2]).write_bytes(unpacked)


if __name__ == "__main__":
    main()
