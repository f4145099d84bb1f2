// SPDX-License-Identifier: Apache-2.0
// Ranks of one host in networks of their own, as containers have them, where the launcher says that all are here.
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/descriptor.hpp"
#include "conformance/rank_segment.hpp"
#include "support/interface_address.hpp"
#include "support/isolated.hpp"

namespace gigabar::test {
namespace {

constexpr const char* kInterface = "gb0";

// --- Networks
// --------------------------------------------------------------------------------------------------------------------------

// Of both ranks' name spaces of networks: root's, or those of one user name space.
void prepare_for_networks() {
  if (::geteuid() == 0) return;
  ASSERT_EQ(::unshare(CLONE_NEWUSER), 0) << std::strerror(errno) << ": the test needs root, or a user name space of its own";
}

// A request of the kernel's, in pieces. Source: rtnetlink(7), netlink(7).
class Request {
 public:
  template <class Part>
  Request& add(const Part& part) {
    bytes_.append(reinterpret_cast<const char*>(&part), sizeof part);
    return *this;
  }
  Request& add(unsigned short type, const std::string& value) {
    rtattr attribute{};
    attribute.rta_type = type;
    attribute.rta_len = static_cast<unsigned short>(RTA_LENGTH(value.size()));
    add(attribute);
    bytes_ += value;
    bytes_.resize(RTA_ALIGN(bytes_.size()));
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

std::string name_of_interface() { return std::string(kInterface) + '\0'; }

// A pair of interfaces that are one wire: one here, the other in the network of `process`.
void wire_with(pid_t process) {
  Request peer;
  peer.add(ifinfomsg{}).add(IFLA_IFNAME, name_of_interface());
  peer.add(IFLA_NET_NS_PID, std::string(reinterpret_cast<const char*>(&process), sizeof process));
  Request data, kind;
  data.add(VETH_INFO_PEER, peer.bytes());
  kind.add(IFLA_INFO_KIND, std::string("veth")).add(IFLA_INFO_DATA, data.bytes());
  Request link;
  link.add(ifinfomsg{}).add(IFLA_IFNAME, name_of_interface()).add(IFLA_LINKINFO, kind.bytes());
  nlmsghdr header{};
  header.nlmsg_len = static_cast<__u32>(sizeof header + link.bytes().size());
  header.nlmsg_type = RTM_NEWLINK;
  header.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
  Request all;
  all.add(header);
  const std::string words = all.bytes() + link.bytes();
  const Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  ASSERT_EQ(::send(socket.get(), words.data(), words.size(), 0), ssize_t(words.size())) << std::strerror(errno);
  struct {
    nlmsghdr header;
    nlmsgerr error;
    std::array<char, 1024> rest;
  } answer{};
  ASSERT_GE(::recv(socket.get(), &answer, sizeof answer, 0), ssize_t(sizeof answer.header + sizeof answer.error));
  ASSERT_EQ(answer.error.error, 0) << std::strerror(-answer.error.error);
}

// --- Ranks
// -----------------------------------------------------------------------------------------------------------------------------

// In networks of their own, with a wire between them.
void part(RankProcess& me) {
  ASSERT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
  me.tell("apart");
  const auto process = me.hear();  // rank 0's, to rank 1
  ASSERT_TRUE(process);
  if (me.rank() == 1) {
    ASSERT_NO_FATAL_FAILURE(wire_with(static_cast<pid_t>(std::stol(*process))));
    ASSERT_NO_FATAL_FAILURE(test::set_address(kInterface, "10.77.0.2"));
  } else {
    ASSERT_NO_FATAL_FAILURE(test::set_address(kInterface, "10.77.0.1"));
  }
  me.tell("wired");
  EXPECT_EQ(me.hear(), "join");
}

// `lanes`: connections of tcp for large writes.
void run_apart(const char* body, bool has_interfaces, bool has_key, const RankSetup& setup = {}, const char* lanes = "0") {
  ASSERT_NO_FATAL_FAILURE(prepare_for_networks());
  RankJob job(body, setup);
  for (Rank rank = 0; rank < 2; ++rank) {
    if (!setup.word.empty()) job.set_environment(rank, "GIGABAR_TCP_PROTECTION", setup.word.c_str());
    job.set_environment(rank, "MASTER_ADDR", "10.77.0.1");
    job.set_environment(rank, "LOCAL_WORLD_SIZE", "2");
    job.set_environment(rank, "GIGABAR_INTERFACES", has_interfaces ? kInterface : nullptr);
    job.set_environment(rank, "GIGABAR_TCP_CONNECTIONS", lanes);
    if (!has_key) job.set_environment(rank, "GIGABAR_JOB_KEY", nullptr);
  }
  job.start_all();
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.hear(rank, "apart"));
  job.tell(1, std::to_string(job.process(0)));
  ASSERT_TRUE(job.hear(1, "wired"));
  job.tell(0, "wired");
  ASSERT_TRUE(job.hear(0, "wired"));
  for (Rank rank = 0; rank < 2; ++rank) job.tell(rank, "join");
  job.finish();
}

// The channel stands, over TCP. Whether the ranks can move anything is a matter of transports.
BARE_RANK_BODY(meet_over_the_wire) {
  ASSERT_NO_FATAL_FAILURE(part(me));
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  ASSERT_TRUE(me.meet());
  const Result<void> connected = fabric->connect(1 - me.rank(), kPatience);
  // The ranks have found each other, and have agreed that `local` cannot serve two networks.
  EXPECT_TRUE(fails(connected, Status::unavailable, "no transport reaches it"));
  ASSERT_TRUE(me.meet());
}
ISOLATED_TEST(FabricNetworks, OfTheirOwnMeetWhereInterfacesAreNamed) { run_apart("meet_over_the_wire", true, true); }

void control_interface(unsigned long request, const std::function<void(ifreq&)>& change) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq wanted{};
  std::strncpy(wanted.ifr_name, kInterface, sizeof wanted.ifr_name - 1);
  change(wanted);
  ASSERT_EQ(::ioctl(socket.get(), request, &wanted), 0) << std::strerror(errno);
}

void set_up(bool is_up) {
  control_interface(SIOCSIFFLAGS, [&](ifreq& wanted) { wanted.ifr_flags = is_up ? IFF_UP : 0; });
}

// Over a wire that takes packets of so many bytes, and that is cut for a while under a write.
BARE_RANK_BODY(move_over_the_wire) {
  constexpr std::size_t kBytes = 3'000'001;
  ASSERT_NO_FATAL_FAILURE(part(me));
  ASSERT_NO_FATAL_FAILURE(control_interface(SIOCSIFMTU, [&](ifreq& wanted) { wanted.ifr_mtu = int(me.setup().amount); }));
  ASSERT_TRUE(me.meet());
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  RankSegment origin(*fabric, kOrigin, MemoryChoice::host, kBytes), target(*fabric, kTarget, MemoryChoice::host, kBytes);
  const Rank other = 1 - me.rank();
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));  // both have their segments
  for (unsigned round = 0; round < 6; ++round) {
    origin.put_pattern(0, kBytes, me.rank(), round);
    ASSERT_TRUE(is_ok(fabric->write_notify({kOrigin, 0}, {other, kTarget, 0}, kBytes, 1, 1)));
    if (round == 3 && me.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(set_up(false));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ASSERT_NO_FATAL_FAILURE(set_up(true));
    }
    ASSERT_TRUE(is_ok(fabric->notification_wait(kTarget, 1, 1, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric->notification_reset(kTarget, 1)));
    EXPECT_TRUE(target.holds_pattern(0, kBytes, other, round));
    ASSERT_TRUE(is_ok(fabric->wait(0, kPatience)));
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  }
  for (const PeerState& peer : fabric->peers()) {
    if (peer.rank != other) continue;
    EXPECT_EQ(peer.transport, TransportKind::tcp);
    ASSERT_EQ(peer.rails.size(), 1U);
    const std::string lanes = std::getenv("GIGABAR_TCP_CONNECTIONS");
    EXPECT_EQ(peer.rails.front(), std::string(kInterface) + (lanes == "0" ? "" : " x" + lanes) + ", " + me.setup().word);
  }
  ASSERT_TRUE(me.meet());
}
void run_over_the_wire(const char* protection, std::uint64_t mtu, const char* lanes = "0") {
  RankSetup setup;
  setup.transport = TransportKind::tcp;
  setup.word = protection;
  setup.amount = mtu;
  run_apart("move_over_the_wire", true, true, setup, lanes);
}
ISOLATED_TEST(FabricNetworks, OfSmallPacketsWork) { run_over_the_wire("authenticated", 1280); }
ISOLATED_TEST(FabricNetworks, OfLargePacketsWork) { run_over_the_wire("sealed", 65535); }
ISOLATED_TEST(FabricNetworks, OfSmallPacketsWorkWithLanes) { run_over_the_wire("sealed", 1280, "2"); }

// Unix sockets are of one network. Rank 1 says what it needs.
BARE_RANK_BODY(look_for_each_other) {
  ASSERT_NO_FATAL_FAILURE(part(me));
  FabricOptions options = me.options();
  options.transports = {TransportKind::local};
  options.connect_timeout = Timeout::of(std::chrono::seconds(2));
  const auto fabric = Fabric::open(options);
  if (me.rank() == 0) {
    EXPECT_TRUE(is_ok(fabric));
  } else {
    const bool has_key = std::getenv("GIGABAR_JOB_KEY") != nullptr;
    EXPECT_TRUE(fails(fabric, has_key ? Status::timed_out : Status::no_permission, "network name space"));
    EXPECT_TRUE(fails(fabric, has_key ? Status::timed_out : Status::no_permission, "GIGABAR_INTERFACES"));
  }
  ASSERT_TRUE(me.meet());
}
ISOLATED_TEST(FabricNetworks, OfTheirOwnAreToldWhatTheyNeed) { run_apart("look_for_each_other", false, true); }
ISOLATED_TEST(FabricNetworks, OfTheirOwnWithoutAKeyAreToldWhatTheyNeed) { run_apart("look_for_each_other", false, false); }

}  // namespace
}  // namespace gigabar::test
