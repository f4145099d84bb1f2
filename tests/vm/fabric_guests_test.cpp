// SPDX-License-Identifier: Apache-2.0
// The fabric between two guests, each with a kernel of its own: wire-up over TCP, data over RDMA, a host that vanishes. The same
// program runs in both; what one checks the other has written.
#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int64_t kSecond = 1'000'000'000;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

void run(const std::string& command) { EXPECT_EQ(std::system(command.c_str()), 0) << command; }

// Both guests come to it.
void meet(const std::string& name) { run("guest-barrier " + name); }

class TwoGuests : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (variable("GIGABAR_VM_GUESTS") != "2") GTEST_SKIP() << "runs in two guests: tests/vm/guest --guests 2 -- PROGRAM";
    rank_ = variable("GIGABAR_VM_RANK") == "0" ? 0 : 1;
    name_ = testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& letter : name_) letter = letter == '/' ? '.' : letter;
    meet(name_ + ".begin");
  }
  bool is_rxe() const { return std::string(GetParam()) == "rxe"; }
  Rank other() const { return 1 - rank_; }

  // No word of this host reaches the other one. An rxe whose interface was down does not come back (Linux 6.1), so its cable is
  // cut.
  void vanish() const {
    for (const std::string interface : {"eth0", "iw0"}) {
      run(is_rxe() ? "tc qdisc replace dev " + interface + " root netem loss 100%" : "ip link set " + interface + " down");
    }
  }
  void come_back() const {
    for (const std::string interface : {"eth0", "iw0"}) {
      run(is_rxe() ? "tc qdisc del dev " + interface + " root" : "ip link set " + interface + " up");
    }
  }

  FabricOptions options() const {
    FabricOptions options;
    options.rank = rank_;
    options.rank_count = 2;
    options.master_address = is_rxe() ? "10.77.0.1" : "10.78.0.1";
    options.master_port = std::uint16_t(is_rxe() ? 29517 : 29518);
    options.job_key = "a key of two guests, long enough";
    options.transports = {TransportKind::verbs};
    options.rails = {std::string(GetParam()) + "0"};
    return options;
  }

  Rank rank_ = 0;
  std::string name_;
};

struct Way {
  MemoryChoice origin, target;
  TransferPath path;  // that is required; none: host memory
};
constexpr std::array<Way, 6> kWays{{{MemoryChoice::host, MemoryChoice::host, TransferPath::none},
                                    {MemoryChoice::stand_in, MemoryChoice::stand_in, TransferPath::bar},
                                    {MemoryChoice::stand_in, MemoryChoice::stand_in, TransferPath::gdr},
                                    {MemoryChoice::stand_in, MemoryChoice::stand_in, TransferPath::staged},
                                    {MemoryChoice::host, MemoryChoice::stand_in, TransferPath::gdr},
                                    {MemoryChoice::stand_in, MemoryChoice::host, TransferPath::gdr}}};

PostOptions requiring(TransferPath path) {
  PathPolicy policy;
  if (path == TransferPath::bar) policy.bar = Preference::require;
  if (path == TransferPath::gdr) policy.gdr = Preference::require;
  if (path == TransferPath::staged) policy.staged = Preference::require;
  return {.queue = 0, .policy = policy};
}

void expect_path(Fabric& fabric, Operation operation, const Way& way, std::uint64_t bytes) {
  const auto report = fabric.report(operation);
  ASSERT_TRUE(is_ok(report));
  EXPECT_EQ(report->transport, TransportKind::verbs);
  if (way.path != TransferPath::none) {
    EXPECT_EQ(gigabar::name_of(report->path), gigabar::name_of(way.path)) << bytes << " bytes: " << report->reason;
  }
}

// Both write to each other, look at what came, and read back what they wrote.
void there_and_back(Fabric& fabric, Rank me, const Way& way) {
  constexpr std::size_t kSpan = 3 * kMiB + 64;
  const Rank other = 1 - me;
  const PostOptions options = requiring(way.path);
  RankSegment origin(fabric, kOrigin, way.origin, kSpan), target(fabric, kTarget, way.target, kSpan);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{8193}, std::size_t{65537}, 3 * kMiB}) {
    if (way.path == TransferPath::bar && bytes > 4096) continue;
    origin.put_pattern(5, bytes, me, 0);
    target.fill();
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
    const auto written = fabric.write_notify({kOrigin, 5}, {other, kTarget, 7}, bytes, 1, 1, options);
    ASSERT_TRUE(is_ok(written)) << bytes << " bytes";
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 1, 1, kPatience))) << bytes << " bytes";
    ASSERT_TRUE(is_ok(fabric.notification_reset(kTarget, 1)));
    ASSERT_TRUE(target.holds_pattern(7, bytes, other, 0)) << bytes << " bytes";
    ASSERT_TRUE(target.is_untouched_around(7, bytes)) << bytes << " bytes";
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    expect_path(fabric, *written, way, bytes);
    origin.fill();
    const auto read = fabric.read({kOrigin, 3}, {other, kTarget, 7}, bytes, options);
    ASSERT_TRUE(is_ok(read)) << bytes << " bytes";
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    expect_path(fabric, *read, way, bytes);
    ASSERT_TRUE(origin.holds_pattern(3, bytes, me, 0)) << bytes << " bytes";
    ASSERT_TRUE(origin.is_untouched_around(3, bytes)) << bytes << " bytes";
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  }
}

TEST_P(TwoGuests, MoveDataOfEveryKind) {
  auto fabric = Fabric::open(options());
  ASSERT_TRUE(is_ok(fabric));
  for (const Way& way : kWays) {
    SCOPED_TRACE(std::string(name_of(way.origin)) + " to " + std::string(name_of(way.target)) + " by " +
                 std::string(gigabar::name_of(way.path)));
    ASSERT_NO_FATAL_FAILURE(there_and_back(*fabric, rank_, way));
  }
  const std::vector<PeerState> peers = fabric->peers();
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));  // nobody closes before everybody has looked
  for (const PeerState& peer : peers) {
    EXPECT_EQ(peer.rails, std::vector<std::string>{std::string(GetParam()) + "0/1"});
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

TEST_P(TwoGuests, ExchangeMessagesAndCount) {
  auto fabric = Fabric::open(options());
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment target(*fabric, kTarget, MemoryChoice::stand_in, 4096);
    const std::uint64_t zero = 0;
    target.put(64, &zero, sizeof zero);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{8193}, 2 * kMiB}) {
      RankMemory out(MemoryChoice::stand_in, bytes + 1), in(MemoryChoice::stand_in, bytes + 1);
      out.put_pattern(0, bytes, rank_ + bytes, 0);
      const auto receive = fabric->post_recv(other(), bytes, ~Tag{0}, in.address(), bytes);
      ASSERT_TRUE(is_ok(receive));
      ASSERT_TRUE(is_ok(fabric->send(other(), bytes, out.address(), bytes, kPatience))) << bytes << " bytes";
      ASSERT_TRUE(is_ok(fabric->wait_message(*receive, kPatience))) << bytes << " bytes";
      EXPECT_TRUE(in.holds_pattern(0, bytes, other() + bytes, 0));
      EXPECT_TRUE(in.is_untouched_around(0, bytes));
    }
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(is_ok(fabric->fetch_add({0, kTarget, 64}, 1, kPatience)));
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    const auto sum = fabric->fetch_add({0, kTarget, 64}, 0, kPatience);
    ASSERT_TRUE(is_ok(sum));
    EXPECT_EQ(*sum, 100U);
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// Until the other host is told to be lost each wait comes back in its time.
void lose(Fabric& fabric, Rank other) {
  const std::int64_t begin_ns = now_ns();
  Result<void> outcome;
  while (outcome.is_ok() || outcome.status() == Status::timed_out) {
    ASSERT_LT(now_ns() - begin_ns, 40 * kSecond) << "that the host is gone was not noticed";
    const auto posted = fabric.write({kOrigin, 0}, {other, kTarget, 0}, 4000);
    outcome = posted || posted.status() == Status::busy ? Result<void>() : Result<void>(Error(posted.error()));
    const std::int64_t wait_ns = now_ns();
    if (outcome) outcome = fabric.wait(0, Timeout::of(std::chrono::seconds(1)));
    if (outcome) outcome = fabric.flush(other, Timeout::of(std::chrono::seconds(1)));
    EXPECT_LT(now_ns() - wait_ns, 7 * kSecond) << "a wait of two seconds";
  }
  EXPECT_TRUE(fails(outcome, Status::peer_lost, "rank " + std::to_string(other)));
}

TEST_P(TwoGuests, AHostVanishesAndComesBack) {
  FabricOptions asked = options();
  asked.connect_timeout = Timeout::of(std::chrono::seconds(10));
  auto fabric = Fabric::open(asked);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment origin(*fabric, kOrigin, MemoryChoice::stand_in, 4096), target(*fabric, kTarget, MemoryChoice::stand_in, 4096);
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    ASSERT_TRUE(is_ok(fabric->fetch_add({other(), kTarget, 0}, 1, kPatience)));
    meet(name_ + ".up");
    if (rank_ == 1) {
      vanish();
    }
    ASSERT_NO_FATAL_FAILURE(lose(*fabric, other()));
    meet(name_ + ".lost");
    if (rank_ == 1) {
      come_back();
    }
    const Deadline patience = Deadline::after_ns(60 * kSecond);
    Result<void> connected;
    do {
      static_cast<void>(fabric->forget(other()));
      connected = fabric->connect(other(), Timeout::of(std::chrono::seconds(5)));
    } while (!connected && !patience.has_passed());
    ASSERT_TRUE(is_ok(connected)) << "the host is back";
    origin.put_pattern(0, 4096, 77 + rank_, 0);
    static_cast<void>(fabric->wait(0, kPatience));  // what had failed
    ASSERT_TRUE(is_ok(fabric->write_notify({kOrigin, 0}, {other(), kTarget, 0}, 4096, 2, 1)));
    ASSERT_TRUE(is_ok(fabric->notification_wait(kTarget, 2, 1, kPatience)));
    EXPECT_TRUE(target.holds_pattern(0, 4096, 77 + other(), 0));
    EXPECT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    meet(name_ + ".end");
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

INSTANTIATE_TEST_SUITE_P(Network, TwoGuests, testing::Values("rxe", "siw"), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace gigabar::test
