// SPDX-License-Identifier: Apache-2.0
// Which ports become rails and in which order, and what the network is asked for on them.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <string>
#include <vector>

#include "rdma/rail_order.hpp"
#include "support/isolated.hpp"
#include "unit/platform/captured_machine.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

// In place of the C library's, for this program: the addresses of the fake devices.
namespace {

struct Interface : ifaddrs {
  sockaddr_in address{}, mask{};
};
constexpr std::uint8_t kInterfaces = 4;
std::uint32_t network_mask = 0xffffff00U;  // of all of them

}  // namespace

extern "C" int getifaddrs(ifaddrs** list) noexcept {
  static char loopback[] = "lo", fake[] = "fake";
  auto* const all = new Interface[kInterfaces + 1]();
  for (std::uint8_t i = 0; i <= kInterfaces; ++i) {
    Interface& one = all[i];
    const bool is_loopback = i == kInterfaces;
    one.address.sin_family = one.mask.sin_family = AF_INET;
    one.address.sin_addr.s_addr = htonl(is_loopback ? INADDR_LOOPBACK : 0x0a090001u + i);
    one.mask.sin_addr.s_addr = htonl(is_loopback ? 0xff000000u : network_mask);
    one.ifa_name = is_loopback ? loopback : fake;
    one.ifa_flags = is_loopback ? IFF_UP | IFF_LOOPBACK : IFF_UP;
    one.ifa_addr = reinterpret_cast<sockaddr*>(&one.address);
    one.ifa_netmask = reinterpret_cast<sockaddr*>(&one.mask);
    one.ifa_next = is_loopback ? nullptr : &all[i + 1];
  }
  *list = all;
  return 0;
}
extern "C" void freeifaddrs(ifaddrs* list) noexcept { delete[] static_cast<Interface*>(list); }

namespace gigabar::transport {
namespace {

using test::End;
using test::FakeMachine;
using test::Pair;

#if GIGABAR_HAS_HWLOC

// Two sockets, a GPU and two adapters below each; CUDA counts the GPU of the second socket first.
Topology two_sockets() {
  gigabar::test::CapturedMachine machine;
  machine.cpus(4);
  const auto add = [&](const std::string& root, int node, const std::string& gpu, const std::string& near, const std::string& far) {
    machine.pci(root + "/0000:" + root.substr(8) + ":01.0", "0x060400", "0x8086", node);
    machine.pci(root + "/0000:" + root.substr(8) + ":02.0", "0x060400", "0x8086", node);
    const std::string upper = root + "/0000:" + root.substr(8) + ":01.0/0000:" + gpu.substr(0, 2) + ":00.0";
    machine.pci(upper, "0x060400", "0x1000", node);
    const auto below = [&](int port, const std::string& bus) {
      const std::string bridge = upper + "/0000:" + gpu.substr(2, 2) + ":0" + std::to_string(port) + ".0";
      machine.pci(bridge, "0x060400", "0x1000", node);
      return bridge + "/0000:" + bus + ":00.0";
    };
    machine.pci(below(0, gpu.substr(4, 2)), "0x030200", "0x10de", node);
    const std::string adapter = below(1, gpu.substr(6, 2));
    machine.pci(adapter, "0x020000", "0x15b3", node);
    machine.rdma(near, adapter);
    const std::string other = root + "/0000:" + root.substr(8) + ":02.0/0000:" + gpu.substr(8, 2) + ":00.0";
    machine.pci(other, "0x020000", "0x15b3", node);
    machine.rdma(far, other);
  };
  add("pci0000:3a", 0, "3b3c3d3e3f", "mlx5_2", "mlx5_0");
  add("pci0000:ba", 1, "bbbcbdbebf", "mlx5_3", "mlx5_1");
  machine.gpu_answers("0000:bd:00.0", 0);
  machine.gpu_answers("0000:3d:00.0", 1);
  return machine.topology();
}

TEST(VerbsRails, NearestToTheGpuFirst) {
  const Topology machine = two_sockets();
  ASSERT_EQ(machine.gpus.size(), 2u);
  ASSERT_EQ(machine.nics.size(), 4u);
  const auto order = [&](int device, const std::vector<std::string>& names) {
    std::vector<std::string> sorted;
    for (const std::size_t index : gigabar::rdma::nearest_first(machine, device, names)) sorted.push_back(names.at(index));
    return sorted;
  };
  const std::vector<std::string> all{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
  using Names = std::vector<std::string>;
  const Names first = order(0, all), second = order(1, all);
  EXPECT_EQ((Names{first[0], first[1]}), (Names{"mlx5_3", "mlx5_1"})) << "below the same switch, then of the same socket";
  EXPECT_EQ((Names{second[0], second[1]}), (Names{"mlx5_2", "mlx5_0"}));
  EXPECT_EQ(order(0, {"rxe0", "mlx5_0", "mlx5_3", "siw0"}), (Names{"mlx5_3", "mlx5_0", "rxe0", "siw0"}))
      << "what the tree does not know comes last, as it was";
  EXPECT_EQ(rdma::nearest_first(machine, 0, Names{"mlx5_2", "mlx5_2", "mlx5_3", "mlx5_3"}), (std::vector<std::size_t>{2, 3, 0, 1}))
      << "the ports of a device stay in order";
  EXPECT_EQ(order(-1, all), all) << "without a GPU";
  EXPECT_EQ(order(2, all), all) << "of a GPU that is not known";
  EXPECT_EQ(rdma::nearest_first({}, 0, all), (std::vector<std::size_t>{0, 1, 2, 3}));
}

// Two GPUs and two adapters below one switch.
Topology one_switch() {
  gigabar::test::CapturedMachine machine;
  machine.cpus(4);
  const std::string upper = "pci0000:3a/0000:3a:01.0/0000:3b:00.0";
  machine.pci("pci0000:3a/0000:3a:01.0", "0x060400", "0x8086", 0);
  machine.pci(upper, "0x060400", "0x1000", 0);
  const auto below = [&](int port, const std::string& bus, const std::string& kind, const std::string& vendor) {
    const std::string bridge = upper + "/0000:3c:0" + std::to_string(port) + ".0";
    machine.pci(bridge, "0x060400", "0x1000", 0);
    machine.pci(bridge + "/0000:" + bus + ":00.0", kind, vendor, 0);
    return bridge + "/0000:" + bus + ":00.0";
  };
  below(0, "3d", "0x030200", "0x10de");
  below(1, "3e", "0x030200", "0x10de");
  machine.rdma("mlx5_0", below(2, "3f", "0x020000", "0x15b3"));
  machine.rdma("mlx5_1", below(3, "40", "0x020000", "0x15b3"));
  machine.gpu_answers("0000:3d:00.0", 0);
  machine.gpu_answers("0000:3e:00.0", 1);
  return machine.topology();
}

TEST(VerbsRails, EquallyNearOnesAreDealtToGpusAndRanks) {
  Topology machine = one_switch();
  ASSERT_EQ(machine.gpus.size(), 2u);
  ASSERT_EQ(machine.nics.size(), 2u);
  using Names = std::vector<std::string>;
  const auto first = [&](int device, std::size_t local_rank, const Names& names = {"mlx5_0", "mlx5_1"}) {
    return names.at(rdma::nearest_first(machine, device, names, local_rank).at(0));
  };
  EXPECT_EQ((Names{first(0, 0), first(1, 1)}), (Names{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ((Names{first(0, 2), first(1, 3)}), (Names{"mlx5_1", "mlx5_0"})) << "a second rank of each GPU takes the other one";
  EXPECT_EQ(first(1, 1, {"mlx5_0"}), "mlx5_0");
  EXPECT_EQ(first(1, 1, {"mlx5_0", "rxe0"}), "mlx5_0") << "an adapter without an address is dealt to nobody";
  // A process with CUDA_VISIBLE_DEVICES sees its own GPU as the first.
  machine.gpus[0].cuda_index.reset();
  machine.gpus[1].cuda_index = 0;
  EXPECT_EQ(first(0, 1), "mlx5_1");
}

// The whole way, from devices with addresses to the rails of an opened transport.
ISOLATED_TEST(VerbsRails, ATransportTakesTheNearestPortsThatAreUp) {
  const FakeMachine machine("mlx5_0 10.9.0.1; mlx5_1 10.9.0.2; mlx5_2 10.9.0.3; mlx5_3 10.9.0.4 down");
  const Topology tree = two_sockets();
  using Names = std::vector<std::string>;
  const auto rails = [&](int device, unsigned count, const Names& named = {}) {
    TransportOptions options;
    options.topology = &tree;
    options.near_device = device;
    options.rail_count = count;
    options.rails = named;
    const auto opened = open_verbs(options);
    return opened ? (*opened)->rails() : Names{opened.error().message()};
  };
  EXPECT_EQ(rails(1, 1), (Names{"mlx5_2/1"})) << "below the GPU's switch";
  EXPECT_EQ(rails(1, 2), (Names{"mlx5_2/1", "mlx5_0/1"})) << "then of its socket";
  EXPECT_EQ(rails(0, 1), (Names{"mlx5_1/1"})) << "mlx5_3 is nearer, but down";
  EXPECT_EQ(rails(0, 4).size(), 3u);
  EXPECT_EQ(rails(0, 4).front(), "mlx5_1/1");
  EXPECT_EQ(rails(-1, 1), (Names{"mlx5_0/1"})) << "without a GPU the first";
  EXPECT_EQ(rails(1, 1, {"mlx5_1", "mlx5_0"}), (Names{"mlx5_1/1", "mlx5_0/1"})) << "names win over distance and count";
}

ISOLATED_TEST(VerbsRails, ATransportTakesThePortThatWasDealtToItsRank) {
  const FakeMachine machine("mlx5_0 10.9.0.1; mlx5_1 10.9.0.2");
  const Topology tree = one_switch();
  using Names = std::vector<std::string>;
  const auto rails = [&](int device, std::size_t local_rank, const Names& named = {}) {
    TransportOptions options;
    options.topology = &tree;
    options.near_device = device;
    options.local_rank = local_rank;
    options.rails = named;
    const auto opened = open_verbs(options);
    return opened ? (*opened)->rails() : Names{opened.error().message()};
  };
  EXPECT_EQ(rails(0, 0), (Names{"mlx5_0/1"}));
  EXPECT_EQ(rails(1, 1), (Names{"mlx5_1/1"}));
  EXPECT_EQ(rails(0, 2), (Names{"mlx5_1/1"})) << "the second rank of GPU 0";
  EXPECT_EQ(rails(1, 1, {"mlx5_0"}), (Names{"mlx5_0/1"})) << "a name wins over the deal";
}

#endif

ISOLATED_TEST(VerbsRails, ActivePortsOrThoseThatAreNamed) {
  const FakeMachine machine("m0 10.9.0.1; m1 10.9.0.2 down; m2 10.9.0.3; m3 10.9.0.9");
  using Names = std::vector<std::string>;
  const auto rails = [](const Names& named, unsigned count) {
    TransportOptions options;
    options.rails = named;
    options.rail_count = count;
    options.near_device = 0;
    const auto opened = open_verbs(options);
    return opened ? (*opened)->rails() : Names{opened.error().message()};
  };
  EXPECT_EQ(rails({}, 4), (Names{"m0/1", "m2/1"})) << "m1 is down, m3 has no address";
  EXPECT_EQ(rails({}, 1), (Names{"m0/1"}));
  EXPECT_EQ(rails({"m2", "m0/1"}, 1), (Names{"m2/1", "m0/1"})) << "names win over distance and count";
  for (const char* const missing : {"m1", "m3", "m0/2"}) {
    const Names refused = rails({missing}, 1);
    EXPECT_NE(refused[0].find(missing), std::string::npos) << refused[0];
    EXPECT_NE(refused[0].find("m0/1, m2/1"), std::string::npos) << "it says which there are: " << refused[0];
  }
  TransportOptions options;
  options.gid_index = 3;
  EXPECT_TRUE(open_verbs(options));
  options.gid_index = 2;
  const auto refused = open_verbs(options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("GID index 2"), std::string::npos) << refused.error().message();
  EXPECT_EQ(test::alive(), 0);
}

// The rails of the first end's links with a peer on that device, which the second end opens.
std::string rails_towards(Pair& pair, const std::string& device) {
  EXPECT_FALSE(pair.second.open(device));
  const Peer peer{1, false, 0, pair.second.transport->address()};
  std::string rails;
  for (std::size_t rail = 0; rail < pair.first.transport->rails().size(); ++rail) {
    Parcel offer;
    const auto link = pair.first.transport->offer(peer, rail, offer);
    rails += (link ? (*link)->rail() : link.error().message()) + " ";
  }
  return rails;
}

ISOLATED_TEST(VerbsRails, LinksStayInTheirNetworkWhereThePeerHasARailInIt) {
  network_mask = 0xfffffffeU;  // a1 and a2 are in one, a0 and a3 in networks of their own
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2; a2 10.9.0.3; a3 10.9.0.4");
  TransportOptions options;
  options.rails = {"a0", "a1"};
  Pair pair;
  ASSERT_FALSE(pair.first.open("", options));
  EXPECT_EQ(rails_towards(pair, "a2"), "a1/1 a1/1 ") << "nothing says that a0 reaches it";
  EXPECT_EQ(rails_towards(pair, "a3"), "a0/1 a1/1 ") << "its network may be routed from either";
}

std::string reason_of(const End& from, const End& to, const Link& link) {
  std::vector<std::byte> bytes(4096);
  const auto local = from.register_host(bytes.data(), bytes.size());
  const auto peers = to.register_host(bytes.data(), bytes.size());
  const auto remote = from.open_region(*peers);
  return link.reach(Direction::write, *local, *remote).reason;
}

// What was told after the link stood, and both ends' reasons.
void expect_told(const TransportOptions& options, const std::string& expected, const std::string& part) {
  const std::size_t before = test::told().size();
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(options));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_TRUE(pair.works(*pair.here, *pair.there));
  EXPECT_EQ(test::told().substr(before), expected);
  for (const bool is_first : {true, false}) {
    const std::string reason =
        is_first ? reason_of(pair.first, pair.second, *pair.here->link) : reason_of(pair.second, pair.first, *pair.there->link);
    EXPECT_NE(reason.find(part), std::string::npos) << reason;
  }
}

TransportOptions levels(int service_level, int traffic_class) {
  TransportOptions options;
  options.service_level = service_level;
  options.traffic_class = traffic_class;
  return options;
}

ISOLATED_TEST(VerbsRails, InfiniBandTakesTheServiceLevelInItsPath) {
  const FakeMachine machine("a0 10.9.0.1 infiniband; a1 10.9.0.2 infiniband");
  // All else of the path as it was resolved: LIDs, flow label 0xabcde with 64 hops, and exact sizes and times.
  const auto path = [](int level, int traffic_class) {
    return "PATH sl " + std::to_string(level) + " tclass " + std::to_string(traffic_class) +
           " dlid 18 slid 52 pkey ffff mtu 85 rate 90 lifetime 92 flow abcde40 paths 81 dgid 2 sgid 1\n";
  };
  expect_told(levels(-1, -1), "", "/1 (MTU 4096, service level 0) moves");
  expect_told(levels(9, -1), path(9, 0), "(MTU 4096, service level 9) moves");
  expect_told(levels(15, -1), path(15, 0), "(MTU 4096, service level 15) moves");
  expect_told(levels(0, 26), "TOS 26\nTOS 26\n" + path(0, 26), "(MTU 4096, service level 0) moves");
  EXPECT_EQ(test::alive(), 0);

  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open(levels(9, -1)));
  const int before = test::alive();
  for (const auto& [call, error, part] :
       {std::tuple{"set_path", EINVAL, "rdma_set_option(IB_PATH)"}, std::tuple{"create_id", ENOMEM, "rdma_create_id"},
        std::tuple{"paths", 1, "does not tell the path"}}) {
    test::fail(call, error, std::string(call) == "create_id" ? 1 : 0);
    ASSERT_TRUE(pair.begin());
    ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; })) << call;
    EXPECT_NE(pair.here->errors[0].message().find(part), std::string::npos) << pair.here->errors[0].message();
    pair.first.links.clear();
    pair.second.links.clear();
    EXPECT_EQ(test::alive(), before) << call;
  }
}

ISOLATED_TEST(VerbsRails, RoceTakesItAsPriorityAndClassSelector) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2; w0 10.9.0.3 iwarp");
  const std::string rest = " dlid 18 slid 52 pkey ffff mtu 85 rate 90 lifetime 92 flow abcde40 paths 81 dgid 2 sgid 1\n";
  expect_told(levels(-1, -1), "", "(GID 3, MTU 4096, traffic class 0, service level 0) moves");
  expect_told(levels(3, -1), "TOS 96\nTOS 96\nPATH sl 3 tclass 96" + rest,
              "(GID 3, MTU 4096, traffic class 96, service level 3) moves");
  expect_told(levels(7, 104), "TOS 104\nTOS 104\nPATH sl 7 tclass 104" + rest, "traffic class 104, service level 7) moves");
  expect_told(levels(-1, 104), "TOS 104\n", "traffic class 104, service level 0) moves");
  EXPECT_EQ(test::alive(), 0);

  End end;
  const auto too_much = end.open("a0", levels(8, -1));
  ASSERT_TRUE(too_much);
  EXPECT_EQ(too_much->status(), Status::invalid_argument);
  EXPECT_NE(too_much->message().find("service_level 8 on a0/1"), std::string::npos) << too_much->message();
  const auto iwarp = end.open("w0", levels(0, -1));
  ASSERT_TRUE(iwarp);
  EXPECT_EQ(iwarp->status(), Status::not_supported);
  EXPECT_NE(iwarp->message().find("w0/1"), std::string::npos) << iwarp->message();
  EXPECT_FALSE(iwarp->record().remedy.empty());
  EXPECT_EQ(test::alive(), 0);
}

}  // namespace
}  // namespace gigabar::transport
