# SPDX-License-Identifier: Apache-2.0
"""ConnectX adapters with their InfiniBand and network devices, plain Ethernet adapters, and the nodes in /dev/infiniband."""

from .host import add_character_devices
from .pci import MIB

VENDOR = 0x15B3
MANY_ECN_PRIORITIES = 8
# Those that a healthy port has at zero.
HARDWARE_COUNTERS = ("duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
                     "packet_seq_err", "req_cqe_error", "req_remote_access_errors", "resp_cqe_error", "rnr_nak_retry_err",
                     "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "np_cnp_sent", "np_ecn_marked_roce_packets",
                     "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated")
PORT_COUNTERS = ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
                 "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_wait")

STATES = {"DOWN": "1: DOWN", "INIT": "2: INIT", "ARMED": "3: ARMED", "ACTIVE": "4: ACTIVE"}
PHYSICAL_STATES = {"DOWN": "3: Disabled", "INIT": "5: LinkUp", "ARMED": "5: LinkUp", "ACTIVE": "5: LinkUp"}
RATES = {400: "400 Gb/sec (4X NDR)", 200: "200 Gb/sec (4X HDR)", 100: "100 Gb/sec (4X EDR)", 40: "40 Gb/sec (4X QDR)"}


class Model:
    def __init__(self, device, part, firmware, board, speed):
        self.device, self.part, self.firmware, self.board, self.speed = device, part, firmware, board, speed


CONNECTX_7 = Model(0x1021, "MT4129", "28.45.1200", "MT_0000000838", 32.0)
CONNECTX_6 = Model(0x101B, "MT4123", "20.43.2026", "MT_0000000223", 16.0)
CONNECTX_6_DX = Model(0x101D, "MT4125", "22.43.2026", "MT_0000000359", 16.0)


class ConnectX:
    """One function with one port. `gbit` is the rate of the port; `is_roce`: Ethernet, with an IPv4 address if `has_address`."""

    def __init__(self, parent, address, model, gbit, is_roce=False, state="ACTIVE", speed=None, width=16, mtu=None,
                 active_mtu=4096, has_address=True, has_ecn=True, relaxed_ordering=True, mrrs_bytes=4096):
        machine = self.machine = parent.machine
        self.index = len(machine.answers["rdma_devices"])
        self.name = f"mlx5_{self.index}"
        self.gbit, self.is_roce, self.state, self.has_address, self.model = gbit, is_roce, state, has_address, model
        self.net_device = f"rdma{self.index}" if is_roce else f"ib{self.index}"
        self.mtu = mtu or (9000 if is_roce else 4092)
        self.pci = parent.endpoint(address, (VENDOR, model.device), 0x020000 if is_roce else 0x020700, speed=speed or model.speed,
                                   most_speed=model.speed, width=width, most_width=16, driver="mlx5_core", ats=False,
                                   bars=[(0, 32 * MIB, True)], subsystem=(VENDOR, 0x0041), relaxed_ordering=relaxed_ordering,
                                   mrrs_bytes=mrrs_bytes)
        self.write_device()
        self.write_port()
        self.write_gids()
        self.write_net_device(has_ecn)
        machine.answers["rdma_devices"].append({"name": self.name, "active_mtu": [active_mtu if state != "DOWN" else 1024]})

    @property
    def guid(self):
        return f"b83f:d203:00aa:{self.index:02x}10"

    def write_device(self):
        machine, folder = self.machine, f"{self.pci.path}/infiniband/{self.name}"
        machine.files_in(folder, {
            "node_type": "1: CA", "node_guid": self.guid, "sys_image_guid": self.guid, "fw_ver": self.model.firmware,
            "hw_rev": "0", "hca_type": self.model.part, "board_id": self.model.board, "node_desc": f"node {self.name}",
        })
        machine.link(f"{folder}/device", self.pci.path)
        machine.link(f"{folder}/subsystem", "/sys/class/infiniband")
        machine.link(f"/sys/class/infiniband/{self.name}", folder)
        verbs = f"uverbs{self.index}"
        machine.files_in(f"{self.pci.path}/infiniband_verbs/{verbs}", {"ibdev": self.name, "abi_version": "1",
                                                                        "dev": f"231:{192 + self.index}"})
        machine.link(f"{self.pci.path}/infiniband_verbs/{verbs}/device", self.pci.path)
        machine.link(f"/sys/class/infiniband_verbs/{verbs}", f"{self.pci.path}/infiniband_verbs/{verbs}")
        machine.device(f"/dev/infiniband/{verbs}", 231, 192 + self.index)

    def write_port(self):
        folder = f"{self.pci.path}/infiniband/{self.name}/ports/1"
        self.machine.files_in(folder, {
            "state": STATES[self.state], "phys_state": PHYSICAL_STATES[self.state],
            "rate": RATES[self.gbit] if self.state != "DOWN" else RATES[40],
            "link_layer": "Ethernet" if self.is_roce else "InfiniBand",
            "lid": "0x0" if self.is_roce else f"0x{self.index + 17:x}",
            "sm_lid": "0x0" if self.is_roce or self.state != "ACTIVE" else "0x1",
            "cap_mask": "0x04010000" if self.is_roce else "0xa751e848",
            "pkeys/0": "0xffff",
        })
        self.machine.files_in(f"{folder}/hw_counters", {name: "0" for name in HARDWARE_COUNTERS})
        self.machine.files_in(f"{folder}/counters", {name: "0" for name in PORT_COUNTERS})

    def write_gids(self):
        """A network device's link-local address and its own, each as RoCE v1 and v2; InfiniBand has only the port's."""
        machine, folder = self.machine, f"{self.pci.path}/infiniband/{self.name}/ports/1"
        if self.is_roce:
            local = f"fe80:0000:0000:0000:ba3f:d2ff:feaa:{self.index:02x}10"
            own = f"0000:0000:0000:0000:0000:ffff:0a{self.index:02x}:0001"
            entries = [(gid, kind) for gid in [local, *([own] if self.has_address else [])] for kind in ("IB/RoCE v1", "RoCE v2")]
        else:
            entries = [(f"fe80:0000:0000:0000:{self.guid}", "IB/RoCE v1")]
        for index, (gid, kind) in enumerate(entries):
            machine.file(f"{folder}/gids/{index}", gid)
            machine.file(f"{folder}/gid_attrs/types/{index}", kind)
            if self.is_roce:
                machine.file(f"{folder}/gid_attrs/ndevs/{index}", self.net_device)
            else:
                machine.hide(f"{folder}/gid_attrs/ndevs/{index}", "Invalid argument")
        for index in range(len(entries), len(entries) + 4):  # of the many empty entries
            machine.file(f"{folder}/gids/{index}", "0000:0000:0000:0000:0000:0000:0000:0000")
            machine.hide(f"{folder}/gid_attrs/types/{index}", "Invalid argument")
            machine.hide(f"{folder}/gid_attrs/ndevs/{index}", "Invalid argument")

    def write_net_device(self, has_ecn):
        folder = f"{self.pci.path}/net/{self.net_device}"
        write_network_device(self.pci, self.net_device, self.gbit * 1000, self.mtu, self.state == "ACTIVE",
                             1 if self.is_roce else 32)
        if self.is_roce:
            # Of the vendor's driver package: congestion notification for each of eight priorities, as receiver and as sender.
            for role in ("roce_np", "roce_rp"):
                self.machine.files_in(f"{folder}/ecn/{role}/enable",
                                      {str(priority): "1" if has_ecn else "0" for priority in range(MANY_ECN_PRIORITIES)})


class ElasticFabricAdapter:
    """EFA of one port. It has no network device, no address of IP and none of InfiniBand's or RoCE's queue pairs."""

    def __init__(self, parent, address):
        machine = parent.machine
        index = len(machine.answers["rdma_devices"])
        self.pci = parent.endpoint(address, (0x1D0F, 0xEFA2), 0x020000, speed=32.0, width=16, driver="efa", bars=[(0, MIB, False)])
        self.name = f"rdmap{self.pci.bus}s0"
        folder = f"{self.pci.path}/infiniband/{self.name}"
        machine.files_in(folder, {"node_type": "7: unspecified", "node_guid": f"0000:0000:0000:{index:02x}10", "hw_rev": "0",
                                  "fw_ver": "0.0.0.0"})
        machine.link(f"{folder}/device", self.pci.path)
        machine.link(f"/sys/class/infiniband/{self.name}", folder)
        machine.files_in(f"{folder}/ports/1", {
            "state": STATES["ACTIVE"], "phys_state": PHYSICAL_STATES["ACTIVE"], "rate": RATES[100], "link_layer": "Unspecified",
            "lid": "0x0", "sm_lid": "0x0", "cap_mask": "0x00000000", "pkeys/0": "0xffff",
            "gids/0": f"fe80:0000:0000:0000:0000:00ff:fe00:{index:02x}10", "gid_attrs/types/0": "IB/RoCE v1",
        })
        machine.files_in(f"{folder}/ports/1/hw_counters", {"rx_drops": "0", "send_wrs": "0"})
        verbs = f"uverbs{index}"
        machine.files_in(f"{self.pci.path}/infiniband_verbs/{verbs}", {"ibdev": self.name, "abi_version": "1",
                                                                        "dev": f"231:{192 + index}"})
        machine.link(f"{self.pci.path}/infiniband_verbs/{verbs}/device", self.pci.path)
        machine.link(f"/sys/class/infiniband_verbs/{verbs}", f"{self.pci.path}/infiniband_verbs/{verbs}")
        machine.device(f"/dev/infiniband/{verbs}", 231, 192 + index)
        machine.answers["rdma_devices"].append({"name": self.name, "active_mtu": [4096]})


def write_network_device(pci, name, mbit, mtu, is_up, kind=1):
    machine, folder = pci.machine, f"{pci.path}/net/{name}"
    machine.files_in(folder, {"operstate": "up" if is_up else "down", "mtu": str(mtu), "type": str(kind),
                              "flags": "0x1003" if is_up else "0x1002", "dev_id": "0x0", "dev_port": "0", "tx_queue_len": "1000"})
    if is_up:
        machine.files_in(folder, {"carrier": "1", "speed": str(mbit), "duplex": "full"})
    else:  # reading these of an interface that is down gives an error
        machine.hide(f"{folder}/carrier", "Invalid argument")
        machine.file(f"{folder}/speed", "-1")
    machine.link(f"{folder}/device", pci.path)
    machine.link(f"/sys/class/net/{name}", folder)
    machine.link(f"{folder}/subsystem", "/sys/class/net")


def ethernet(parent, address, ids, driver, name, mbit=1000, mtu=1500, **options):
    """An adapter without RDMA. `parent` is a port, or a host bridge for a function of the chipset."""
    device = parent.endpoint(address, ids, 0x020000, driver=driver, bars=[(0, MIB, False)], **options)
    parent.machine.module(driver)
    write_network_device(device, name, mbit, mtu, True)
    return device


def loopback(machine):
    folder = "/sys/devices/virtual/net/lo"
    machine.files_in(folder, {"operstate": "unknown", "mtu": "65536", "type": "772", "flags": "0x9"})
    machine.link("/sys/class/net/lo", folder)


def rdma_stack(machine, has_dmabuf=True, modules=("mlx5_core", "mlx5_ib")):
    """Modules, device nodes and the library; called once, before or after the adapters."""
    for name in ("ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", *modules):
        machine.module(name)
    machine.file("/sys/class/infiniband_verbs/abi_version", "6")
    add_character_devices(machine, [(231, "infiniband_verbs"), (231, "infiniband_mad")])
    machine.device("/dev/infiniband/rdma_cm", 10, 58)
    for provider in {name.split("_")[0] for name in modules}:
        machine.file(f"/etc/libibverbs.d/{provider}.driver", f"driver {provider}")
    loopback(machine)
    machine.answers.update(verbs={"code": "ok", "reason": "libibverbs.so.1", "remedy": ""}, verbs_has_dmabuf=has_dmabuf)
