// SPDX-License-Identifier: Apache-2.0
// A machine's topology: PCI tree, NUMA nodes, GPUs, NICs, NVLinks, and the route between any two devices.
// /sys and the drivers tell of it; hwloc supplies the names of this machine's devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

// The PCIe link of a device towards the root.
struct PciLinkFacts {
  double gt_per_s = 0;       // per lane, at present; an idle device may lower it. 0: not reported
  unsigned width = 0;        // lanes, at present; 0: not reported
  double most_gt_per_s = 0;  // maximum of the device
  unsigned most_width = 0;
};

// A bridge or a device of the PCI tree.
struct PciNode {
  PciAddress address;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint32_t class_code = 0;  // 0x030200: base class, subclass, interface
  std::string name;              // from the PCI ids database when hwloc has it; may be empty
  bool is_bridge = false;
  int parent = -1;           // index into Topology::pci of the bridge above; -1: at a root of the tree
  std::string root_complex;  // "pci0000:3a": the host bridge above it
  int numa_node = -1;        // when the machine does not report it: the only node with CPUs, or -1 where there are several
  PciLinkFacts link;
  std::string driver;  // the kernel driver; empty: none
};

struct NumaNode {
  int index = 0;
  int package = -1;
  std::vector<int> cpus;  // empty: memory only (a coherent GPU's, or an expander's)
  std::uint64_t memory_bytes = 0;
};

struct Gpu {
  int pci = -1;  // index into Topology::pci; -1: the driver reports a GPU that is not in the PCI tree
  PciAddress address;
  std::optional<int> cuda_index;
  std::string name;  // from the driver, else from the PCI ids
  std::string uuid;  // empty: not reported
  int numa_node = -1;
  bool is_coherent = false;  // connected to its CPU by NVLink-C2C, memory shared
  unsigned nvlinks_active = 0;
  unsigned nvlinks_total = 0;
};

struct GidEntry {
  int index = 0;
  std::string gid;     // "fe80:0000:..."; entries of zeros are left out
  std::string type;    // "IB/RoCE v1", "RoCE v2"; empty: not reported
  std::string netdev;  // empty: not reported
};

struct RdmaPort {
  int number = 1;
  std::string state;       // "ACTIVE", "DOWN", "INIT", ...; empty: not reported
  std::string link_layer;  // "InfiniBand" or "Ethernet"; empty: not reported
  double rate_gbit_per_s = 0;
  std::optional<unsigned> active_mtu;  // bytes
  std::vector<GidEntry> gids;
};

struct NetDevice {
  std::string name;   // "eth0"
  std::string state;  // operstate
  std::optional<unsigned> mtu;
  std::optional<double> gbit_per_s;
};

// A network adapter: one PCI function with its network and RDMA devices, or one RDMA device without a PCI function (soft-RoCE,
// soft-iWARP). Loopback and virtual network devices without RDMA are not NICs.
struct Nic {
  int pci = -1;             // index into Topology::pci; -1: none
  std::string name;         // the RDMA device's, else the first network device's, else the PCI address: "mlx5_0", "eth0"
  std::string rdma_device;  // empty: none
  std::string driver;
  int numa_node = -1;
  std::vector<RdmaPort> ports;
  std::vector<NetDevice> net_devices;

  // Sum of all active ports; 0: not reported.
  GIGABAR_API double rate_gbit_per_s() const noexcept;
};

// NVLinks between two GPUs. Through NVSwitches every GPU is connected to every other with all of its links.
struct NvLinkBond {
  int first = 0, second = 0;  // indexes into Topology::gpus, first < second
  unsigned count = 0;
  double gb_per_s = 0;  // in each direction, all links together; 0: not reported
  bool is_switched = false;
};

// From near to far. In brackets what `nvidia-smi topo -m` prints.
enum class Relation : std::uint8_t {
  same_device,       // [X] the same device, or functions of one device
  nvlink,            // [NV#] NVLinks directly or through NVSwitches
  same_switch,       // [PIX] at most one PCIe bridge or switch between them
  several_switches,  // [PXB] several, without crossing the host bridge
  same_root,         // [PHB] across one PCIe host bridge (the CPU)
  same_node,         // [NODE] across host bridges of one NUMA node
  other_node,        // [SYS] across the link between NUMA nodes
  unknown,           // [?]
};
GIGABAR_API std::string_view name_of(Relation relation) noexcept;                  // "same_switch"
GIGABAR_API std::string short_name(Relation relation, unsigned nvlink_count = 0);  // "PIX", "NV18"

// One end of a route.
struct Endpoint {
  enum class Kind : std::uint8_t { gpu, nic, numa_node } kind = Kind::gpu;
  int index = 0;  // into Topology::gpus, nics or numa_nodes
};

struct Route {
  Relation relation = Relation::unknown;
  unsigned nvlink_count = 0;
  std::vector<PciAddress> hops;    // PCI nodes whose links are crossed, from the first end to the second; empty for NVLink
  std::optional<double> gb_per_s;  // theoretical, in each direction, of the narrowest link; nothing: not known. Speeds are the ones
                                   // that both ends of a link support, since idle devices lower them; widths are the current ones
  std::string
      bottleneck;  // the narrowest: "PCIe 4.0 x8 at 0000:3b:00.0", "mlx5_0 port at 200 Gb/s", "NVLink x18"; empty: not known
};

struct Topology {
  std::vector<PciNode> pci;  // parents before children
  std::vector<NumaNode> numa_nodes;
  std::vector<Gpu> gpus;  // CUDA's order where it is known, then by address
  std::vector<Nic> nics;  // by PCI address, then by name
  std::vector<NvLinkBond> nvlinks;
  std::vector<std::string> notes;  // what could not be discovered, and why

  // Index into gpus / nics / numa_nodes; -1: none. `name` of a NIC is its name, RDMA device or network device.
  GIGABAR_API int find_pci(const PciAddress& address) const noexcept;
  GIGABAR_API int find_nic(std::string_view name) const noexcept;
  GIGABAR_API int find_numa_node(int number) const noexcept;
};

// Discovers the whole machine. Errors: not_supported (hwloc cannot be used; the record says why), out_of_memory. Threads: any.
// Cost: tens to hundreds of ms.
GIGABAR_API Result<Topology> discover_topology(const Machine& machine);

// Returns the route between two ends. Indexes out of range give `unknown`.
GIGABAR_API Route route_between(const Topology& topology, Endpoint first, Endpoint second);

// The NICs of one GPU.
struct NicOrder {
  std::vector<int> nics;        // indexes into Topology::nics, in the order in which the GPU should use them
  std::size_t equal_count = 0;  // how many of the first ones are as near, up and fast as the first; 0: there is no NIC
  std::string reason;           // of the first: "the nearest", "one of 2 equally near NICs, dealt by order of the GPUs"
};

// Returns the NICs of each GPU, by index into Topology::gpus, in the order in which the GPU should use them: nearest relation, then
// ports that are up, the same package, highest bottleneck. NICs that are equal in all of these, and first, are distributed over the
// GPUs that have the same first NICs: the i-th of these GPUs, by PCI address, begins with the i-th NIC; with fewer NICs than GPUs
// the distribution starts again with the first NIC. `turn` is the number of ranks that already work with each GPU; ranks that share
// a GPU continue the distribution. Other equal NICs are in the order of the topology. With `only_rdma`, only NICs that have an RDMA
// device. Cost: a route for each pair of a GPU and a NIC.
GIGABAR_API std::vector<NicOrder> nic_orders(const Topology& topology, bool only_rdma = true, std::size_t turn = 0);

// Returns the order of one GPU; empty for an index out of range. For several GPUs call nic_orders() once.
GIGABAR_API std::vector<int> nearest_nics(const Topology& topology, int gpu, bool only_rdma = true);

}  // namespace gigabar::inline v0
