// SPDX-License-Identifier: Apache-2.0
// discover_topology over machines made of files and answers: gigabar/topology.hpp.
#include "gigabar/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "platform/topology_parts.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "unit/platform/captured_machine.hpp"

namespace gigabar {
namespace {

using test::CapturedMachine;

#if GIGABAR_HAS_HWLOC

constexpr const char* kNvidia = "0x10de";
constexpr const char* kMellanox = "0x15b3";
constexpr const char* kBridge = "0x060400";
constexpr const char* kGpu = "0x030200";
constexpr const char* kEthernet = "0x020000";

nvml::NvLink to_switch(unsigned mb_per_s) { return {true, true, "FFFFFFFF:FF:FF.F", mb_per_s}; }
nvml::NvLink to_gpu(const char* address, unsigned mb_per_s) { return {true, false, address, mb_per_s}; }

bool has_note(const Topology& topology, std::string_view part) {
  return std::any_of(topology.notes.begin(), topology.notes.end(),
                     [part](const std::string& note) { return note.find(part) != std::string::npos; });
}

const PciNode& node_at(const Topology& topology, const char* address) {
  return topology.pci.at(static_cast<std::size_t>(topology.find_pci(*PciAddress::parse(address))));
}

const Nic& nic_named(const Topology& topology, const char* name) {
  return topology.nics.at(static_cast<std::size_t>(topology.find_nic(name)));
}

// Two sockets. Under the first a switch with a GPU (with its audio function) and an adapter; under the second a GPU and an adapter
// on ports of their own.
CapturedMachine& make_two_sockets(CapturedMachine& machine) {
  machine.cpus(4);
  machine.pci("pci0000:3a/0000:3a:01.0", kBridge, "0x8086", 0);
  const std::string upper = "pci0000:3a/0000:3a:01.0/0000:3b:00.0";
  machine.pci(upper, kBridge, "0x1000", 0);
  machine.pci(upper + "/0000:3c:00.0", kBridge, "0x1000", 0);
  machine.pci(upper + "/0000:3c:01.0", kBridge, "0x1000", 0);
  machine.pci(upper + "/0000:3c:00.0/0000:3d:00.0", kGpu, kNvidia, 0, "2.5 GT/s PCIe");
  machine.pci(upper + "/0000:3c:00.0/0000:3d:00.1", "0x040300", kNvidia, 0);
  const std::string first_nic = upper + "/0000:3c:01.0/0000:3e:00.0";
  machine.pci(first_nic, kEthernet, kMellanox, 0, "16.0 GT/s PCIe", "8");
  machine.link("/sys/devices/" + first_nic + "/driver", "../../../../../../bus/pci/drivers/mlx5_core");
  machine.file("/sys/bus/pci/drivers/mlx5_core/uevent", "");
  machine.rdma("mlx5_0", first_nic);
  machine.net("eth0", first_nic, "up", "400000");
  machine.pci("pci0000:ba/0000:ba:01.0", kBridge, "0x8086", 1);
  machine.pci("pci0000:ba/0000:ba:01.0/0000:bb:00.0", kGpu, kNvidia, -1);
  machine.pci("pci0000:ba/0000:ba:02.0", kBridge, "0x8086", 1);
  machine.pci("pci0000:ba/0000:ba:02.0/0000:bc:00.0", kEthernet, kMellanox, 1);
  machine.rdma("mlx5_1", "pci0000:ba/0000:ba:02.0/0000:bc:00.0");
  machine.gpu_answers("0000:bb:00.0", 0);
  machine.gpu_answers("0000:3d:00.0", 1);
  return machine;
}

TEST(Topology, PciTree) {
  CapturedMachine machine;
  const Topology found = make_two_sockets(machine).topology();
  EXPECT_EQ(found.pci.size(), 11u);
  for (std::size_t i = 0; i < found.pci.size(); ++i) EXPECT_LT(found.pci[i].parent, static_cast<int>(i));
  const PciNode& nic = node_at(found, "0000:3e:00.0");
  EXPECT_EQ(nic.parent, found.find_pci(*PciAddress::parse("0000:3c:01.0")));
  EXPECT_EQ(nic.root_complex, "pci0000:3a");
  EXPECT_EQ(nic.vendor, 0x15b3);
  EXPECT_EQ(nic.device, 0x1234);
  EXPECT_EQ(nic.class_code, 0x020000u);
  EXPECT_EQ(nic.driver, "mlx5_core");
  EXPECT_EQ(nic.numa_node, 0);
  EXPECT_FALSE(nic.is_bridge);
  EXPECT_EQ(nic.link.gt_per_s, 16);
  EXPECT_EQ(nic.link.width, 8u);
  EXPECT_EQ(nic.link.most_gt_per_s, 32);
  EXPECT_EQ(nic.link.most_width, 16u);
  EXPECT_TRUE(node_at(found, "0000:3a:01.0").is_bridge);
  EXPECT_EQ(node_at(found, "0000:3a:01.0").parent, -1);
  EXPECT_EQ(found.find_pci(*PciAddress::parse("0000:99:00.0")), -1);
}

TEST(Topology, NumaNodes) {
  CapturedMachine machine;
  machine.cpus(4);
  // A memory-only node, as of a coherent GPU.
  machine.node(2, "0\n", "");
  machine.file("/sys/devices/system/node/online", "0-2\n");
  const Topology found = machine.topology();
  ASSERT_EQ(found.numa_nodes.size(), 3u);
  EXPECT_EQ(found.numa_nodes[1].index, 1);
  EXPECT_EQ(found.numa_nodes[1].package, 1);
  EXPECT_EQ(found.numa_nodes[1].cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(found.numa_nodes[1].memory_bytes, std::uint64_t{1} << 30);
  EXPECT_TRUE(found.numa_nodes[2].cpus.empty());
  EXPECT_EQ(found.numa_nodes[2].memory_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(found.find_numa_node(2), 2);
  EXPECT_EQ(found.find_numa_node(7), -1);
}

// In virtual machines the kernel often says -1.
TEST(Topology, ADeviceWithoutANodeIsOnTheOnlyOne) {
  for (const int cpus : {2, 4}) {
    CapturedMachine machine;
    machine.cpus(cpus);
    machine.node(2, "0\n", "");  // of memory alone
    machine.file("/sys/devices/system/node/online", cpus == 2 ? "0,2\n" : "0-2\n");
    machine.pci("pci0000:00/0000:00:04.0", kEthernet, kMellanox, -1);
    const int expected = cpus == 2 ? 0 : -1;
    EXPECT_EQ(node_at(machine.topology(), "0000:00:04.0").numa_node, expected) << cpus;
  }
}

TEST(Topology, GpusInCudasOrder) {
  CapturedMachine machine;
  const Topology found = make_two_sockets(machine).topology();
  ASSERT_EQ(found.gpus.size(), 2u) << "the audio function is none";
  EXPECT_EQ(found.gpus[0].address.to_string(), "0000:bb:00.0");
  EXPECT_EQ(found.gpus[0].cuda_index, 0);
  EXPECT_EQ(found.gpus[0].numa_node, -1);
  EXPECT_EQ(found.gpus[1].address.to_string(), "0000:3d:00.0");
  EXPECT_EQ(found.gpus[1].pci, found.find_pci(found.gpus[1].address));
  EXPECT_EQ(found.gpus[1].uuid, "GPU-0000:3d:00.0");
  EXPECT_EQ(found.gpus[1].name, "NVIDIA H200");
  EXPECT_FALSE(found.gpus[1].is_coherent);
}

TEST(Topology, GpusThatOnlyOneSideKnows) {
  CapturedMachine machine;
  machine.cpus(2);
  machine.pci("pci0000:00/0000:00:05.0", "0x030000", kNvidia, 0);
  machine.pci("pci0000:00/0000:00:06.0", "0x030000", "0x1002", 0);  // another vendor's
  machine.gpu_answers("00000000:AB:00.0", 3);
  machine.gpu_answers("nonsense", 4);
  machine.gpu_answers("0000:ab:00.0", 5);
  machine.answers.gpus[0].c2c_links = 10;
  machine.answers.cuda = {AvailabilityCode::library_missing, "libcuda.so.1 is not there", "", {}};
  machine.answers.nvml = {AvailabilityCode::library_missing, "libnvidia-ml.so.1 is not there", "", {}};
  const Topology found = machine.topology();
  ASSERT_EQ(found.gpus.size(), 2u);
  EXPECT_EQ(found.gpus[0].pci, -1);
  EXPECT_EQ(found.gpus[0].cuda_index, 3);
  EXPECT_TRUE(found.gpus[0].is_coherent);
  EXPECT_EQ(found.gpus[1].address.to_string(), "0000:00:05.0");
  EXPECT_FALSE(found.gpus[1].cuda_index);
  EXPECT_TRUE(has_note(found, "0000:ab:00.0, which the PCI tree does not have"));
  EXPECT_TRUE(has_note(found, "without a PCI address"));
  EXPECT_TRUE(has_note(found, "libcuda.so.1 is not there"));
  EXPECT_TRUE(has_note(found, "libnvidia-ml.so.1 is not there"));
}

TEST(Topology, NvLinksBetweenGpus) {
  CapturedMachine machine;
  machine.cpus(2);
  for (const char* bus : {"0", "1", "2"}) machine.pci(std::string("pci0000:00/0000:00:0") + bus + ".0", kGpu, kNvidia, 0);
  const nvml::NvLink down{};
  machine.gpu_answers("0000:00:00.0", 0, {to_gpu("00000000:00:01.0", 25000), to_gpu("00000000:00:01.0", 25000), down});
  machine.gpu_answers("0000:00:01.0", 1, {to_gpu("00000000:00:00.0", 25000), to_gpu("00000000:00:02.0", 0)});
  machine.gpu_answers("0000:00:02.0", 2, {down, to_gpu("", 25000), to_gpu("FFFFFFFF:FF:FF.F", 25000)});
  const Topology found = machine.topology();
  EXPECT_EQ(found.gpus.at(0).nvlinks_active, 2u);
  EXPECT_EQ(found.gpus.at(0).nvlinks_total, 3u);
  ASSERT_EQ(found.nvlinks.size(), 2u);
  EXPECT_EQ(found.nvlinks[0].first, 0);
  EXPECT_EQ(found.nvlinks[0].second, 1);
  EXPECT_EQ(found.nvlinks[0].count, 2u);
  EXPECT_DOUBLE_EQ(found.nvlinks[0].gb_per_s, 50);
  EXPECT_FALSE(found.nvlinks[0].is_switched);
  EXPECT_EQ(found.nvlinks[1].second, 2) << "one side alone is believed";
  EXPECT_EQ(found.nvlinks[1].count, 1u);
  EXPECT_EQ(found.nvlinks[1].gb_per_s, 0) << "not told";
  EXPECT_TRUE(has_note(found, "0000:00:02.0: NVML does not say where 2 active NVLinks lead"));
}

TEST(Topology, NvLinksThroughSwitches) {
  CapturedMachine machine;
  machine.cpus(2);
  for (const char* bus : {"0", "1", "2"}) machine.pci(std::string("pci0000:00/0000:00:0") + bus + ".0", kGpu, kNvidia, 0);
  machine.pci("pci0000:00/0000:00:07.0", "0x068000", kNvidia, 0);
  const nvml::NvLink told_by_address{true, false, "00000000:00:07.0", 26562};
  machine.gpu_answers("0000:00:00.0", 0, {to_switch(26562), to_switch(26562), to_switch(26562)});
  machine.gpu_answers("0000:00:01.0", 1, {told_by_address, told_by_address});
  machine.gpu_answers("0000:00:02.0", 2, {});
  const Topology found = machine.topology();
  EXPECT_EQ(found.gpus.size(), 3u) << "the switch is none";
  ASSERT_EQ(found.nvlinks.size(), 1u);
  EXPECT_TRUE(found.nvlinks[0].is_switched);
  EXPECT_EQ(found.nvlinks[0].count, 2u);
  EXPECT_NEAR(found.nvlinks[0].gb_per_s, 53.124, 1e-9);
}

TEST(Topology, Nics) {
  CapturedMachine machine;
  make_two_sockets(machine);
  machine.gid("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "eth0");
  machine.gid("mlx5_0", 10, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0");
  machine.gid("mlx5_0", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "eth0");
  RdmaDeviceAnswers told;
  told.name = "mlx5_0";
  told.active_mtu = {4096};
  machine.answers.rdma_devices = {told};
  const Topology found = machine.topology();
  ASSERT_EQ(found.nics.size(), 2u);
  const Nic& nic = nic_named(found, "mlx5_0");
  EXPECT_EQ(nic.rdma_device, "mlx5_0");
  EXPECT_EQ(nic.driver, "mlx5_core");
  EXPECT_EQ(nic.numa_node, 0);
  ASSERT_EQ(nic.ports.size(), 1u);
  EXPECT_EQ(nic.ports[0].state, "ACTIVE");
  EXPECT_EQ(nic.ports[0].link_layer, "Ethernet");
  EXPECT_EQ(nic.ports[0].rate_gbit_per_s, 400);
  EXPECT_EQ(nic.ports[0].active_mtu, 4096u);
  ASSERT_EQ(nic.ports[0].gids.size(), 2u);
  EXPECT_EQ(nic.ports[0].gids[1].index, 10);
  EXPECT_EQ(nic.ports[0].gids[1].type, "RoCE v2");
  EXPECT_EQ(nic.ports[0].gids[1].netdev, "eth0");
  ASSERT_EQ(nic.net_devices.size(), 1u);
  EXPECT_EQ(nic.net_devices[0].gbit_per_s, 400);
  EXPECT_EQ(nic.net_devices[0].mtu, 1500u);
  EXPECT_EQ(nic.rate_gbit_per_s(), 400);
  EXPECT_EQ(found.find_nic("eth0"), found.find_nic("mlx5_0"));
  EXPECT_EQ(found.find_nic("eth9"), -1);
  EXPECT_EQ(found.find_nic(""), -1);
  EXPECT_FALSE(nic_named(found, "mlx5_1").ports.at(0).active_mtu);
}

TEST(Topology, NicsOfOtherKinds) {
  CapturedMachine machine;
  machine.cpus(2);
  machine.pci("pci0000:00/0000:00:03.0", kEthernet, "0x1af4", -1, "Unknown", "0");
  machine.file("/sys/devices/pci0000:00/0000:00:03.0/virtio2/uevent", "");
  machine.link("/sys/devices/pci0000:00/0000:00:03.0/virtio2/driver", "../../../../bus/virtio/drivers/virtio_net");
  machine.file("/sys/bus/virtio/drivers/virtio_net/uevent", "");
  machine.net("ens3", "pci0000:00/0000:00:03.0/virtio2", "up", "-1");
  machine.pci("pci0000:00/0000:00:04.0", kEthernet, "0x8086", -1);  // nothing drives it
  machine.pci("pci0000:00/0000:00:05.0", "0x0c0330", "0x8086", -1);
  machine.file("/sys/devices/pci0000:00/0000:00:05.0/usb1/1-1/uevent", "");
  machine.net("usb0", "pci0000:00/0000:00:05.0/usb1/1-1");
  machine.net("lo", "", "unknown");
  machine.net("down0", "pci0000:00/0000:00:04.0", "down", "4294967295");
  const Topology found = machine.topology();
  ASSERT_EQ(found.nics.size(), 2u) << "neither loopback nor what is on USB";
  EXPECT_EQ(found.nics[0].name, "ens3");
  EXPECT_EQ(found.nics[0].driver, "virtio_net");
  EXPECT_EQ(found.nics[0].net_devices.at(0).gbit_per_s, std::nullopt);
  EXPECT_EQ(found.nics[0].rate_gbit_per_s(), 0);
  EXPECT_EQ(found.nics[1].name, "down0");
  EXPECT_EQ(found.nics[1].net_devices.at(0).gbit_per_s, std::nullopt);
  EXPECT_EQ(node_at(found, "0000:00:03.0").link.gt_per_s, 0);
}

TEST(Topology, ANicWithoutDevicesHasItsAddressForAName) {
  CapturedMachine machine;
  machine.cpus(2);
  machine.pci("pci0000:00/0000:00:04.0", "0x020700", kMellanox, 0);
  const Topology found = machine.topology();
  ASSERT_EQ(found.nics.size(), 1u);
  EXPECT_EQ(found.nics[0].name, "0000:00:04.0");
  EXPECT_TRUE(found.nics[0].rdma_device.empty());
  EXPECT_EQ(found.nics[0].driver, "");
}

TEST(Topology, RdmaOfSoftwareHasNoPciFunction) {
  CapturedMachine machine;
  machine.cpus(2);
  const std::string function = "pci0000:00/0000:00:03.0";
  machine.pci(function, kEthernet, "0x8086", 0);
  machine.net("eth0", function, "up", "10000");
  machine.rdma("rxe0", "", "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
  machine.file("/sys/devices/virtual/infiniband/rxe0/parent", "eth0\n");
  // As older kernels have it: the network device's function for a device.
  machine.rdma("rxe1", function, "1: DOWN");
  machine.file("/sys/devices/" + function + "/infiniband/rxe1/parent", "eth0\n");
  machine.rdma("siw_lo", "", "4: ACTIVE");
  const Topology found = machine.topology();
  ASSERT_EQ(found.nics.size(), 4u);
  EXPECT_EQ(found.nics[0].name, "eth0");
  EXPECT_EQ(found.nics[0].rdma_device, "");
  for (const char* name : {"rxe0", "rxe1"}) {
    const Nic& nic = nic_named(found, name);
    EXPECT_EQ(nic.pci, -1) << name;
    EXPECT_EQ(nic.driver, "rdma_rxe") << name;
    ASSERT_EQ(nic.net_devices.size(), 1u) << name;
    EXPECT_EQ(nic.net_devices[0].name, "eth0") << name;
  }
  EXPECT_EQ(nic_named(found, "siw_lo").pci, -1);
  EXPECT_EQ(nic_named(found, "siw_lo").driver, "");
  EXPECT_EQ(nic_named(found, "rxe0").rate_gbit_per_s(), 2.5);
  EXPECT_EQ(nic_named(found, "rxe1").rate_gbit_per_s(), 0);
}

TEST(Topology, TwoRdmaDevicesOnOneFunction) {
  CapturedMachine machine;
  machine.cpus(2);
  const std::string function = "pci0000:00/0000:00:03.0";
  machine.pci(function, kEthernet, kMellanox, 0);
  machine.rdma("mlx5_0", function);
  machine.file("/sys/devices/" + function + "/mlx5_core.sf.2/uevent", "");
  machine.rdma("mlx5_1", function + "/mlx5_core.sf.2");
  machine.gid("mlx5_1", 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "sf0");
  machine.net("sf0", function + "/mlx5_core.sf.2");
  machine.net("pf0", function);
  const Topology found = machine.topology();
  ASSERT_EQ(found.nics.size(), 2u);
  EXPECT_EQ(found.nics[0].pci, found.nics[1].pci);
  EXPECT_EQ(found.nics[0].net_devices.at(0).name, "pf0");
  EXPECT_EQ(found.nics[1].name, "mlx5_1");
  EXPECT_EQ(found.nics[1].net_devices.at(0).name, "sf0");
}

TEST(Topology, ABusBehindADeviceOfAnotherKindBeginsAnew) {
  CapturedMachine machine;
  machine.cpus(2);
  machine.pci("pci0000:00/0000:00:0e.0", "0x010400", "0x8086", 0);
  machine.pci("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0", kBridge, "0x8086", 0);
  const Topology found = machine.topology();
  const PciNode& port = node_at(found, "10000:e0:06.0");
  EXPECT_EQ(port.parent, -1);
  EXPECT_EQ(port.root_complex, "pci10000:e0");
}

TEST(Topology, MalformedFiles) {
  CapturedMachine machine;
  machine.cpus(4);
  const std::string place = "pci0000:00/0000:00:03.0";
  machine.pci(place, "2", "vendor", 0, "fast", "-16");
  for (const char* name : {"numa_node", "max_link_speed"})
    machine.file("/sys/devices/" + place + "/" + name, "99999999999999999999\n");
  machine.file("/sys/devices/" + place + "/max_link_width", "0x10\n");
  machine.pci("pci0000:00/0000:00:04.0", kEthernet, kMellanox, -7);
  machine.link("/sys/bus/pci/devices/nonsense", "../../../devices/" + place);
  machine.link("/sys/bus/pci/devices/0:0:3.0", "../../../devices/" + place);
  machine.link("/sys/bus/pci/devices/0000:00:1e.0", "0000:00:1f.0");
  machine.link("/sys/bus/pci/devices/0000:00:1f.0", "0000:00:1e.0");
  machine.rdma("odd0", "pci0000:00/0000:00:04.0", "ACTIVE", "nan Gb/sec");
  const std::string ports = "/sys/devices/pci0000:00/0000:00:04.0/infiniband/odd0/ports/";
  machine.file(ports + "0/state", "4: ACTIVE\n");
  machine.file(ports + "x/state", "4: ACTIVE\n");
  machine.file(ports + "1/gids/-1", "fe80::1\n");
  machine.file(ports + "1/gids/0", "\n");
  const Topology found = machine.topology();
  const PciNode& node = node_at(found, "0000:00:03.0");
  EXPECT_EQ(node.class_code, 0u);
  EXPECT_EQ(node.vendor, 0);
  EXPECT_EQ(node.numa_node, -1);
  EXPECT_EQ(node.link.gt_per_s, 0);
  EXPECT_EQ(node.link.width, 0u);
  EXPECT_EQ(node.link.most_gt_per_s, 0);
  EXPECT_EQ(node.link.most_width, 0u);
  EXPECT_EQ(node_at(found, "0000:00:04.0").numa_node, -1);
  EXPECT_EQ(found.find_pci(*PciAddress::parse("0000:00:1e.0")) >= 0, found.find_pci(*PciAddress::parse("0000:00:1f.0")) >= 0);
  EXPECT_TRUE(has_note(found, "0000:00:03.0: its class cannot be read"));
  EXPECT_TRUE(has_note(found, "no name of a PCI device"));
  const Nic& nic = nic_named(found, "odd0");
  ASSERT_EQ(nic.ports.size(), 1u);
  EXPECT_EQ(nic.ports[0].state, "ACTIVE") << "a state without its number is still one";
  EXPECT_EQ(nic.ports[0].rate_gbit_per_s, 0);
  EXPECT_TRUE(nic.ports[0].gids.empty());
}

// Without CPUs their packages are not known; the PCI tree is there all the same.
TEST(Topology, AMachineWithoutCpusIsReadFromItsFiles) {
  CapturedMachine machine;
  machine.pci("pci0000:00/0000:00:03.0", kGpu, kNvidia, 0);
  machine.node(0, "3\n", "0-1");
  const Topology found = machine.topology();
  EXPECT_EQ(found.gpus.size(), 1u);
  ASSERT_EQ(found.numa_nodes.size(), 1u);
  EXPECT_EQ(found.numa_nodes[0].cpus, (std::vector<int>{0, 1}));
  EXPECT_EQ(found.numa_nodes[0].memory_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(found.numa_nodes[0].package, -1);
  EXPECT_TRUE(has_note(found, "packages are not known"));
}

// Package 0 has nodes 0 and 1, package 1 has node 2; the others have memory alone, the last one's best way is from node 0.
TEST(Topology, NodesOfMemoryBelongToThePackageThatIsNearest) {
  CapturedMachine machine;
  machine.cpus(6);
  for (int cpu = 0; cpu < 6; ++cpu) {
    machine.file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/physical_package_id", cpu < 4 ? "0\n" : "1\n");
  }
  const char* const distances[] = {"10 12 20 40 80 80", "12 10 20 40 80 80", "20 20 10 50 40 80",
                                   "40 40 50 10 80 80", "80 80 40 80 10 80", "80 80 20 80 80 10"};
  for (int node = 0; node < 6; ++node) {
    if (node >= 3) machine.node(node, "0\n", "");
    machine.file("/sys/devices/system/node/node" + std::to_string(node) + "/distance", std::string(distances[node]) + "\n");
  }
  machine.file("/sys/devices/system/node/node5/access0/initiators/node0/power", "");
  std::vector<int> packages;
  for (const NumaNode& node : machine.topology().numa_nodes) packages.push_back(node.package);
  EXPECT_EQ(packages, (std::vector<int>{0, 0, 1, 0, 1, 0}));
}

// Class 1 of the ways to a node's memory has CPUs alone, class 0 perhaps devices. What one node is told is nothing to the next one.
TEST(Topology, NodesOfMemoryBelongToThePackageThatReachesThemBest) {
  CapturedMachine machine;
  machine.cpus(6);  // nodes and packages 0 to 2
  machine.node(3, "0\n", "");
  machine.node(4, "0\n", "");
  machine.node(5, "0\n", "");
  machine.file("/sys/devices/system/node/node4/access0/initiators/node0/power", "");
  machine.file("/sys/devices/system/node/node4/access1/initiators/node2/power", "");
  machine.file("/sys/devices/system/node/node5/access0/initiators/node1/power", "");
  machine.file("/sys/devices/system/node/node5/access0/initiators/node3/power", "");
  std::vector<int> packages;
  for (const NumaNode& node : machine.topology().numa_nodes) packages.push_back(node.package);
  ASSERT_EQ(packages.size(), 6U);
  EXPECT_EQ((std::vector<int>{packages[3], packages[4], packages[5]}), (std::vector<int>{-1, 2, 1}));
}

TEST(Topology, TheFirstCpuMayBeOffline) {
  CapturedMachine machine;
  machine.file("/sys/devices/system/cpu/online", "1-2\n");
  machine.file("/sys/devices/system/cpu/cpu1/topology/physical_package_id", "4\n");  // that of CPU 2 went while it was captured
  machine.file("/proc/meminfo", "MemTotal:       2048 kB\n");
  const Topology found = machine.topology();
  ASSERT_EQ(found.numa_nodes.size(), 1u);
  EXPECT_EQ(found.numa_nodes[0].cpus, (std::vector<int>{1, 2}));
  EXPECT_EQ(found.numa_nodes[0].package, 4);
  EXPECT_FALSE(has_note(found, "packages are not known"));
}

TEST(Topology, AKernelWithoutNumaHasOneNode) {
  CapturedMachine machine;
  machine.file("/sys/devices/system/cpu/online", "0-3\n");
  for (int cpu = 0; cpu < 4; ++cpu) {
    machine.file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/physical_package_id", "0\n");
  }
  machine.file("/proc/meminfo", "MemTotal:       2048 kB\n");
  const Topology found = machine.topology();
  ASSERT_EQ(found.numa_nodes.size(), 1u);
  EXPECT_EQ(found.numa_nodes[0].index, 0);
  EXPECT_EQ(found.numa_nodes[0].package, 0);
  EXPECT_EQ(found.numa_nodes[0].cpus, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(found.numa_nodes[0].memory_bytes, std::uint64_t{2} << 20);
}

TEST(Topology, NothingAtAll) {
  const Topology found = CapturedMachine().topology();
  EXPECT_TRUE(found.pci.empty() && found.gpus.empty() && found.nics.empty() && found.numa_nodes.empty());
  EXPECT_TRUE(has_note(found, "no PCI devices"));
  EXPECT_TRUE(has_note(found, "no NUMA node"));
}

TEST(Topology, AFolderThatCannotBeListedIsANote) {
  CapturedMachine machine;
  machine.unreadable("/sys/bus/pci/devices");
  machine.unreadable("/sys/class/infiniband");
  const Topology found = machine.topology();
  EXPECT_TRUE(has_note(found, "/sys/bus/pci/devices cannot be listed (permission denied)"));
  EXPECT_TRUE(has_note(found, "/sys/class/infiniband cannot be listed (permission denied)"));
  EXPECT_FALSE(has_note(found, "/sys/class/net")) << "a folder that is not there has nothing in it";
}

TEST(Topology, ManyDevicesAndFewNotes) {
  CapturedMachine machine;
  machine.cpus(2);
  const auto hex = [](int bus) { return std::string{"0123456789abcdef"[bus / 16], "0123456789abcdef"[bus % 16]}; };
  std::string place = "pci0000:00/0000:00:01.0";
  machine.pci(place, kBridge, "0x8086", 0);
  for (int bus = 1; bus <= 30; ++bus) {  // one below the other
    place += "/0000:" + hex(bus) + ":00.0";
    machine.pci(place, kBridge, "0x8086", 0);
  }
  for (int bus = 0; bus < 256; ++bus) machine.pci("pci0001:00/0001:" + hex(bus) + ":00.0", "unknown", "0x8086", 0);
  const Topology found = machine.topology();
  ASSERT_EQ(found.pci.size(), 31u + 256u);
  for (int i = 0; i < 31; ++i) EXPECT_EQ(found.pci[static_cast<std::size_t>(i)].parent, i - 1);
  EXPECT_LT(found.notes.size(), 40u);
  EXPECT_TRUE(has_note(found, "more of this kind"));
}

TEST(Topology, ThisMachine) {
  const auto found = discover_topology(Machine::here());
  ASSERT_TRUE(found) << found.error().message();
  std::size_t device_count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", none))
    device_count += entry.exists() ? 1 : 0;
  EXPECT_EQ(found->pci.size(), device_count);
  ASSERT_FALSE(found->numa_nodes.empty());
  EXPECT_FALSE(found->numa_nodes[0].cpus.empty());
}

ISOLATED_TEST(Topology, WithoutHwlocItSaysSo) {
  const test::ScopedEnvironment library("GIGABAR_HWLOC_LIBRARY", "/nonexistent/libhwloc.so.15");
  const auto found = discover_topology(CapturedMachine().open());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.status(), Status::not_supported);
  EXPECT_NE(found.error().message().find("/nonexistent/libhwloc.so.15"), std::string::npos) << found.error().message();
  EXPECT_NE(found.error().record().remedy.find("libhwloc15"), std::string::npos);
}

#else

TEST(Topology, SaysThatItIsNotBuilt) {
  const auto found = discover_topology(CapturedMachine().open());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.status(), Status::not_supported);
  EXPECT_NE(found.error().message().find("built without"), std::string::npos) << found.error().message();
}

#endif

TEST(TopologyParts, LeadingNumbers) {
  using topology_parts::leading_number;
  EXPECT_EQ(leading_number("32.0 GT/s PCIe", 100), 32);
  EXPECT_EQ(leading_number("8 GT/s", 100), 8);
  EXPECT_EQ(leading_number("2.5", 100), 2.5);
  for (const char* bad : {"", "Unknown", "Unknown speed", "-1", "101", "nan", "inf", "1e300", "8x", " 8"}) {
    EXPECT_EQ(leading_number(bad, 100), 0) << bad;
  }
}

}  // namespace
}  // namespace gigabar
