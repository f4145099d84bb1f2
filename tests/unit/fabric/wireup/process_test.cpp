// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own: killed, stopped, forked, gone without a word.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "ranks.hpp"
#include "support/stop_process.hpp"

namespace gigabar::fabric::wireup {
namespace {

// Pipes of one byte string each way; the parent's end of what a child rank says.
struct Child {
  pid_t process = -1;
  Descriptor from_child, to_child;

  std::string hear() const {
    char bytes[1024];
    const ssize_t count = ::read(from_child.get(), bytes, sizeof bytes);
    return {bytes, static_cast<std::size_t>(count > 0 ? count : 0)};
  }
  void tell(const std::string& bytes) const {
    EXPECT_EQ(::write(to_child.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  int end() {
    int status = -1;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
    process = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  Child() = default;
  Child(Child&& other) noexcept
      : process(std::exchange(other.process, -1)), from_child(std::move(other.from_child)), to_child(std::move(other.to_child)) {}
  ~Child() {
    if (process <= 0) return;
    ::kill(process, SIGKILL);
    end();
  }
};

// Starts `body` in a process of its own; it gets its ends of the two pipes.
Child start(const std::function<bool(int from_parent, int to_parent)>& body) {
  int up[2] = {-1, -1};
  int down[2] = {-1, -1};
  EXPECT_EQ(::pipe2(up, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(down, O_CLOEXEC), 0);
  Child child;
  child.process = ::fork();
  if (child.process == 0) {
    ::alarm(60);
    ::close(up[0]);
    ::close(down[1]);
    const bool is_good = body(down[0], up[1]);
    ::_exit(is_good ? 0 : 1);
  }
  ::close(up[1]);
  ::close(down[0]);
  child.from_child = Descriptor(up[0]);
  child.to_child = Descriptor(down[1]);
  return child;
}

std::string read_piece(int pipe) {
  char bytes[1024];
  const ssize_t count = ::read(pipe, bytes, sizeof bytes);
  return {bytes, static_cast<std::size_t>(count > 0 ? count : 0)};
}

bool write_piece(int pipe, const std::string& bytes) {
  return ::write(pipe, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// Rank 1: tells its address and answers every frame until the channel is lost.
bool echo(int, int to_parent, const Settings& settings) {
  Node node(job_of(1, 2), settings);
  node.on_frame = [&](Rank peer, Frame frame) { (void)node.wireup->send(peer, std::move(frame)).is_ok(); };
  if (!write_piece(to_parent, node.wireup->rank_address())) return false;
  return pump({&node}, [&] { return !node.losses.empty(); }) && node.losses[0].second.status() == Status::peer_lost;
}

bool talk(Node& node) {
  const std::size_t before = node.frames[1].size();
  EXPECT_TRUE(node.wireup->send(1, frame_of(3, "are you there?")).is_ok());
  return pump({&node}, [&] { return node.frames[1].size() > before; });
}

class WireupProcess : public testing::TestWithParam<bool> {
 protected:
  Settings settings() const { return GetParam() ? only_tcp() : both(); }
  Child start_echo() const {
    return start([settings = settings()](int from, int to) { return echo(from, to, settings); });
  }
};
INSTANTIATE_TEST_SUITE_P(Sockets, WireupProcess, testing::Values(false, true),
                         [](const auto& given) { return given.param ? "Tcp" : "Unix"; });

TEST_P(WireupProcess, AnotherProcessIsNamed) {
  Child child = start_echo();
  Node node(job_of(0, 2), settings());
  ASSERT_TRUE(node.wireup->connect(1, child.hear(), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&node}, [&] { return node.connected_count == 1; }));
  EXPECT_EQ(node.last_is_same_host, !GetParam());
  EXPECT_EQ(node.last_process, GetParam() ? 0 : child.process);
  EXPECT_TRUE(talk(node));
  node.wireup->disconnect(1);
  EXPECT_EQ(child.end(), 0);
}

TEST_P(WireupProcess, KilledIsLostAtOnce) {
  Child child = start_echo();
  Node node(job_of(0, 2), settings());
  ASSERT_TRUE(node.wireup->connect(1, child.hear(), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&node}, [&] { return node.connected_count == 1; }));
  ASSERT_TRUE(talk(node));
  const std::int64_t killed_ns = now_ns();
  ::kill(child.process, SIGKILL);
  ASSERT_TRUE(pump({&node}, [&] { return !node.losses.empty(); }));
  EXPECT_LT(now_ns() - killed_ns, 2 * kSecond);
  EXPECT_EQ(name_of(node.losses[0].second.status()), "peer_lost");
  EXPECT_NE(node.losses[0].second.message().find("rank 1"), std::string::npos) << node.losses[0].second.message();
  EXPECT_EQ(node.wireup->send(1, frame_of(1, "x")).status(), Status::peer_lost);
  child.end();
}

// While much is on its way, and nobody dies of SIGPIPE.
TEST_P(WireupProcess, KilledWhileFramesAreQueued) {
  Child child = start_echo();
  Node node(job_of(0, 2), settings());
  ASSERT_TRUE(node.wireup->connect(1, child.hear(), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&node}, [&] { return node.connected_count == 1; }));
  ASSERT_TRUE(gigabar::test::stop_process(child.process));
  while (node.wireup->send(1, frame_of(1, std::string(kMaxFrameBytes, 'x'))).is_ok()) continue;
  ::kill(child.process, SIGKILL);
  ASSERT_TRUE(pump({&node}, [&] { return !node.losses.empty(); }));
  EXPECT_EQ(node.wireup->memory_bytes(1), 0u);
  for (int count = 0; count < 3; ++count) EXPECT_EQ(node.wireup->send(1, frame_of(1, "x")).status(), Status::peer_lost);
  child.end();
}

// The rank dies, a process that it forked lives on and holds copies of its sockets.
TEST(WireupForks, AChildOfTheDeadRankDoesNotKeepItAlive) {
  int hold[2] = {-1, -1};
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  Child child = start([&](int from, int to) {
    Node node(job_of(1, 2));
    if (!write_piece(to, node.wireup->rank_address())) return false;
    if (!pump({&node}, [&] { return node.connected_count == 1; })) return false;
    if (::fork() == 0) {
      // Until the test lets go of the pipe.
      ::close(hold[1]);
      ::alarm(60);
      read_piece(hold[0]);
      ::_exit(0);
    }
    write_piece(to, "forked");
    read_piece(from);
    return true;
  });
  ::close(hold[0]);
  const Descriptor holder(hold[1]);
  Node node(job_of(0, 2));
  ASSERT_TRUE(node.wireup->connect(1, child.hear(), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&node}, [&] { return node.connected_count == 1; }));
  ASSERT_EQ(child.hear(), "forked");
  ::kill(child.process, SIGKILL);
  child.end();
  const std::int64_t killed_ns = now_ns();
  ASSERT_TRUE(pump({&node}, [&] { return !node.losses.empty(); }));
  EXPECT_LT(now_ns() - killed_ns, 2 * kSecond);
  EXPECT_NE(node.losses[0].second.message().find("ended"), std::string::npos) << node.losses[0].second.message();
}

// A forked child that destroys its copy of the Wireup takes nothing from its parent.
TEST(WireupForks, AChildThatCleansUpDoesNotHarmItsParent) {
  Node left(job_of(0, 2));
  Node right(job_of(1, 2));
  ASSERT_TRUE(connect_both(left, right));
  Child child = start([&](int, int) {
    left.wireup.reset();
    right.wireup.reset();
    return true;
  });
  EXPECT_EQ(child.end(), 0);
  ASSERT_TRUE(left.wireup->send(1, frame_of(1, "still")));
  ASSERT_TRUE(pump({&left, &right}, [&] { return !right.frames[0].empty(); }));
  EXPECT_TRUE(left.losses.empty() && right.losses.empty());
  Node third(job_of(0, 2));
  left.wireup->disconnect(1);
  ASSERT_TRUE(pump({&right}, [&] { return !right.losses.empty(); }));
  ASSERT_TRUE(connect_both(third, right)) << "the listeners still tell";
}

// A process of another user of this host is refused at the Unix socket, key or no key, and does not try TCP.
TEST(WireupForks, AnotherUserOfTheHostIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const std::string& key : {kKey, std::string()}) {
    Node node(job_of(0, 2, key));
    Child child = start([&key](int from, int to) {
      if (::setuid(65534) != 0) return false;
      Node other(job_of(1, 2, key));
      if (!write_piece(to, other.wireup->rank_address())) return false;
      if (!other.wireup->connect(0, read_piece(from), now_ns() + kLongTimeNs)) return false;
      const bool is_over = pump({&other}, [&] { return !other.losses.empty(); }) && other.connected_count == 0;
      // Until its parent has knocked, too.
      return pump({&other}, [&] { return other.wireup->refusals().another_user == 1; }) && is_over &&
             other.losses[0].second.status() == Status::no_permission;
    });
    const std::string rank_address = child.hear();
    RawSocket stranger(network::unix_address(decode_rank_address(rank_address)->unix_name));
    EXPECT_TRUE(stranger.is_connected());
    child.tell(node.wireup->rank_address());
    EXPECT_EQ(child.end(), 0);
    ASSERT_TRUE(pump({&node}, [&] { return node.wireup->refusals().total() > 0; }));
    for (int round = 0; round < 20; ++round) node.poll();
    EXPECT_EQ(node.wireup->refusals().another_user, 1u) << "once, and not over TCP";
    EXPECT_EQ(node.wireup->refusals().total(), 1u);
    EXPECT_EQ(node.connected_count, 0);
    EXPECT_TRUE(stranger.has_ended());
  }
}

// Who is turned away for being another user has put nobody out.
TEST(WireupForks, AnotherUserTakesNobodysPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Settings narrow = both();
  narrow.max_pending_handshakes = 4;
  narrow.grace_before_hello_ns = 0;
  Node node(job_of(0, 2), narrow);
  std::vector<std::unique_ptr<RawSocket>> own;
  for (int count = 0; count < 4; ++count) {
    own.push_back(std::make_unique<RawSocket>(unix_of(node)));
    ASSERT_TRUE(pump({&node}, [&] { return own.back()->received().size() == kChallengeBytes; }));
  }
  const SocketAddress target = unix_of(node);
  Child child = start([&target](int, int) {
    if (::setuid(65534) != 0) return false;
    for (int count = 0; count < 8; ++count) {
      RawSocket visitor(target);
      char byte = 0;
      if (::recv(visitor.get(), &byte, 1, 0) > 0) return false;
    }
    return true;
  });
  ASSERT_TRUE(pump({&node}, [&] { return node.wireup->refusals().another_user == 8; }));
  EXPECT_EQ(child.end(), 0);
  EXPECT_EQ(node.wireup->refusals().total(), 8U);
  for (const auto& one : own) EXPECT_FALSE(one->has_ended());
}

// All connect to all, each in its own process and in its own order, some late.
TEST_P(WireupProcess, ManyInAnyOrder) {
  constexpr Rank kRanks = 6;
  std::vector<Child> children;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    children.push_back(start([rank, settings = settings()](int from, int to) {
      Node node(job_of(rank, kRanks), settings);
      if (!write_piece(to, node.wireup->rank_address())) return false;
      std::vector<std::string> rank_addresses;
      for (Rank peer = 0; peer < kRanks; ++peer) {
        rank_addresses.push_back(read_piece(from));
        if (!write_piece(to, "more")) return false;
      }
      ::usleep(rank % 3 * 20'000);
      for (Rank step = 1; step < kRanks; ++step) {
        const Rank peer = rank % 2 == 0 ? (rank + step) % kRanks : (rank + kRanks - step) % kRanks;
        if (!node.wireup->connect(peer, rank_addresses[peer], now_ns() + kLongTimeNs)) return false;
      }
      node.on_connected = [&](Rank peer) {
        for (int count = 0; count < 20; ++count) {
          (void)node.wireup->send(peer, frame_of(1, pattern(5000, rank * 1000 + peer * 100 + static_cast<Rank>(count)))).is_ok();
        }
      };
      const bool has_all = pump({&node}, [&] {
        std::size_t whole = 0;
        for (const auto& [peer, frames] : node.frames) whole += frames.size() == 20 ? 1 : 0;
        return whole == kRanks - 1 || !node.losses.empty();
      });
      bool is_good = has_all && node.losses.empty() && node.connected_count == static_cast<int>(kRanks) - 1;
      for (const auto& [peer, frames] : node.frames) {
        for (std::size_t count = 0; count < frames.size(); ++count) {
          is_good &= frames[count].body == pattern(5000, peer * 1000 + rank * 100 + count);
        }
      }
      write_piece(to, is_good ? "good" : "bad");
      // Nobody leaves before all have theirs.
      return pump({&node},
                  [&] {
                    pollfd parent{from, POLLIN, 0};
                    return ::poll(&parent, 1, 0) == 1;
                  }) &&
             is_good;
    }));
  }
  std::vector<std::string> rank_addresses;
  for (const Child& child : children) rank_addresses.push_back(child.hear());
  for (const Child& child : children) {
    for (const std::string& rank_address : rank_addresses) {
      child.tell(rank_address);
      ASSERT_EQ(child.hear(), "more");
    }
  }
  for (const Child& child : children) EXPECT_EQ(child.hear(), "good");
  for (const Child& child : children) child.tell("go");
  for (Child& child : children) EXPECT_EQ(child.end(), 0);
}

TEST_P(WireupProcess, BothAtOnceInTwoProcesses) {
  for (int round = 0; round < 30; ++round) {
    Child child = start([settings = settings()](int from, int to) {
      Node node(job_of(1, 2), settings);
      if (!write_piece(to, node.wireup->rank_address())) return false;
      const std::string rank_address = read_piece(from);
      node.on_connected = [&](Rank peer) { (void)node.wireup->send(peer, frame_of(1, "hello")).is_ok(); };
      if (!node.wireup->connect(0, rank_address, now_ns() + kLongTimeNs)) return false;
      // Until the other rank is gone.
      return pump({&node}, [&] { return !node.losses.empty(); }) && node.connected_count == 1 && node.frames[0].size() == 1;
    });
    Node node(job_of(0, 2), settings());
    node.on_connected = [&](Rank peer) { EXPECT_TRUE(node.wireup->send(peer, frame_of(1, "hello")).is_ok()); };
    const std::string rank_address = child.hear();
    child.tell(node.wireup->rank_address());
    ::usleep(static_cast<useconds_t>(round * 5));
    ASSERT_TRUE(node.wireup->connect(1, rank_address, now_ns() + kLongTimeNs));
    ASSERT_TRUE(pump({&node}, [&] { return !node.frames[1].empty(); })) << round;
    ASSERT_TRUE(node.losses.empty()) << node.losses[0].second.message();
    node.wireup->disconnect(1);
    ASSERT_EQ(child.end(), 0) << round;
    ASSERT_EQ(node.connected_count, 1);
  }
}

}  // namespace
}  // namespace gigabar::fabric::wireup
