# SPDX-License-Identifier: Apache-2.0
"""The configuration space of a PCI Express function, byte by byte (PCI Express Base Specification, chapter 7)."""

import struct

SPEED_CODES = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s to the code of the link registers

# Kind of a function to its device/port type in the PCI Express capability.
PORT_TYPES = {"endpoint": 0, "root_port": 4, "upstream_port": 5, "downstream_port": 6, "integrated": 9}

EXPRESS_AT = 0x60
POWER_AT = 0x40
EXTENDED_AT = 0x100

ACS_ALL = 0x7F  # SV TB RR CR UF EC DT
ACS_SOURCE_VALIDATION, ACS_REQUEST_REDIRECT, ACS_COMPLETION_REDIRECT, ACS_UPSTREAM_FORWARDING = 1 << 0, 1 << 2, 1 << 3, 1 << 4


class ConfigSpace:
    def __init__(self, vendor, device, class_code, revision=0, subsystem=(0, 0), bridge=None):
        """`bridge` is (primary, secondary, subordinate) bus numbers of a bridge."""
        self.bytes = bytearray(4096)
        self.put("<HHHH", 0x00, vendor, device, 0x0546, 0x0010)  # memory, bus master, parity; has capabilities
        self.put("<B", 0x08, revision)
        self.put("<I", 0x08, class_code << 8 | revision)
        self.put("<B", 0x0C, 0x10)
        self.put("<B", 0x0E, 1 if bridge else 0)
        if bridge:
            self.put("<BBB", 0x18, *bridge)
        else:
            self.put("<HH", 0x2C, *subsystem)
        self.put("<B", 0x34, POWER_AT)
        self.put("<BBHH", POWER_AT, 0x01, EXPRESS_AT, 0xC803, 0x0008)
        self.next_extended = EXTENDED_AT
        self.last_extended = None

    def put(self, form, at, *values):
        struct.pack_into(form, self.bytes, at, *values)

    def express(self, kind, speed, width, most_speed, most_width, mps_bytes=256, most_mps_bytes=512, mrrs_bytes=512,
                relaxed_ordering=True):
        """The PCI Express capability. A width of 0: a function without a link."""
        self.put("<BBH", EXPRESS_AT, 0x10, 0, 2 | PORT_TYPES[kind] << 4)
        self.put("<I", EXPRESS_AT + 0x04, size_code(most_mps_bytes) | 1 << 5 | 1 << 15)
        control = 0x000F | size_code(mps_bytes) << 5 | 1 << 8 | size_code(mrrs_bytes) << 12  # errors reported, extended tags
        if relaxed_ordering:
            control |= 1 << 4
        self.put("<H", EXPRESS_AT + 0x08, control)
        self.put("<H", EXPRESS_AT + 0x28, 0x0009)  # completion time-out
        if width:
            most = SPEED_CODES[most_speed]
            self.put("<I", EXPRESS_AT + 0x0C, most | most_width << 4 | 1 << 22)
            self.put("<H", EXPRESS_AT + 0x12, SPEED_CODES[speed] | width << 4)
            self.put("<I", EXPRESS_AT + 0x2C, ((1 << most) - 1) << 1)
            self.put("<H", EXPRESS_AT + 0x30, most)

    def extended(self, capability, version, length):
        """Appends an extended capability and returns its offset."""
        at = self.next_extended
        self.put("<I", at, capability | version << 16)
        if self.last_extended is not None:
            header, = struct.unpack_from("<I", self.bytes, self.last_extended)
            self.put("<I", self.last_extended, header | at << 20)
        self.last_extended = at
        self.next_extended = (at + length + 15) // 16 * 16
        return at

    def errors(self):
        self.extended(0x0001, 2, 0x48)

    def acs(self, control, able=ACS_ALL):
        at = self.extended(0x000D, 1, 8)
        self.put("<HH", at + 4, able, control)

    def ats(self, is_enabled):
        at = self.extended(0x000F, 1, 8)
        self.put("<HH", at + 4, 0x0060, 0x8000 if is_enabled else 0)

    def content(self):
        return bytes(self.bytes)


def size_code(size_bytes):
    """128 is 0, 256 is 1, ..., 4096 is 5: of payload and read request sizes."""
    return (size_bytes // 128).bit_length() - 1
