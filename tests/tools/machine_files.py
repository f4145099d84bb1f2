# SPDX-License-Identifier: Apache-2.0
"""Machines for tests: archives as one JSON document, the form in which a machine is written by hand, made of a few words each."""

import base64
import json
import os
import struct

BRIDGE, GPU, ETHERNET, INFINIBAND = 0x060400, 0x030200, 0x020000, 0x020700
SPEED_CODES = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5}


def configuration(vendor, device, class_code, buses, speed, width, most_width):
    """The first 256 bytes of a configuration space, with the PCI Express capability at 0x40."""
    data = bytearray(256)
    struct.pack_into("<HHHH", data, 0, vendor, device, 0x0406, 0x0010)
    struct.pack_into("<I", data, 8, class_code << 8)
    data[0x34] = 0x40
    if buses:
        data[0x0e] = 1
        data[0x18:0x1b] = bytes(buses)
    code = SPEED_CODES[speed]
    port = 0x6 if buses else 0x0
    struct.pack_into("<BBH", data, 0x40, 0x10, 0, 0x0002 | port << 4)
    struct.pack_into("<I", data, 0x4c, code | most_width << 4)
    struct.pack_into("<H", data, 0x52, code | width << 4)
    struct.pack_into("<I", data, 0x6c, code << 1)
    return bytes(data)


class MachineFiles:
    """An archive that grows. Paths are those of the machine."""

    def __init__(self, cpus_of_node, remark="constructed for a test"):
        self.files, self.links, self.unreadable, self.devices, self.folders = {}, {}, {}, {}, []
        self.remark = remark
        self.answers = {"gpus": [], "peers": [], "rdma_devices": []}
        self.paths = {}
        self.cpus_of_node = cpus_of_node
        count = len(cpus_of_node)
        every = f"0-{sum(last - first + 1 for first, last in cpus_of_node) - 1}"
        node_list = f"0-{count - 1}" if count > 1 else "0"
        for name in ("online", "possible", "present"):
            self.file(f"/sys/devices/system/cpu/{name}", every)
            self.file(f"/sys/devices/system/node/{name}", node_list)
        for name in ("has_cpu", "has_memory", "has_normal_memory"):
            self.file(f"/sys/devices/system/node/{name}", node_list)
        for node, (first, last) in enumerate(cpus_of_node):
            folder = f"/sys/devices/system/node/node{node}"
            self.file(f"{folder}/cpulist", f"{first}-{last}")
            self.file(f"{folder}/cpumap", self.mask(node))
            self.file(f"{folder}/meminfo", f"Node {node} MemTotal:       67108864 kB\nNode {node} MemFree:        60000000 kB")
            self.file(f"{folder}/distance", " ".join("10" if other == node else "21" for other in range(count)))
            for cpu in range(first, last + 1):
                self.add_cpu(cpu, node)
        self.file("/proc/meminfo", f"MemTotal:       {67108864 * count} kB\nHugePages_Total:       0\nHugepagesize:       2048 kB")
        self.file("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz quiet")
        self.file("/proc/cpuinfo", "\n\n".join(f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
                                               "model name\t: constructed" for cpu in range(cpus_of_node[-1][1] + 1)))

    def mask(self, node):
        first, last = self.cpus_of_node[node]
        return f"{sum(1 << cpu for cpu in range(first, last + 1)):08x}"

    def add_cpu(self, cpu, node):
        folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        self.file(f"{folder}/physical_package_id", str(node))
        self.file(f"{folder}/core_id", str(cpu))
        for name in ("core_cpus", "thread_siblings"):
            self.file(f"{folder}/{name}", f"{1 << cpu:08x}")
        for name in ("package_cpus", "core_siblings"):
            self.file(f"{folder}/{name}", self.mask(node))

    def file(self, path, content):
        self.files[path] = content + "\n" if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}
        return self

    def pci(self, address, parents=(), class_code=BRIDGE, node=0, vendor=0x1000, device=0xc030, speed="16.0", width=16,
            most_width=16, buses=None):
        """A device below the bridges `parents`, the topmost first, which are there already."""
        if class_code == BRIDGE and buses is None:
            raise ValueError(f"{address}: a bridge needs its buses")
        path = f"/sys/devices/pci{(parents[0] if parents else address)[:7]}/" + "/".join((*parents, address))
        self.paths[address] = path
        self.links[f"/sys/bus/pci/devices/{address}"] = "../../.." + path.removeprefix("/sys")
        for name, value in (("class", f"0x{class_code:06x}"), ("vendor", f"0x{vendor:04x}"), ("device", f"0x{device:04x}"),
                            ("subsystem_vendor", "0x0000"), ("subsystem_device", "0x0000"), ("revision", "0x00"),
                            ("numa_node", str(node)), ("local_cpus", self.mask(max(node, 0))),
                            ("local_cpulist", "{}-{}".format(*self.cpus_of_node[max(node, 0)])),
                            ("current_link_speed", f"{speed} GT/s PCIe"), ("max_link_speed", f"{speed} GT/s PCIe"),
                            ("current_link_width", str(width)), ("max_link_width", str(most_width))):
            self.file(f"{path}/{name}", value)
        self.file(f"{path}/config", configuration(vendor, device, class_code, buses, speed, width, most_width))
        self.links[f"{path}/subsystem"] = "/sys/bus/pci"
        return path

    def driver(self, path, name):
        self.links[f"{path}/driver"] = f"/sys/bus/pci/drivers/{name}"
        self.file(f"/sys/bus/pci/drivers/{name}/module/version", "1")

    def gpu(self, address, parents, node=0, name="NVIDIA Test", **more):
        path = self.pci(address, parents, GPU, node, vendor=0x10de, device=0x2335, **more)
        self.driver(path, "nvidia")
        self.answers["gpus"].append({"pci": address, "uuid": f"GPU-{address}", "name": name})
        return path

    def nic(self, address, parents, node=0, rdma="mlx5_0", netdev="eth0", state="4: ACTIVE", rate="200 Gb/sec (2X NDR)", **more):
        path = self.pci(address, parents, ETHERNET, node, vendor=0x15b3, device=0x1021, **more)
        self.driver(path, "mlx5_core")
        if netdev:
            self.links[f"/sys/class/net/{netdev}"] = f"../..{path.removeprefix('/sys')}/net/{netdev}"
            for name, value in (("operstate", "up"), ("mtu", "9000"), ("speed", "200000"), ("type", "1")):
                self.file(f"{path}/net/{netdev}/{name}", value)
            self.links[f"{path}/net/{netdev}/device"] = f"../../../{address}"
        if rdma:
            self.links[f"/sys/class/infiniband/{rdma}"] = f"../..{path.removeprefix('/sys')}/infiniband/{rdma}"
            self.links[f"{path}/infiniband/{rdma}/device"] = f"../../../{address}"
            self.file(f"{path}/infiniband/{rdma}/node_type", "1: CA")
            port = f"{path}/infiniband/{rdma}/ports/1"
            for name, value in (("state", state), ("phys_state", "5: LinkUp"), ("rate", rate), ("link_layer", "Ethernet"),
                                ("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001"), ("gid_attrs/types/0", "RoCE v2"),
                                ("gid_attrs/ndevs/0", netdev or "")):
                self.file(f"{port}/{name}", value)
        return path

    def document(self):
        return {"format": "gigabar-machine", "version": 1, "remark": self.remark, "date": "2026-01-01T00:00:00Z",
                "files": self.files, "unreadable": self.unreadable, "links": self.links, "folders": self.folders,
                "devices": self.devices, "answers": self.answers}

    def text(self):
        return json.dumps(self.document())

    def write_folder(self, root):
        """The files and links as a folder, which holds no answers of drivers."""
        for path, content in self.files.items():
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            with open(root + path, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else base64.b64decode(content["base64"]))
        for path, target in self.links.items():
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            if target.startswith("/"):
                target = os.path.relpath(target, os.path.dirname(path))
            os.symlink(target, root + path)
        return root


def two_sockets(remark="constructed for a test"):
    """Socket 0: a switch with GPUs 3d and 3e and NIC 3f (mlx5_0), and below it a second switch with NIC 42 (mlx5_1). Socket 1: GPU
    bc and NIC bb (mlx5_2, x8 of x16) at ports of one root complex, NIC db (mlx5_3) at another."""
    machine = MachineFiles([(0, 3), (4, 7)], remark)
    root, switch = "0000:3a:01.0", "0000:3b:00.0"
    machine.pci(root, buses=(0x3a, 0x3b, 0x42))
    machine.pci(switch, (root,), buses=(0x3b, 0x3c, 0x42))
    ports = [f"0000:3c:0{number}.0" for number in range(4)]
    for number, port in enumerate(ports):
        machine.pci(port, (root, switch), buses=(0x3c, *((0x3d + number, 0x3d + number) if number < 3 else (0x40, 0x42))))
    machine.gpu("0000:3d:00.0", (root, switch, ports[0]))
    machine.gpu("0000:3e:00.0", (root, switch, ports[1]))
    machine.nic("0000:3f:00.0", (root, switch, ports[2]), rdma="mlx5_0", netdev="eth0")
    second, below = "0000:40:00.0", "0000:41:00.0"
    machine.pci(second, (root, switch, ports[3]), buses=(0x40, 0x41, 0x42))
    machine.pci(below, (root, switch, ports[3], second), buses=(0x41, 0x42, 0x42))
    machine.nic("0000:42:00.0", (root, switch, ports[3], second, below), rdma="mlx5_1", netdev="eth1")
    machine.pci("0000:ba:00.0", node=1, buses=(0xba, 0xbb, 0xbb))
    machine.pci("0000:ba:01.0", node=1, buses=(0xba, 0xbc, 0xbc))
    machine.pci("0000:da:00.0", node=1, buses=(0xda, 0xdb, 0xdb))
    machine.nic("0000:bb:00.0", ("0000:ba:00.0",), node=1, rdma="mlx5_2", netdev="eth2", width=8)
    machine.gpu("0000:bc:00.0", ("0000:ba:01.0",), node=1)
    machine.nic("0000:db:00.0", ("0000:da:00.0",), node=1, rdma="mlx5_3", netdev="eth3")
    return machine


def equal_nics(switch_count=2, gpu_count=2, nic_count=2):
    """Switches, each with GPUs and, as near to all of them, NICs."""
    machine = MachineFiles([(0, 7)])
    bus, nics = 0x10, 0
    for _ in range(switch_count):
        root, upper = f"0000:{bus:02x}:00.0", f"0000:{bus + 1:02x}:00.0"
        last = bus + 2 + gpu_count + nic_count
        machine.pci(root, buses=(bus, bus + 1, last))
        machine.pci(upper, (root,), buses=(bus + 1, bus + 2, last))
        for slot in range(gpu_count + nic_count):
            port, below = f"0000:{bus + 2:02x}:{slot:02x}.0", bus + 3 + slot
            machine.pci(port, (root, upper), buses=(bus + 2, below, below))
            if slot < gpu_count:
                machine.gpu(f"0000:{below:02x}:00.0", (root, upper, port))
            else:
                machine.nic(f"0000:{below:02x}:00.0", (root, upper, port), rdma=f"mlx5_{nics}", netdev=f"eth{nics}")
                nics += 1
        bus = last + 1
    return machine


def without_devices():
    return MachineFiles([(0, 1)])
