# SPDX-License-Identifier: Apache-2.0
"""aarch64_wheel.py WHEEL: run by aarch64_wheel_test.sh with a Python of arm64, where the wheel of that name is on the path."""

import ctypes
import json
import platform
import subprocess
import sys
import unittest
from importlib.metadata import version
from pathlib import Path

import gigabar
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

FOLDER = Path(gigabar.__file__).parent
FATBIN_MAGIC = b"\x50\xed\x55\xba"  # 0xba55ed50, as it begins every image of device code
EM_AARCH64 = 183


class Wheel(unittest.TestCase):
    def test_it_is_for_this_interpreter(self) -> None:
        self.assertEqual(platform.machine(), "aarch64")
        _, said, _, tags = parse_wheel_filename(WHEEL)
        self.assertTrue(tags & set(sys_tags()), f"{WHEEL} is for another interpreter")
        self.assertEqual(version("gigabar"), str(said))

    def test_every_program_and_library_is_for_arm64(self) -> None:
        files = [path for path in FOLDER.rglob("*") if path.is_file()]
        elves = {str(path.relative_to(FOLDER)) for path in files if path.read_bytes().startswith(b"\x7fELF")}
        self.assertEqual(elves, {"_core.abi3.so", "bin/gigabar.arm64", "lib/libgigabar.so.1", "lib/libgdrapi.so.2", "libexec/gigabar/gigabar-probe"})
        for elf in elves:
            self.assertEqual(int.from_bytes((FOLDER / elf).read_bytes()[18:20], "little"), EM_AARCH64, elf)

    def test_it_has_device_code(self) -> None:
        for elf in ("bin/gigabar.arm64", "lib/libgigabar.so.1"):
            self.assertIn(FATBIN_MAGIC, (FOLDER / elf).read_bytes(), elf)

    def test_both_libraries_load(self) -> None:
        for name, function in [("libgigabar.so.1", "gigabar_version"), ("libgdrapi.so.2", "gdr_open")]:
            self.assertTrue(getattr(ctypes.CDLL(str(FOLDER / "lib" / name)), function))

    def test_mapping(self) -> None:
        self.assertEqual([device.is_stand_in for device in gigabar.devices()], [True, True])
        memory = gigabar.allocate(4096)
        with gigabar.map(memory) as mapping:
            mapping.write(bytes(range(256)), offset=64)
            self.assertEqual(mapping.read_bytes(254, 65), bytes(range(1, 255)))
            mapping.publish(b"data", flag_offset=0, value=7, offset=128)
            self.assertEqual((mapping.read_bytes(8, 0), mapping.read_bytes(4, 128)), ((7).to_bytes(8, "little"), b"data"))
        back = bytearray(1 << 16)
        large = gigabar.allocate(1 << 16)
        gigabar.copy(large, bytes(range(256)) * 256)
        gigabar.copy(back, large)
        self.assertEqual(bytes(back), bytes(range(256)) * 256)

    def test_errors_are_exceptions(self) -> None:
        with self.assertRaises(gigabar.Error) as raised:
            gigabar.allocate(-1)
        self.assertEqual((raised.exception.status, raised.exception.object), ("out_of_range", "nbytes"))
        with self.assertRaises(gigabar.Error) as raised:
            gigabar.map(bytearray(16))
        self.assertEqual(raised.exception.status, "not_supported")

    def test_ranks(self) -> None:
        with gigabar.Fabric(rank=0, rank_count=1) as fabric:
            memory = bytearray(b"message" + bytes(57))
            fabric.register(1, memory)
            fabric.write_notify((1, 0), (0, 1, 32), nbytes=7, notification=3)
            fabric.wait(timeout=60)
            fabric.notification_wait(1, first=3, timeout=60)
            self.assertEqual(memory[32:39], b"message")

    def test_what_is_opened_at_run_time(self) -> None:
        said = gigabar.availability().to_dict()
        self.assertNotIn("not_built", json.dumps(said))

    def test_program(self) -> None:
        said = subprocess.run([FOLDER / "bin" / "gigabar", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn(version("gigabar"), said)
        wrong = subprocess.run([FOLDER / "bin" / "gigabar", "--no-such-option"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--no-such-option", wrong.stderr)

    def test_what_the_program_tells_the_package(self) -> None:
        self.assertTrue(gigabar.topology().topology.numa_nodes)
        self.assertTrue(gigabar.doctor().results)
        self.assertTrue(gigabar.survey(budget=5, timeout=300).results)


WHEEL = sys.argv.pop(1)
unittest.main(verbosity=2)
