# SPDX-License-Identifier: Apache-2.0
"""A machine as files, links, folders and device nodes, with what the drivers' libraries would answer."""

import base64
import json
import os
import posixpath

REMARK = "Constructed by tests/sysroots for the tests of Gigabar: this tree never ran on a machine."
DATE = "2025-11-03T00:00:00Z"  # fixed, so that the same sources give the same archive
ORDINARY_CONFIG_BYTES = 64  # of the PCI configuration space that the kernel shows to a user without CAP_SYS_ADMIN


def cpu_list(cpus):
    """{0, 1, 2, 5} as the kernel prints it: "0-2,5"."""
    ranges = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def cpu_map(cpus, count):
    """A bitmap of `count` CPUs as the kernel prints it: groups of 32 bits, the highest first, that one as short as it can be."""
    bits = sum(1 << cpu for cpu in cpus)
    groups = max(1, (count + 31) // 32)
    words = [(bits >> (32 * index)) & 0xFFFFFFFF for index in range(groups)]
    first_digits = ((count - 1) % 32) // 4 + 1
    texts = [f"{words[-1]:0{first_digits}x}"] + [f"{word:08x}" for word in reversed(words[:-1])]
    return ",".join(texts)


class Machine:
    def __init__(self, name, story):
        self.name = name
        self.remark = f"{REMARK} {story}"
        self.files = {}
        self.unreadable = {}
        self.links = {}
        self.folders = set()
        self.devices = {}
        self.pci_devices = []
        self.cpus = None  # a Cpus, see cpu.py
        self.has_iommu = False
        self.answers = {
            "cuda": {"code": "library_missing", "reason": "libcuda.so.1 could not be opened",
                     "remedy": "install the NVIDIA driver"},
            "nvml": {"code": "library_missing", "reason": "libnvidia-ml.so.1 could not be opened",
                     "remedy": "install the NVIDIA driver"},
            "verbs": {"code": "library_missing", "reason": "libibverbs.so.1 could not be opened", "remedy": "install rdma-core"},
            "driver_version": "", "gpus": [], "peers": [], "rdma_devices": [],
        }

    def file(self, path, content):
        """Text gets the newline that every sysfs attribute ends in, unless it has one; bytes stay as they are."""
        if isinstance(content, str) and not content.endswith("\n"):
            content += "\n"
        self.files[path] = content

    def files_in(self, folder, contents):
        for name, content in contents.items():
            self.file(f"{folder}/{name}", content)

    def link(self, path, absolute_target):
        """A relative link, as the kernel makes them."""
        self.links[path] = posixpath.relpath(absolute_target, posixpath.dirname(path))

    def folder(self, path):
        self.folders.add(path)

    def device(self, path, major, minor, mode=0o666, can_use=True):
        """That open() was tried may be added to it as "open_errno"."""
        self.devices[path] = {"mode": mode, "major": major, "minor": minor, "can_read": can_use, "can_write": can_use}

    def hide(self, path, reason="permission denied"):
        """The file is there, but whoever captured this could not read it."""
        self.files.pop(path, None)
        self.unreadable[path] = reason

    def remove(self, path):
        """The path and everything below it."""
        for table in (self.files, self.unreadable, self.links, self.devices):
            for name in [name for name in table if name == path or name.startswith(path + "/")]:
                del table[name]
        self.folders = {name for name in self.folders if name != path and not name.startswith(path + "/")}

    def module(self, name, version=None, parameters=None, users=0):
        """A loaded module of the kernel."""
        folder = f"/sys/module/{name}"
        self.files_in(folder, {"initstate": "live", "refcnt": str(users)})
        if version:
            self.file(f"{folder}/version", version)
        self.files_in(f"{folder}/parameters", parameters or {})
        self.files.setdefault("/proc/modules", "")
        self.files["/proc/modules"] += f"{name} 65536 {users} - Live 0x0000000000000000\n"

    def finish(self):
        """Writes what depends on the whole: bus numbers of bridges, NUMA locality. Called once, after the last part."""
        for device in self.pci_devices:
            device.write()
        return self

    def without_privileges(self):
        """The same machine, captured by an ordinary user: call after finish()."""
        for path, content in self.files.items():
            if path.endswith("/config") and isinstance(content, bytes):
                self.files[path] = content[:ORDINARY_CONFIG_BYTES]
        self.answers.pop("kernel_log", None)
        self.answers["can_lock_memory"] = False
        return self

    def document(self):
        files = {}
        for path, content in self.files.items():
            files[path] = {"base64": base64.b64encode(content).decode()} if isinstance(content, bytes) else content
        holders = set()  # folders that follow from a path below them
        for path in [*files, *self.unreadable, *self.links, *self.devices, *self.folders]:
            while path != "/":
                path = posixpath.dirname(path)
                holders.add(path)
        return {
            "format": "gigabar-machine", "version": 1, "remark": self.remark, "date": DATE, "files": files,
            "unreadable": self.unreadable, "links": self.links, "folders": sorted(self.folders - holders),
            "devices": self.devices, "answers": self.answers,
        }

    def to_json(self):
        return json.dumps(self.document(), indent=1, sort_keys=True) + "\n"

    def write_folder(self, root):
        """The tree as a real folder, with the answers in it. Device nodes become empty files: making nodes needs privileges."""
        document = self.document()
        for path in document["folders"]:
            os.makedirs(root + path, exist_ok=True)
        for path in [*self.files, *self.links, *self.devices]:
            os.makedirs(root + posixpath.dirname(path), exist_ok=True)
        for path, content in self.files.items():
            with open(root + path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        for path in self.devices:
            with open(root + path, "wb"):
                pass
        for path, target in self.links.items():
            os.symlink(target, root + path)
        with open(f"{root}/gigabar-answers.json", "w", encoding="utf-8") as file:
            json.dump(self.answers, file, indent=1, sort_keys=True)
