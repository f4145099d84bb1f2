// SPDX-License-Identifier: Apache-2.0
// The doors of a job, tried by another user of the host: a job of one host has none on TCP, and behind those that there are nobody
// is heard who does not hold the key, nor kept out who does.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"
#include "fault/doors.hpp"
#include "platform/network.hpp"
#include "secure/handshake.hpp"
#include "secure/sockets.hpp"

namespace gigabar::test {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr uid_t kNobody = 65534;

RankSetup local_setup(Rank rank_count) {
  RankSetup setup;
  setup.rank_count = rank_count;
  return setup;
}

// --- Somebody else of this host
// ------------------------------------------------------------------------------------------------------

// A process that is another user's where this one may become one, and this user's elsewhere.
class Intruder {
 public:
  explicit Intruder(const std::function<int()>& act) {
    std::fflush(nullptr);
    process_ = ::fork();
    if (process_ != 0) return;
    if (is_another_user() && (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(255);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(act());
  }
  ~Intruder() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  static bool is_another_user() { return ::geteuid() == 0; }
  // What `act` said; -1: it died.
  int end() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = -1;
};

template <class Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// What UCX's TCP transport takes for a peer: its magic number, then a write of 64 bytes to an address. Source: tcp.h and tcp_ep.c
// of UCX 1.13.
std::string ucx_put() {
  std::string bytes;
  append(bytes, std::uint64_t{0xCAFEBABE12345678});
  append(bytes, std::uint8_t{33});
  append(bytes, std::uint32_t{20});
  append(bytes, std::uint64_t{0x7fff00000000});
  append(bytes, std::uint64_t{64});
  append(bytes, std::uint32_t{1});
  return bytes + std::string(64, 'X');
}

// All that comes until the other end closes; five seconds of silence are told as "silence".
std::string hear_all(const Descriptor& socket) {
  std::string heard;
  for (;;) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, 5000) != 1) return heard + "silence";
    std::array<char, 4096> piece{};
    const ssize_t bytes = ::recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (bytes <= 0) return heard;
    heard.append(piece.data(), std::size_t(bytes));
  }
}

// How often a Unix door answered another user with as much as a byte, or kept him.
int visit_unix_doors(const Doors& doors) {
  std::mt19937 random(7);
  int heard_count = 0;
  for (int round = 0; round < 30; ++round) {
    for (const std::string& name : doors.unix_names) {
      const Descriptor visitor = knock_unix(name, SOCK_STREAM);
      if (!visitor.is_open()) continue;
      std::string words = round % 3 == 0 ? ucx_put() : std::string(random() % 400, '\0');
      for (char& byte : words)
        if (round % 3 == 1) byte = char(random());
      static_cast<void>(::send(visitor.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      if (!hear_all(visitor).empty()) ++heard_count;
    }
  }
  return heard_count;
}

// How often a TCP door said more than that a rank listens (a prefix of 16 bytes and 32 random ones, a hello), or kept the visitor.
int visit_tcp_doors(const Doors& doors) {
  int told_count = 0;
  for (const std::uint16_t port : doors.tcp_ports) {
    for (const std::string& words :
         {ucx_put(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(300, '\0'), std::string(300, '\xff')}) {
      const Descriptor visitor = knock_tcp(port);
      if (!visitor.is_open()) return 200;
      static_cast<void>(::send(visitor.get(), words.data(), words.size(), MSG_NOSIGNAL));
      const std::string heard = hear_all(visitor);
      if (heard.size() > 48 || heard.ends_with("silence")) ++told_count;
    }
  }
  return told_count;
}

// --- A job of one host
// -----------------------------------------------------------------------------------------------------------------

RANK_BODY(show_the_doors) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  target.put_pattern(0, 4096, me.rank(), 0);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  EXPECT_TRUE(target.holds_pattern(0, 4096, me.rank(), 0));
  EXPECT_TRUE(target.are_guards_whole());
  EXPECT_EQ(fabric.statistics().refused_strangers > 0, me.setup().amount > 0);
}

struct OneHost {
  const char* name;
  const char* key;  // null: the test's own
  const char* address;
  const char* local_count;  // null: not set
};

class FabricDoors : public testing::TestWithParam<OneHost> {
 public:
  static void prepare(RankJob& job, Rank rank_count) {
    for (Rank rank = 0; rank < rank_count; ++rank) {
      if (GetParam().key != nullptr)
        job.set_environment(rank, "GIGABAR_JOB_KEY", *GetParam().key == '\0' ? nullptr : GetParam().key);
      job.set_environment(rank, "MASTER_ADDR", GetParam().address);
      job.set_environment(rank, "LOCAL_WORLD_SIZE", GetParam().local_count);
    }
  }
};
void PrintTo(const OneHost& host, std::ostream* out) { *out << host.name; }

TEST_P(FabricDoors, OfAJobOfOneHostAreNoneOnTcpAndNobodyElseIsHeard) {
  RankSetup setup = local_setup(3);
  setup.amount = Intruder::is_another_user() ? 1 : 0;
  RankJob job("show_the_doors", setup);
  prepare(job, 3);
  job.start_all();
  Doors all;
  for (Rank rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.hear(rank, "up"));
    const Doors doors = doors_of(job.process(rank));
    EXPECT_TRUE(doors.tcp_ports.empty()) << "rank " << rank << " listens at port " << doors.tcp_ports.front();
    EXPECT_GE(doors.unix_names.size(), rank == 0 ? 2U : 1U);
    all.add(doors);
  }
  if (Intruder::is_another_user()) {
    Intruder intruder([&] { return visit_unix_doors(all); });
    EXPECT_EQ(intruder.end(), 0) << "doors that answered another user";
  }
  for (Rank rank = 0; rank < 3; ++rank) job.tell(rank, "over");
  job.finish();
}
std::string name_of_host(const testing::TestParamInfo<OneHost>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Jobs, FabricDoors,
                         testing::Values(OneHost{"with_a_key", nullptr, "127.0.0.1", nullptr},
                                         OneHost{"without_a_key", "", "127.0.0.1", nullptr},
                                         // To the resolver an address of loopback, by the letter none.
                                         OneHost{"whose_launcher_says_so", nullptr, "127.1", "3"},
                                         OneHost{"without_a_key_at_a_name", "", "127.1", nullptr}),
                         name_of_host);

// Without a key the job's id is no secret. Another user who knows it, and all else, does not get in.
BARE_RANK_BODY(come_as_another_user) {
  if (Intruder::is_another_user()) {
    ASSERT_EQ(::setgroups(0, nullptr), 0);
    ASSERT_EQ(::setgid(kNobody), 0);
    ASSERT_EQ(::setuid(kNobody), 0);
  }
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::seconds(2));
  const auto fabric = Fabric::open(options);
  // The name of the directory follows from the user too.
  if (Intruder::is_another_user()) {
    EXPECT_TRUE(fails(fabric, Status::timed_out));
  }
}
RANK_BODY(stay_among_our_own) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_TRUE(is_ok(fabric.barrier({0, 1}, kPatience)));
}
TEST(FabricDoor, OfAJobWithoutAKeyIsShutForOtherUsers) {
  RankJob job("stay_among_our_own", local_setup(3));
  for (Rank rank = 0; rank < 3; ++rank) job.set_environment(rank, "GIGABAR_JOB_KEY", nullptr);
  job.set_body(2, "come_as_another_user");
  job.excuse(2);
  job.start(0);
  job.start(1);
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  job.start(2);
  job.wait_end(2);
  for (Rank rank = 0; rank < 2; ++rank) job.tell(rank, "over");
  job.finish();
}

// --- A job of several hosts
// --------------------------------------------------------------------------------------------------------------

// All its ranks are here, but nothing says so; it stays at loopback, where tests run side by side.
void spread(RankJob& job, Rank rank_count) {
  for (Rank rank = 0; rank < rank_count; ++rank) {
    job.set_environment(rank, "MASTER_ADDR", "127.1");
    job.set_environment(rank, "GIGABAR_INTERFACES", "127.0.0.1");
  }
}

TEST(FabricDoor, OnTcpTellsNothingButThatARankListens) {
  RankSetup setup = local_setup(2);
  setup.amount = 1;
  RankJob job("show_the_doors", setup);
  spread(job, 2);
  job.start_all();
  Doors all;
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.hear(rank, "up"));
    const Doors doors = doors_of(job.process(rank));
    EXPECT_EQ(doors.tcp_ports.size(), rank == 0 ? 2U : 1U) << "a channel, and rank 0's directory";
    EXPECT_EQ(doors.tcp_addresses, std::set<std::string>{"0100007F"}) << "nothing but what was asked for";
    all.add(doors);
  }
  Intruder intruder([&] { return visit_tcp_doors(all); });
  EXPECT_EQ(intruder.end(), 0);
  for (Rank rank = 0; rank < 2; ++rank) job.tell(rank, "over");
  job.finish();
}

// Which port a socket goes to, and what it says there.
using Visit = std::function<std::pair<std::uint16_t, std::string>(std::size_t index)>;

// For `seconds`; those that are cut off come again.
int flood(std::size_t socket_count, int seconds, const Visit& visit) {
  std::vector<Descriptor> sockets(socket_count);
  std::size_t opened_count = 0;
  const std::int64_t end_ns = now_ns() + seconds * kSecondNs;
  while (now_ns() < end_ns) {
    for (std::size_t index = 0; index < sockets.size() && now_ns() < end_ns; ++index) {
      Descriptor& socket = sockets[index];
      std::array<char, 256> heard{};
      const bool is_held =
          socket.is_open() && (::recv(socket.get(), heard.data(), heard.size(), MSG_DONTWAIT) > 0 || errno == EAGAIN);
      if (is_held) continue;
      const auto [port, words] = visit(index);
      socket = knock_tcp(port);
      if (!socket.is_open()) continue;
      ++opened_count;
      if (!words.empty()) static_cast<void>(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    ::poll(nullptr, 0, 2);
  }
  return opened_count >= socket_count ? 0 : 1;
}

// Half of the sockets say nothing, half repeat a hello that was made up: its prefix, and what may be ranks.
Visit made_up_words(const Doors& doors) {
  std::string hello = encode(secure::Prefix{secure::kProtocolVersion, secure::Verdict::proceed});
  append(hello, std::uint32_t{3});
  append(hello, std::uint32_t{2});
  append(hello, std::uint32_t{0});
  return [doors, hello](std::size_t index) {
    const std::uint16_t port = doors.tcp_ports[index % doors.tcp_ports.size()];
    if (index % 4 < 2) return std::pair(port, std::string());
    const auto purpose = index % 8 < 4 ? secure::Purpose::directory : secure::Purpose::wireup;
    std::string words = hello;
    append(words, static_cast<std::uint32_t>(purpose));
    return std::pair(port, words + std::string(secure::kHelloBytes - words.size(), 'r'));
  };
}

// An intruder with that many sockets for ten seconds.
constexpr std::size_t kCrowd = 2000;
int crowd(const Visit& visit) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
  const rlimit raised{kCrowd + 100, std::max<rlim_t>(limit.rlim_max, kCrowd + 100)};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0 && limit.rlim_cur < kCrowd + 100) return 2;
  return flood(kCrowd, 10, visit);
}

// Between a rank and the directory: passes on what they say, and keeps what the rank does.
class Recorder {
 public:
  explicit Recorder(std::uint16_t directory_port) : directory_port_(directory_port), listener_(listen()) {
    if (listener_.is_open()) thread_ = std::thread([this] { run(); });
  }
  ~Recorder() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  // The hello and the proof; less when they do not come. They are noted behind their passing on.
  std::string words() const {
    constexpr std::size_t kBytes = secure::kHelloBytes + secure::kProofBytes;
    for (const std::int64_t until_ns = now_ns() + kPatience.ns();; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const std::scoped_lock lock(mutex_);
      if (words_.size() >= kBytes || now_ns() >= until_ns) return words_.substr(0, kBytes);
    }
  }

 private:
  Descriptor listen() {
    network::SocketAddress loopback;
    auto& four = reinterpret_cast<sockaddr_in&>(loopback.storage);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    loopback.bytes = sizeof four;
    Descriptor listener = secure::listen_at(loopback);
    if (listener.is_open()) port_ = port_of(secure::own_address_of(listener.get()));
    return listener;
  }
  // False: the end.
  static bool pass_on(const Descriptor& from, const Descriptor& to, std::string& passed) {
    std::array<char, 4096> piece{};
    const ssize_t bytes = ::recv(from.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (bytes <= 0) return bytes < 0 && errno == EAGAIN;
    passed.assign(piece.data(), std::size_t(bytes));
    return ::send(to.get(), passed.data(), passed.size(), MSG_NOSIGNAL) == bytes;
  }
  void run() {
    Descriptor rank, directory;
    while (!is_over_) {
      if (!rank.is_open()) {
        rank = Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (rank.is_open()) directory = knock_tcp(directory_port_);
      }
      if (rank.is_open()) {
        std::string said, answered;
        if (!pass_on(rank, directory, said) || !pass_on(directory, rank, answered)) return;
        const std::scoped_lock lock(mutex_);
        words_ += said;
      }
      ::poll(nullptr, 0, 1);
    }
  }

  std::uint16_t directory_port_;
  std::uint16_t port_ = 0;
  Descriptor listener_;
  mutable std::mutex mutex_;
  std::string words_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

RANK_BODY(wait_for_the_last) {
  me.tell("up");
  EXPECT_TRUE(is_ok(fabric.barrier({}, Timeout::of(std::chrono::seconds(40)))));
  if (me.rank() == 0) {
    EXPECT_GE(fabric.statistics().refused_strangers, me.setup().amount);
  }
}
BARE_RANK_BODY(join_in_time) {
  const std::int64_t began_ns = now_ns();
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  EXPECT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  // Below a second on a quiet machine. Where it is counted what the rank is refused with, the intruder works as hard as the ranks.
  EXPECT_LT(now_ns() - began_ns, (me.setup().amount == 0 ? 1 : 5) * kSecondNs);
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

TEST(FabricDoor, KeepsNoRankOutWhenTwoThousandStrangersCrowdIt) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t soft = limit.rlim_cur;
  RankJob job("wait_for_the_last", local_setup(3));
  spread(job, 3);
  job.set_body(2, "join_in_time");
  job.start(0);
  job.start(1);
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  Doors doors = doors_of(job.process(0));
  ASSERT_EQ(doors.tcp_ports.size(), 2U);
  const std::size_t before = descriptors_of(job.process(0)).size();
  Intruder intruder([&] { return crowd(made_up_words(doors)); });
  std::size_t most = 0;
  for (int look = 0; look < 40; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    most = std::max(most, descriptors_of(job.process(0)).size());
  }
  EXPECT_GT(most, before + 100) << "there is no crowd";
  // A quarter of the process's descriptors, at most 1024, for the directory; 128 for channels over TCP; a few for what goes on.
  EXPECT_LT(most, before + std::min<std::size_t>(1024, soft / 4) + 128 + 20);
  job.start(2);
  EXPECT_EQ(intruder.end(), 0);
  job.finish();
}

// What a rank has said to the directory is said again by two thousand sockets: it proves nothing, and keeps nobody out.
TEST(FabricDoor, KeepsNoRankOutWhenWhatARankSaidIsRepeated) {
  RankSetup setup = local_setup(3);
  setup.amount = kCrowd / 2;  // refused at rank 0, at least
  RankJob job("wait_for_the_last", setup);
  spread(job, 3);
  Recorder recorder(job.master_port());
  ASSERT_NE(recorder.port(), 0);
  job.set_environment(1, "MASTER_PORT", std::to_string(recorder.port()).c_str());
  job.set_body(2, "join_in_time");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "up"));
  const std::string words = recorder.words();
  ASSERT_EQ(words.size(), secure::kHelloBytes + secure::kProofBytes);
  EXPECT_TRUE(words.starts_with("gigabarW"));
  Intruder intruder([&] { return crowd([&](std::size_t) { return std::pair(job.master_port(), words); }); });
  std::this_thread::sleep_for(std::chrono::seconds(3));
  job.start(2);
  EXPECT_EQ(intruder.end(), 0);
  job.finish();
}

// --- UCX, where its users trust everybody who gets there
// ---------------------------------------------------------------------------------

// UCX opens ports of its own, which know no key. They are where the job is, and no further; Gigabar's own doors stay as they are.
class FabricUcxDoors : public testing::TestWithParam<bool> {};
TEST_P(FabricUcxDoors, AreWhereTheJobIs) {
  const bool is_spread = GetParam();
  RankSetup setup = local_setup(2);
  setup.transport = TransportKind::ucx;
  RankJob job("show_the_doors", setup);
  if (is_spread) spread(job, 2);
  for (Rank rank = 0; rank < 2; ++rank) job.set_environment(rank, "GIGABAR_UCX_TRUST_NETWORK", "1");
  job.start_all();
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.hear(rank, "up"));
    const Doors doors = doors_of(job.process(rank));
    for (const std::string& address : doors.tcp_addresses)
      EXPECT_TRUE(address == "0100007F" || address == "00000000000000000000000001000000") << address;
    std::size_t channel_count = 0;
    for (const std::uint16_t port : doors.tcp_ports) {
      if (port == job.master_port()) continue;  // the directory, which says the same
      const Descriptor visitor = knock_tcp(port);
      pollfd entry{visitor.get(), POLLIN, 0};
      std::array<char, 8> word{};
      if (::poll(&entry, 1, 1000) == 1 && ::recv(visitor.get(), word.data(), word.size(), 0) == ssize_t(word.size()) &&
          std::string(word.data(), word.size()) == "gigabarW")
        ++channel_count;
    }
    const auto directory_count = std::size_t(std::ranges::count(doors.tcp_ports, job.master_port()));
    EXPECT_EQ(channel_count, is_spread ? 1U : 0U);
    EXPECT_EQ(directory_count, is_spread && rank == 0 ? 1U : 0U);
    EXPECT_GT(doors.tcp_ports.size(), channel_count + directory_count) << "UCX does not listen: the test sees nothing";
    EXPECT_GE(doors.unix_names.size(), rank == 0 ? 2U : 1U);
  }
  for (Rank rank = 0; rank < 2; ++rank) job.tell(rank, "over");
  job.finish();
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricUcxDoors);
std::vector<bool> hosts_of_ucx() { return is_tested(TransportKind::ucx) ? std::vector<bool>{false, true} : std::vector<bool>{}; }
INSTANTIATE_TEST_SUITE_P(Jobs, FabricUcxDoors, testing::ValuesIn(hosts_of_ucx()),
                         [](const auto& given) { return given.param ? "ucx_of_several_hosts" : "ucx_of_one_host"; });

}  // namespace
}  // namespace gigabar::test
