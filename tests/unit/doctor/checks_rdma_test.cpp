// SPDX-License-Identifier: Apache-2.0
// rdma.*: each verdict of each check, on machines made for it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "doctor/check.hpp"
#include "support/temporary_folder.hpp"
#include "unit/doctor/patient.hpp"

namespace gigabar {
namespace {

using test::expect;
using test::of_subject;
using test::TestPatient;
using test::to_text;
using test::value_of;

constexpr const char* kDevice = "/sys/class/infiniband/mlx5_0";
constexpr const char* kPort = "/sys/class/infiniband/mlx5_0/ports/1";
constexpr const char* kRoutedGid = "0000:0000:0000:0000:0000:ffff:0a00:0005";
constexpr const char* kLocalGid = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001";

RdmaPort port_of(const std::string& state, const std::string& layer, int number = 1) {
  RdmaPort port;
  port.number = number;
  port.state = state;
  port.link_layer = layer;
  port.rate_gbit_per_s = 400;
  return port;
}

// mlx5_0 with one port; RoCE has eth0 with an MTU of 9000.
TestPatient adapter(const std::string& state = "ACTIVE", const std::string& layer = "Ethernet") {
  TestPatient machine;
  const int nic = machine.nic("mlx5_0", "0000:3b:00.0");
  machine.topology.nics[static_cast<std::size_t>(nic)].ports = {port_of(state, layer)};
  machine.file(std::string(kDevice) + "/node_type", "1: CA\n");
  if (layer == "Ethernet") {
    machine.topology.nics[static_cast<std::size_t>(nic)].net_devices = {{"eth0", "up", 9000, 400.0}};
    machine.topology.nics[static_cast<std::size_t>(nic)].ports[0].gids = {{3, kRoutedGid, "RoCE v2", "eth0"}};
  }
  return machine;
}

Nic& nic_of(TestPatient& machine) { return machine.topology.nics.at(0); }
RdmaPort& port_of(TestPatient& machine) { return nic_of(machine).ports.at(0); }

void add_second(TestPatient& machine, const std::string& state) {
  const int nic = machine.nic("mlx5_1", "0000:5e:00.0");
  machine.topology.nics[static_cast<std::size_t>(nic)].ports = {port_of(state, "InfiniBand")};
}

TEST(RdmaChecks, SkipAMachineWithoutRdma) {
  for (const std::string check : {"rdma.dev", "rdma.port", "rdma.mtu", "rdma.gid", "rdma.qos", "rdma.counters"}) {
    expect(TestPatient(), check, Verdict::skip, "no RDMA device");
    TestPatient hidden;
    hidden.folder("/sys/class/infiniband").unreadable("/sys/class/infiniband");
    expect(hidden, check, Verdict::unknown, "/sys/class/infiniband cannot be read (permission denied)", "run as root");
  }
}

TEST(RdmaChecks, ADeviceThatOnlySysHasIsNotPassed) {
  TestPatient machine;
  machine.file(std::string(kDevice) + "/node_type", "1: CA\n");
  for (const std::string check : {"rdma.port", "rdma.mtu", "rdma.gid", "rdma.qos", "rdma.counters"}) {
    expect(machine, check, Verdict::unknown, "ports of this RDMA device are not known", "topology");
  }
}

// ---- rdma.dev

TestPatient with_node() {
  TestPatient machine = adapter();
  machine.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n").device("/dev/infiniband/uverbs0", true, true, 231, 192);
  machine.device("/dev/infiniband/rdma_cm", true, true, 10, 58);
  return machine;
}

TEST(RdmaDev, PassesANodeThatMayBeOpened) { expect(with_node(), "rdma.dev", Verdict::pass, "/dev/infiniband/uverbs0"); }

TEST(RdmaDev, FailsWithoutTheNode) {
  TestPatient machine = with_node();
  machine.remove("/dev/infiniband/uverbs0");
  expect(machine, "rdma.dev", Verdict::fail, "uverbs0 is missing", "modprobe ib_uverbs");
  EXPECT_EQ(value_of(machine.run("rdma.dev").at(0), "/dev/infiniband/uverbs0"), "missing");
}

TEST(RdmaDev, TellsAContainerToPassTheNode) {
  for (const std::string mark : {"/.dockerenv", "/run/.containerenv"}) {
    TestPatient machine = with_node();
    machine.remove("/dev/infiniband/uverbs0").file(mark, "");
    expect(machine, "rdma.dev", Verdict::fail, "missing", "--device=/dev/infiniband/uverbs0");
  }
  TestPatient machine = adapter();
  machine.file("/run/systemd/container", "lxc\n");
  expect(machine, "rdma.dev", Verdict::fail, "no device node", "--device=/dev/infiniband/uverbs0");
}

TEST(RdmaDev, FailsWithoutTheModuleOfVerbs) {
  expect(adapter(), "rdma.dev", Verdict::fail, "no device node", "modprobe ib_uverbs");
}

TEST(RdmaDev, FailsANodeThatMayNotBeOpened) {
  for (const auto& [can_read, can_write] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    TestPatient machine = with_node();
    machine.device("/dev/infiniband/uverbs0", can_read, can_write, 231, 192);
    expect(machine, "rdma.dev", Verdict::fail, "may not open", "udev");
  }
}

TEST(RdmaDev, FailsANodeThatIsNoDevice) {
  TestPatient machine = with_node();
  machine.remove("/dev/infiniband/uverbs0").file("/dev/infiniband/uverbs0", "");
  expect(machine, "rdma.dev", Verdict::fail, "is a regular file, not a device", "sudo rm /dev/infiniband/uverbs0");
}

TEST(RdmaDev, FailsWhatLibibverbsRefuses) {
  TestPatient machine = with_node();
  machine.answers.rdma_devices = {{"mlx5_0", "no provider for this device", {}}};
  expect(machine, "rdma.dev", Verdict::fail, "no provider for this device", "provider");
}

TEST(RdmaDev, DoesNotKnowWhichNodeIsWhose) {
  TestPatient machine = adapter();
  machine.device("/dev/infiniband/uverbs0");
  expect(machine, "rdma.dev", Verdict::unknown, "does not say which node", "ibv_devinfo");
}

TEST(RdmaDev, SeesADeviceThatTheTopologyLacks) {
  TestPatient machine = with_node();
  machine.topology.nics.clear();
  expect(machine, "rdma.dev", Verdict::pass, "may be opened");
}

// ---- rdma.port

TEST(RdmaPort, PassesAnActivePort) {
  expect(adapter("ACTIVE", "InfiniBand"), "rdma.port", Verdict::pass, "ACTIVE at 400 Gb/s (InfiniBand)");
  TestPatient machine = adapter();
  port_of(machine).rate_gbit_per_s = 0;
  expect(machine, "rdma.port", Verdict::pass, "ACTIVE (Ethernet)");
}

TEST(RdmaPort, WarnsOfAPortThatIsNoneOfTheThreeKinds) {
  TestPatient machine = adapter("ACTIVE", "Unspecified");
  nic_of(machine).driver = "efa";
  machine.file(std::string(kDevice) + "/node_type", "7: unspecified\n");
  expect(machine, "rdma.port", Verdict::warn, "no RC queue pairs", "libfabric");
  EXPECT_EQ(value_of(machine.run("rdma.port").at(0), "node_type of mlx5_0"), "7: unspecified");
  // usNIC calls its link layer Ethernet.
  TestPatient other = adapter();
  other.file(std::string(kDevice) + "/node_type", "6: usNIC UDP\n");
  expect(other, "rdma.port", Verdict::warn, "neither InfiniBand, RoCE nor iWARP", "ucx over TCP");
  other.file(std::string(kDevice) + "/node_type", "4: RNIC\n");
  expect(other, "rdma.port", Verdict::pass, "ACTIVE");
  other.file(std::string(kDevice) + "/node_type", "7: unspecified\n");
  port_of(other).state = "DOWN";
  expect(other, "rdma.port", Verdict::fail, "DOWN", "cable");
}

TEST(RdmaPort, WarnsOfPartitionsInWhichTwoMembersCannotTalk) {
  const auto with_keys = [](const std::vector<const char*>& keys, const std::string& layer = "InfiniBand") {
    TestPatient machine = adapter("ACTIVE", layer);
    for (std::size_t index = 0; index < keys.size(); ++index) {
      machine.file(std::string(kPort) + "/pkeys/" + std::to_string(index), std::string(keys[index]) + "\n");
    }
    return machine;
  };
  const std::string two_limited = "two limited members cannot talk";
  expect(with_keys({"0xffff"}), "rdma.port", Verdict::pass, "ACTIVE");
  expect(with_keys({"0xffff", "0x0001", "0x0000"}), "rdma.port", Verdict::pass, "ACTIVE");
  expect(with_keys({"0x7fff"}), "rdma.port", Verdict::warn, two_limited, "partitions.conf");
  expect(with_keys({"0x7fff", "0x0012", "0x0000"}), "rdma.port", Verdict::warn, two_limited, "full member");
  expect(with_keys({"0x0000", "0x8000"}), "rdma.port", Verdict::warn, "has no P_Key", "partitions.conf");
  expect(with_keys({"0x7fff", "0x8012"}), "rdma.port", Verdict::warn, "0x8012 (index 1)", "UCX_IB_PKEY");
  expect(with_keys({"0x0000", "0x8012"}), "rdma.port", Verdict::warn, "0x8012 (index 1)", "UCX_IB_PKEY");
  EXPECT_EQ(value_of(with_keys({"0x7fff", "0x0000", "0x0012"}).run("rdma.port").at(0), std::string(kPort) + "/pkeys"),
            "0x7fff, 0x0012");
  TestPatient empty = adapter("ACTIVE", "InfiniBand");
  empty.folder(std::string(kPort) + "/pkeys");
  expect(empty, "rdma.port", Verdict::warn, "has no P_Key", "partitions.conf");
  TestPatient hidden = with_keys({"0x7fff", "0x8012"});
  hidden.unreadable(std::string(kPort) + "/pkeys/0");
  expect(hidden, "rdma.port", Verdict::pass, "ACTIVE");
  expect(with_keys({"x", "0x12345", "0x"}), "rdma.port", Verdict::pass, "ACTIVE");
  expect(with_keys({"0x7fff"}, "Ethernet"), "rdma.port", Verdict::pass, "ACTIVE");
  TestPatient down = with_keys({"0x7fff"});
  port_of(down).state = "INIT";
  expect(down, "rdma.port", Verdict::fail, "no subnet manager", "opensm");
}

TEST(RdmaPort, MissesTheSubnetManager) {
  expect(adapter("INIT", "InfiniBand"), "rdma.port", Verdict::fail, "no subnet manager", "opensm");
  expect(adapter("ARMED", "InfiniBand"), "rdma.port", Verdict::fail, "ARMED", "sminfo");
  expect(adapter("INIT"), "rdma.port", Verdict::fail, "INIT", "ip link set eth0 up");
}

TEST(RdmaPort, FailsWhenTheOnlyPortIsDown) {
  TestPatient machine = adapter("DOWN");
  machine.file(std::string(kPort) + "/phys_state", "3: Disabled\n");
  expect(machine, "rdma.port", Verdict::fail, "DOWN (physically 3: Disabled)", "ip link set eth0 up");
  expect(adapter("DOWN", "InfiniBand"), "rdma.port", Verdict::fail, "DOWN", "cable");
}

TEST(RdmaPort, WarnsOfAnUnusedPortBesideAnActiveOne) {
  TestPatient machine = adapter("DOWN");
  machine.file(std::string(kPort) + "/phys_state", "2: Polling\n");
  add_second(machine, "ACTIVE");
  const Finding down = of_subject(machine.run("rdma.port"), "mlx5_0 port 1");
  EXPECT_EQ(down.verdict, Verdict::warn) << to_text({down});
  EXPECT_NE(down.statement.find("another port of this machine is active"), std::string::npos) << to_text({down});
  EXPECT_EQ(of_subject(machine.run("rdma.port"), "mlx5_1 port 1").verdict, Verdict::pass);
}

TEST(RdmaPort, FailsAPortThatLostItsLink) {
  TestPatient machine = adapter("DOWN");
  machine.file(std::string(kPort) + "/phys_state", "6: LinkErrorRecovery\n");
  add_second(machine, "ACTIVE");
  EXPECT_EQ(of_subject(machine.run("rdma.port"), "mlx5_0 port 1").verdict, Verdict::fail);
  expect(adapter("ACTIVE_DEFER"), "rdma.port", Verdict::warn, "lost its link", "cable");
}

TEST(RdmaPort, DoesNotKnowOtherStates) {
  expect(adapter(""), "rdma.port", Verdict::unknown, "not told", "rdma link");
  expect(adapter("NOP"), "rdma.port", Verdict::unknown, "'NOP'", "rdma link");
  TestPatient machine = adapter();
  nic_of(machine).ports.clear();
  expect(machine, "rdma.port", Verdict::unknown, "ports of this RDMA device are not known");
}

TEST(RdmaPort, ShowsHostileNamesAsOneLine) {
  TestPatient machine = adapter("DOWN\n\x1b[31m" + std::string(5000, 'x'));
  const Finding finding = machine.run("rdma.port").at(0);
  EXPECT_EQ(finding.verdict, Verdict::unknown);
  EXPECT_EQ(finding.statement.find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(finding.statement.size(), 200u);
}

// ---- rdma.mtu

TEST(RdmaMtu, PassesTheLargest) {
  TestPatient machine = adapter();
  port_of(machine).active_mtu = 4096;
  expect(machine, "rdma.mtu", Verdict::pass, "4096 bytes");
}

TEST(RdmaMtu, BlamesTheNetworkDevice) {
  TestPatient machine = adapter();
  port_of(machine).active_mtu = 1024;
  nic_of(machine).net_devices[0].mtu = 1500;
  expect(machine, "rdma.mtu", Verdict::warn, "1024 bytes of 4096: the MTU of eth0 is 1500", "ip link set eth0 mtu 9000");
}

TEST(RdmaMtu, WarnsOfASmallOneBehindALargeNetworkDevice) {
  TestPatient machine = adapter();
  port_of(machine).active_mtu = 1024;
  expect(machine, "rdma.mtu", Verdict::warn, "1024 bytes", "large enough");
  nic_of(machine).net_devices.clear();
  expect(machine, "rdma.mtu", Verdict::warn, "1024 bytes", "ip link");
}

TEST(RdmaMtu, NeedsNoDriverToSeeThatItCannotFit) {
  TestPatient machine = adapter();
  nic_of(machine).net_devices[0].mtu = 1500;
  expect(machine, "rdma.mtu", Verdict::warn, "the MTU of eth0 is 1500", "ip link set eth0 mtu 9000");
  nic_of(machine).net_devices.clear();
  machine.file("/sys/class/net/eth0/mtu", "1500\n");
  expect(machine, "rdma.mtu", Verdict::warn, "the MTU of eth0 is 1500", "ip link set eth0 mtu 9000");
}

TEST(RdmaMtu, DoesNotKnowWithoutTheDriver) {
  expect(adapter(), "rdma.mtu", Verdict::unknown, "not told", "ibv_devinfo");
  expect(adapter("ACTIVE", "InfiniBand"), "rdma.mtu", Verdict::unknown, "not told", "ibv_devinfo");
}

TEST(RdmaMtu, TakesTheDriversAnswer) {
  TestPatient machine = adapter();
  machine.answers.rdma_devices = {{"mlx5_0", std::nullopt, {4096}}};
  expect(machine, "rdma.mtu", Verdict::pass, "4096 bytes");
  machine.answers.rdma_devices = {{"mlx5_0", std::nullopt, {0}}};
  expect(machine, "rdma.mtu", Verdict::unknown, "not told", "ibv_devinfo");
}

TEST(RdmaMtu, OfInfinibandIsTheSubnetManagers) {
  for (const unsigned mtu : {2048U, 4096U}) {
    TestPatient machine = adapter("ACTIVE", "InfiniBand");
    port_of(machine).active_mtu = mtu;
    expect(machine, "rdma.mtu", Verdict::pass, std::to_string(mtu));
  }
  TestPatient machine = adapter("ACTIVE", "InfiniBand");
  port_of(machine).active_mtu = 1024;
  expect(machine, "rdma.mtu", Verdict::warn, "1024 bytes", "partitions.conf");
}

TEST(RdmaMtu, SkipsPortsThatAreDownAndIwarp) {
  expect(adapter("DOWN"), "rdma.mtu", Verdict::skip, "no port");
  TestPatient machine = adapter();
  machine.file(std::string(kDevice) + "/node_type", "4: RNIC\n");
  expect(machine, "rdma.mtu", Verdict::skip, "iWARP");
}

TEST(RdmaMtu, DoesNotKnowAPortWithoutLinkLayer) {
  expect(adapter("ACTIVE", ""), "rdma.mtu", Verdict::unknown, "link layer", "ibv_devinfo");
  expect(adapter("ACTIVE", ""), "rdma.gid", Verdict::unknown, "link layer", "ibv_devinfo");
}

// ---- rdma.gid

TEST(RdmaGid, NamesTheIndexToUse) {
  TestPatient machine = adapter();
  port_of(machine).gids = {{0, kLocalGid, "IB/RoCE v1", "eth0"},
                           {1, kLocalGid, "RoCE v2", "eth0"},
                           {2, kRoutedGid, "IB/RoCE v1", "eth0"},
                           {3, kRoutedGid, "RoCE v2", "eth0"},
                           {5, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"}};
  expect(machine, "rdma.gid", Verdict::pass, "GID index 3 is RoCE v2 with the routable address 10.0.0.5 of eth0");
  port_of(machine).gids.erase(port_of(machine).gids.begin() + 3);
  expect(machine, "rdma.gid", Verdict::pass, "GID index 5 is RoCE v2 with the routable address 2001:db8::1");
}

TEST(RdmaGid, WarnsOfLinkLocalAddresses) {
  TestPatient machine = adapter();
  port_of(machine).gids = {{1, kLocalGid, "RoCE v2", "eth0"}};
  expect(machine, "rdma.gid", Verdict::warn, "fails across a router", "ip addr add ADDRESS/PREFIX dev eth0");
  port_of(machine).gids = {{1, "0000:0000:0000:0000:0000:ffff:a9fe:0102", "RoCE v2", "eth0"}};
  expect(machine, "rdma.gid", Verdict::warn, "link-local", "ip addr add");
}

TEST(RdmaGid, FailsWithoutVersionTwo) {
  TestPatient machine = adapter();
  port_of(machine).gids = {{0, kRoutedGid, "IB/RoCE v1", "eth0"}};
  expect(machine, "rdma.gid", Verdict::fail, "no GID of RoCE v2", "cma_roce_mode -d mlx5_0");
  EXPECT_NE(value_of(machine.run("rdma.gid").at(0), std::string(kPort) + "/gids/0").find("RoCE v1"), std::string::npos);
}

TEST(RdmaGid, FailsWithoutAnyAddress) {
  TestPatient machine = adapter();
  port_of(machine).gids.clear();
  machine.file(std::string(kPort) + "/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  expect(machine, "rdma.gid", Verdict::fail, "no GID at all", "ip addr add ADDRESS/PREFIX dev eth0");
}

TEST(RdmaGid, DoesNotKnowWithoutTableOrTypes) {
  TestPatient machine = adapter();
  port_of(machine).gids.clear();
  expect(machine, "rdma.gid", Verdict::unknown, "could not be read", "show_gids");
  port_of(machine).gids = {{0, kRoutedGid, "", "eth0"}};
  expect(machine, "rdma.gid", Verdict::unknown, "types of its GIDs are not told", "show_gids");
}

TEST(RdmaGid, DoesNotTakeAWrongAddressForARoutableOne) {
  TestPatient machine = adapter();
  port_of(machine).gids = {{0, "not an address", "RoCE v2", "eth0"}};
  expect(machine, "rdma.gid", Verdict::fail, "no GID of RoCE v2", "ip addr");
}

TEST(RdmaGid, SkipsWhatIsNotRoce) {
  expect(adapter("ACTIVE", "InfiniBand"), "rdma.gid", Verdict::skip, "only RoCE");
  TestPatient iwarp = adapter();
  iwarp.file(std::string(kDevice) + "/node_type", "4: RNIC\n");
  expect(iwarp, "rdma.gid", Verdict::skip, "only RoCE");
  TestPatient siw = adapter();
  nic_of(siw).driver = "siw";
  siw.remove(std::string(kDevice) + "/node_type");
  expect(siw, "rdma.gid", Verdict::skip, "only RoCE");
}

// ---- rdma.qos

void set_ecn(TestPatient& machine, const std::string& point, const std::string& eight) {
  for (std::size_t i = 0; i < eight.size(); ++i) {
    machine.file("/sys/class/net/eth0/ecn/" + point + "/enable/" + std::to_string(i), std::string(1, eight[i]) + "\n");
  }
}

TEST(RdmaQos, PassesEcnOnBothEnds) {
  TestPatient machine = adapter();
  set_ecn(machine, "roce_np", "00010000");
  set_ecn(machine, "roce_rp", "00010000");
  machine.file(std::string(kDevice) + "/tc/1/traffic_class", "Global tclass=106\n");
  expect(machine, "rdma.qos", Verdict::pass, "ECN for priority 3; RDMA sends with Global tclass=106");
  EXPECT_EQ(value_of(machine.run("rdma.qos").at(0), "/sys/class/net/eth0/ecn/roce_np/enable/0-7"), "0 0 0 1 0 0 0 0");
  set_ecn(machine, "roce_np", "11111111");
  set_ecn(machine, "roce_rp", "10010001");
  expect(machine, "rdma.qos", Verdict::pass, "priorities 0, 3 and 7");
}

TEST(RdmaQos, WarnsWithoutEcn) {
  TestPatient machine = adapter();
  set_ecn(machine, "roce_np", "00000000");
  set_ecn(machine, "roce_rp", "00000000");
  expect(machine, "rdma.qos", Verdict::warn, "ECN off for every priority", "/sys/class/net/eth0/ecn/roce_np/enable/3");
}

TEST(RdmaQos, WarnsWhenOnlyOneEndIsOn) {
  TestPatient machine = adapter();
  set_ecn(machine, "roce_np", "00010000");
  set_ecn(machine, "roce_rp", "00001000");
  expect(machine, "rdma.qos", Verdict::warn, "no priority for which both ends", "dcb pfc show dev eth0");
}

TEST(RdmaQos, DoesNotKnowWhatItCannotRead) {
  TestPatient machine = adapter();
  set_ecn(machine, "roce_np", "00000000");
  set_ecn(machine, "roce_rp", "00000000");
  machine.unreadable("/sys/class/net/eth0/ecn/roce_rp/enable/3");
  expect(machine, "rdma.qos", Verdict::unknown, "not every ECN setting", "dcb pfc");
  expect(adapter(), "rdma.qos", Verdict::unknown, "does not say whether ECN or PFC is on", "mlnx_qos");
}

TEST(RdmaQos, SkipsSoftwareAndInfiniband) {
  TestPatient rxe = adapter();
  nic_of(rxe).driver = "rdma_rxe";
  expect(rxe, "rdma.qos", Verdict::skip, "soft-RoCE");
  expect(adapter("ACTIVE", "InfiniBand"), "rdma.qos", Verdict::skip, "only RoCE");
}

// ---- rdma.counters

TEST(RdmaCounters, PassesZeros) {
  TestPatient machine = adapter();
  machine.file(std::string(kPort) + "/counters/symbol_error", "0\n");
  machine.file(std::string(kPort) + "/hw_counters/out_of_sequence", "0\n");
  expect(machine, "rdma.counters", Verdict::pass, "2 error counters are zero");
}

TEST(RdmaCounters, WarnsOfTotals) {
  TestPatient machine = adapter();
  machine.file(std::string(kPort) + "/counters/symbol_error", "5\n");
  machine.file(std::string(kPort) + "/hw_counters/out_of_buffer", "18446744073709551615\n");
  machine.file(std::string(kPort) + "/hw_counters/packet_seq_err", "0\n");
  expect(machine, "rdma.counters", Verdict::warn, "symbol_error 5 and out_of_buffer 18446744073709551615; only their growth counts",
         "gigabar doctor --only rdma.counters");
  const Finding finding = machine.run("rdma.counters").at(0);
  EXPECT_NE(finding.remedy.find("cable"), std::string::npos) << finding.remedy;
  EXPECT_NE(finding.remedy.find("receive buffers"), std::string::npos) << finding.remedy;
  EXPECT_EQ(finding.remedy.find("rdma.qos"), std::string::npos) << finding.remedy;
  EXPECT_EQ(value_of(finding, std::string(kPort) + "/counters/symbol_error"), "5");
}

TEST(RdmaCounters, SendsLossToTheNetwork) {
  for (const std::string name : {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err"}) {
    TestPatient machine = adapter();
    machine.file(std::string(kPort) + "/hw_counters/" + name, "1\n");
    expect(machine, "rdma.counters", Verdict::warn, name + " 1", "rdma.qos");
  }
}

TEST(RdmaCounters, DoesNotKnowWithoutCounters) {
  expect(adapter(), "rdma.counters", Verdict::unknown, "none of the known error counters", "ethtool -S");
  TestPatient hidden = adapter();
  hidden.unreadable(std::string(kPort) + "/counters/symbol_error");
  expect(hidden, "rdma.counters", Verdict::unknown, "cannot be read", "root");
  hidden.file(std::string(kPort) + "/counters/link_downed", "0\n");
  expect(hidden, "rdma.counters", Verdict::unknown, "1 of its error counters cannot be read", "root");
  TestPatient odd = adapter();
  odd.file(std::string(kPort) + "/counters/symbol_error", "N/A (no PMA)\n");
  expect(odd, "rdma.counters", Verdict::unknown, "cannot be read", "rdma statistic");
}

// A folder whose counter grows while it is looked at, as one on a live machine does.
class GrowingCounter {
 public:
  explicit GrowingCounter(const std::string& name) : file_("sys/class/infiniband/mlx5_0/ports/1/" + name) {
    step();
    writer_ = std::thread([this] {
      while (!is_over_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        step();
      }
    });
  }
  ~GrowingCounter() {
    is_over_ = true;
    writer_.join();
  }
  GrowingCounter(const GrowingCounter&) = delete;
  GrowingCounter& operator=(const GrowingCounter&) = delete;

  const test::TemporaryFolder& folder() const { return folder_; }

 private:
  // By renaming, so that no reader sees half of it.
  void step() {
    folder_.write(file_ + ".new", std::to_string(++value_) + "\n");
    std::filesystem::rename(folder_.path() + "/" + file_ + ".new", folder_.path() + "/" + file_);
  }
  test::TemporaryFolder folder_;
  std::string file_;
  std::uint64_t value_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread writer_;
};

std::vector<Finding> look_at(const GrowingCounter& counter, bool is_live) {
  TestPatient machine = adapter();
  const Result<SystemFiles> files = SystemFiles::of_folder(counter.folder().path());
  if (!files) throw std::runtime_error(files.error().message());
  const doctor::Patient patient{*files, machine.answers, machine.topology, is_live};
  doctor::Findings findings("rdma.counters");
  doctor::check_rdma_counters(patient, findings);
  return findings.take();
}

TEST(RdmaCounters, FailsGrowingSymbolErrors) {
  const GrowingCounter counter("counters/symbol_error");
  const std::vector<Finding> findings = look_at(counter, true);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::fail) << to_text(findings);
  EXPECT_NE(findings[0].statement.find("grow right now, within 200 ms: symbol_error by "), std::string::npos) << to_text(findings);
  EXPECT_NE(findings[0].remedy.find("cable"), std::string::npos) << to_text(findings);
  EXPECT_NE(findings[0].readings.at(0).value.find(", then "), std::string::npos);
}

TEST(RdmaCounters, WarnsOfOtherGrowth) {
  const GrowingCounter counter("hw_counters/out_of_sequence");
  const std::vector<Finding> findings = look_at(counter, true);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::warn) << to_text(findings);
  EXPECT_NE(findings[0].statement.find("out_of_sequence by "), std::string::npos) << to_text(findings);
}

TEST(RdmaCounters, ReadsACaptureOnce) {
  const GrowingCounter counter("counters/symbol_error");
  const std::vector<Finding> findings = look_at(counter, false);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::warn) << to_text(findings);
  EXPECT_EQ(findings[0].statement.find("grow right now"), std::string::npos) << to_text(findings);
}

}  // namespace
}  // namespace gigabar
