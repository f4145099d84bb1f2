// Strangers at every door of a rank: garbage, silence, half words. They are counted, and the job goes on.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

// --- Doors
// -------------------------------------------------------------------------------------------------------------------------

struct Doors {
  std::vector<std::uint16_t> tcp_ports;
  std::set<std::string> tcp_addresses;  // hexadecimal, as the kernel has them in memory
  std::vector<std::string> unix_names;  // in the abstract name space, without the leading zero
};

std::set<std::string> socket_inodes(pid_t process) {
  std::set<std::string> inodes;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return inodes;
  while (const dirent* entry = ::readdir(open)) {
    std::array<char, 64> target{};
    if (::readlinkat(dirfd(open), entry->d_name, target.data(), target.size() - 1) <= 0) continue;
    const std::string text = target.data();
    if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
  }
  ::closedir(open);
  return inodes;
}

// Where the process listens. Source: proc(5), /proc/net/tcp and /proc/net/unix.
Doors doors_of(pid_t process) {
  Doors doors;
  const std::set<std::string> inodes = socket_inodes(process);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;
      doors.tcp_addresses.insert(local.substr(0, local.find(':')));
      doors.tcp_ports.push_back(std::uint16_t(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (flags == "00010000" && inodes.contains(inode) && path.starts_with('@')) doors.unix_names.push_back(path.substr(1));
  }
  return doors;
}

Descriptor knock_tcp(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

Descriptor knock_unix(const std::string& name, int type) {
  Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return {};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return {};
  return socket;
}

// One connection to each door.
std::vector<Descriptor> knock(const Doors& doors) {
  std::vector<Descriptor> all;
  for (const std::uint16_t port : doors.tcp_ports) all.push_back(knock_tcp(port));
  for (const std::string& name : doors.unix_names) {
    for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) all.push_back(knock_unix(name, type));
  }
  std::erase_if(all, [](const Descriptor& one) { return !one.is_open(); });
  return all;
}

void say(const Descriptor& socket, const std::string& bytes) {
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

// Whatever the other side says first, given back: half a conversation with itself.
void echo(const Descriptor& socket) {
  std::array<char, 4096> buffer{};
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const ssize_t bytes = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (bytes > 0) say(socket, std::string(buffer.data(), std::size_t(bytes)));
}

std::string garbage(std::mt19937& random) {
  std::string bytes(random() % 3 == 0 ? random() % 70000 : random() % 300, '\0');
  const unsigned kind = random() % 4;
  for (char& byte : bytes) byte = kind == 0 ? '\xff' : kind == 1 ? '\0' : char(random());
  return bytes;
}

// --- The job they disturb
// ----------------------------------------------------------------------------------------------------------

// Until the test says "over": nothing is lost, nothing is late beyond a loaded machine's measure.
RANK_BODY(work_among_strangers) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096), target(fabric, kTarget, MemoryChoice::host, 4096);
  origin.put_pattern(0, 4096, me.rank(), 0);
  me.tell("up");
  ASSERT_EQ(me.hear(), "begin");
  const Rank other = (me.rank() + 1) % me.rank_count();
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {other, kTarget, 0}, 4096, 1, 1))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 1, 1, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.notification_reset(kTarget, 1))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << "round " << round;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  me.tell("done");
  ASSERT_EQ(me.hear(), "over");
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  // Of the doors of a rank with UCX one is UCX's own.
  if (me.setup().transport != TransportKind::ucx) {
    EXPECT_GT(fabric.statistics().refused_strangers, 0U);
  }
  EXPECT_TRUE(target.are_guards_whole());
}

class FabricStrangers : public testing::TestWithParam<RankSetup> {};

// Connections to the ranks' doors while they work; `visit` makes what of them it likes.
void disturb_job(const RankSetup& setup, const std::function<void(std::mt19937&, std::vector<Descriptor>&)>& visit) {
  RankJob job("work_among_strangers", setup);
  job.start_all();
  for (Rank rank = 0; rank < setup.rank_count; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  Doors all = doors_of(job.process(0));
  EXPECT_FALSE(all.tcp_ports.empty()) << "rank 0 keeps the directory";
  for (Rank rank = 1; rank < setup.rank_count; ++rank) {
    const Doors more = doors_of(job.process(rank));
    all.tcp_ports.insert(all.tcp_ports.end(), more.tcp_ports.begin(), more.tcp_ports.end());
    all.unix_names.insert(all.unix_names.end(), more.unix_names.begin(), more.unix_names.end());
  }
  std::mt19937 random(99);
  for (Rank rank = 0; rank < setup.rank_count; ++rank) job.tell(rank, "begin");
  std::vector<Descriptor> kept;
  for (int round = 0; round < 40; ++round) {
    std::vector<Descriptor> visitors = knock(all);
    EXPECT_FALSE(visitors.empty());
    visit(random, visitors);
    for (Descriptor& visitor : visitors) kept.push_back(std::move(visitor));
    if (kept.size() > 200) kept.erase(kept.begin(), kept.begin() + 100);  // those leave without a word
  }
  for (Rank rank = 0; rank < setup.rank_count; ++rank) EXPECT_TRUE(job.hear(rank, "done"));
  for (Rank rank = 0; rank < setup.rank_count; ++rank) job.tell(rank, "over");
  job.finish();
}

TEST_P(FabricStrangers, SayGarbage) {
  disturb_job(GetParam(), [](std::mt19937& random, std::vector<Descriptor>& visitors) {
    for (const Descriptor& visitor : visitors) say(visitor, garbage(random));
  });
}
TEST_P(FabricStrangers, LeaveAtOnce) {
  disturb_job(GetParam(), [](std::mt19937& random, std::vector<Descriptor>& visitors) {
    for (Descriptor& visitor : visitors) {
      say(visitor, garbage(random).substr(0, 1 + random() % 8));
      visitor = Descriptor();
    }
    std::erase_if(visitors, [](const Descriptor& one) { return !one.is_open(); });
  });
}
TEST_P(FabricStrangers, RepeatWhatTheyHear) {
  disturb_job(GetParam(), [](std::mt19937&, std::vector<Descriptor>& visitors) {
    for (const Descriptor& visitor : visitors) echo(visitor);
  });
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricStrangers, testing::ValuesIn(each_transport(2)), setup_name);

// A rank's own doors ask for the job's key, wherever they are. UCX's ask for nothing, and are at addresses of single interfaces.
RANK_BODY(stand_by) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
}
class FabricDoors : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDoors, OfAJobAtLoopbackAskForTheKeyOrAreThereOnly) {
  RankJob job("stand_by", GetParam());
  job.start_all();
  for (Rank rank = 0; rank < GetParam().rank_count; ++rank) {
    ASSERT_TRUE(job.hear(rank, "up"));
    bool is_at_loopback = false;
    for (const std::string& address : doors_of(job.process(rank)).tcp_addresses) {
      if (address.find_first_not_of('0') == std::string::npos) continue;
      EXPECT_TRUE(address == "0100007F" || address == "00000000000000000000000001000000") << address;
      is_at_loopback = true;
    }
    // Rank 0's directory is there.
    EXPECT_EQ(is_at_loopback, rank == 0 || GetParam().transport == TransportKind::ucx);
  }
  for (Rank rank = 0; rank < GetParam().rank_count; ++rank) job.tell(rank, "over");
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricDoors, testing::ValuesIn(each_transport(2)), setup_name);

// Silent visitors fill every door before the second rank comes; it is let in all the same.
RANK_BODY(come_late_among_strangers) {
  me.tell("up");
  EXPECT_TRUE(is_ok(fabric.barrier({}, Timeout::of(std::chrono::seconds(25)))));
}

class FabricSilence : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSilence, KeepsNobodyOut) {
  RankJob job("come_late_among_strangers", GetParam());
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  std::vector<Descriptor> silent;
  const Doors doors = doors_of(job.process(0));
  for (int i = 0; i < 100; ++i) {
    for (Descriptor& visitor : knock(doors)) silent.push_back(std::move(visitor));
  }
  EXPECT_FALSE(silent.empty());
  job.start(1);
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricSilence, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
