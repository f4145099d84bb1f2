// SPDX-License-Identifier: Apache-2.0
// Sessions whose queues are an adapter's: two ranks in this process, threads of the CPU as kernels, and adapters of
// tests/fakes/hca.cpp, which execute what lies in libmlx5's rings. For ISOLATED_TEST: the libraries are opened once per process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/hca/hca.hpp"
#include "device/session/control_memory.hpp"
#include "fakes/paths.hpp"
#include "gigabar/device/fabric.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/refused_threads.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::test {
namespace {

using device::DeviceFabric;
using device::Thread;

constexpr SegmentId kOrigin = 1, kTarget = 2;
constexpr std::size_t kSpan = 65536;
constexpr device::Timeout kLong{20'000'000'000};
const Timeout kPatience = Timeout::of(std::chrono::seconds(30));

struct FakeAdapters {
  explicit FakeAdapters(const char* listed)
      : verbs("GIGABAR_VERBS_LIBRARY", test::kFakeHcaLibrary),
        mlx5("GIGABAR_MLX5_LIBRARY", test::kFakeHcaLibrary),
        devices("GIGABAR_FAKE_HCA", listed) {}
  ScopedEnvironment verbs, mlx5, devices;
};

// From now on; an empty name: none.
void fail(const char* call, int error) {
  static void* const library = ::dlopen(test::kFakeHcaLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, library);
  auto* const function = reinterpret_cast<void (*)(const char*, int)>(::dlsym(library, "gigabar_fake_hca_fail"));
  ASSERT_NE(nullptr, function);
  function(call, error);
}

DeviceSessionOptions by(QueueEngine engine) {
  DeviceSessionOptions options;
  options.segment_count = 4;
  options.notification_count = 16;
  options.queues = QueueUse::always;
  options.queue_count = 2;
  options.queue_depth = 32;
  options.engine = engine;
  return options;
}

// All of a job are open at the same time.
struct TestRank {
  std::optional<DeviceMemory> origin, target;
  std::optional<Fabric> fabric;
  std::optional<DeviceSession> session;
  std::optional<Error> refusal;  // of the session

  void open(Rank rank, Rank count, std::uint16_t port, const DeviceSessionOptions& wanted) {
    for (auto* const memory : {&origin, &target}) {
      auto allocated = DeviceMemory::allocate(0, kSpan);
      ASSERT_TRUE(allocated.is_ok()) << allocated.error().message();
      memory->emplace(std::move(*allocated));
    }
    FabricOptions options;
    options.rank = rank;
    options.rank_count = count;
    options.master_address = "127.0.0.1";
    options.master_port = port;
    options.transports = {TransportKind::local};
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened.is_ok()) << opened.error().message();
    fabric.emplace(std::move(*opened));
    ASSERT_TRUE(fabric->register_segment(kOrigin, origin->address(), kSpan).is_ok());
    ASSERT_TRUE(fabric->register_segment(kTarget, target->address(), kSpan).is_ok());
    auto made = DeviceSession::open(*fabric, wanted);
    if (made) {
      session.emplace(std::move(*made));
    } else {
      refusal.emplace(std::move(made).error());
    }
  }
  void close() {
    if (session) {
      const Result<void> closed = session->close(kPatience);
      EXPECT_TRUE(closed.is_ok()) << closed.message();
    }
    session.reset();
    if (fabric) {
      EXPECT_TRUE(fabric->deregister_segment(kOrigin, kPatience).is_ok());
      EXPECT_TRUE(fabric->deregister_segment(kTarget, kPatience).is_ok());
    }
    fabric.reset();
  }
  std::byte* at(std::uint64_t offset) { return static_cast<std::byte*>(target->address()) + offset; }
  const DeviceFabric& handle() const { return session->handle(); }
};

class Job {
 public:
  explicit Job(const DeviceSessionOptions& options, Rank count = 2) : Job(std::vector<DeviceSessionOptions>(count, options)) {}
  // One for each rank.
  explicit Job(const std::vector<DeviceSessionOptions>& options) : ranks_(options.size()) {
    const std::uint16_t port = free_port();
    run([&](Rank rank) { ranks_[rank].open(rank, static_cast<Rank>(ranks_.size()), port, options[rank]); });
  }
  ~Job() {
    run([&](Rank rank) { ranks_[rank].close(); });
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // At all ranks at the same time.
  void run(const std::function<void(Rank)>& body) {
    std::vector<std::thread> others;
    for (Rank rank = 1; rank < ranks_.size(); ++rank) others.emplace_back(body, rank);
    body(0);
    for (std::thread& other : others) other.join();
  }
  TestRank& operator[](Rank rank) { return ranks_[rank]; }
  bool is_open() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const TestRank& rank) { return rank.session.has_value(); });
  }
  DeviceReach reach(Rank of = 1, Rank from = 0) {
    auto reach = ranks_[from].session->reach(of, kTarget);
    EXPECT_TRUE(reach.is_ok());
    return *reach;
  }

 private:
  std::vector<TestRank> ranks_;
};

void fill(DeviceMemory& memory, unsigned seed) {
  auto* const bytes = static_cast<unsigned char*>(memory.address());
  for (std::size_t i = 0; i < kSpan; ++i) bytes[i] = static_cast<unsigned char>((i * 131 + seed * 89) >> 1);
}

constexpr std::uint32_t kRoundRings = 200;  // often enough for rings and CQs to go round

// Every kind of operation from each of two ranks to the other, over both queues. The target's first word is 0 before.
void exchange_everything(Job& job, std::uint32_t rounds = kRoundRings) {
  job.run([&](Rank rank) {
    TestRank& me = job[rank];
    const DeviceFabric& fabric = me.handle();
    const Rank peer = 1 - rank;
    fill(*me.origin, rank);
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      device::Post post;
      post.queue = static_cast<QueueId>(round % 2);
      const std::uint64_t bytes = round % 3 == 0 ? 8 : 1000;
      ASSERT_EQ(Status::ok, device::write_notify(Thread{}, fabric, {kOrigin, 0}, {peer, kTarget, 64}, bytes, 3, round, post));
      NotificationId found = 0;
      ASSERT_EQ(Status::ok, device::notification_wait(Thread{}, fabric, kTarget, 3, 1, kLong, found));
      std::uint32_t value = 0;
      ASSERT_EQ(Status::ok, device::notification_reset(Thread{}, fabric, kTarget, 3, value));
      ASSERT_EQ(round, value);
      ASSERT_EQ(0, std::memcmp(me.at(64), static_cast<std::byte*>(job[peer].origin->address()), bytes));
      // Nobody writes over what the other still looks at.
      ASSERT_EQ(Status::ok, device::barrier(Thread{}, fabric, kLong));
    }
    ASSERT_EQ(Status::ok, device::read(Thread{}, fabric, {kOrigin, 32768}, {peer, kOrigin, 100}, 5000));
    ASSERT_EQ(Status::ok, device::wait(Thread{}, fabric, 0, kLong));
    EXPECT_EQ(0, std::memcmp(static_cast<std::byte*>(me.origin->address()) + 32768,
                             static_cast<std::byte*>(job[peer].origin->address()) + 100, 5000));
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < 50; ++i) {
      ASSERT_EQ(Status::ok, device::atomic_fetch_add(Thread{}, fabric, {peer, kTarget, 0}, 2, kLong, before));
      ASSERT_EQ(2 * i, before);
    }
    ASSERT_EQ(Status::ok, device::compare_swap(Thread{}, fabric, {peer, kTarget, 0}, 100, 7, kLong, before));
    EXPECT_EQ(100u, before);
    ASSERT_EQ(Status::ok, device::flush(Thread{}, fabric, peer, kLong));
    ASSERT_EQ(Status::ok, device::barrier(Thread{}, fabric, kLong));
    EXPECT_EQ(7u, *reinterpret_cast<const std::uint64_t*>(me.at(0)));
  });
}

void expect_working(QueueEngine wanted, QueueEngine found) {
  Job job(by(wanted));
  ASSERT_TRUE(job.is_open());
  const DeviceReach reach = job.reach();
  EXPECT_FALSE(reach.is_direct);
  EXPECT_TRUE(reach.has_queue);
  EXPECT_EQ(name_of(found), name_of(reach.engine)) << reach.reason;
  exchange_everything(job);
}

// By a software HCA, and one of the ranks says why; the other may have heard of its failure first.
void expect_fallback(const std::string& why) {
  Job job(by(QueueEngine::automatic));
  ASSERT_TRUE(job.is_open());
  EXPECT_EQ("software_hca", name_of(job.reach().engine));
  const std::string reasons = job.reach(1, 0).reason + "\n" + job.reach(0, 1).reason;
  EXPECT_NE(std::string::npos, reasons.find(why)) << reasons;
  exchange_everything(job, 5);  // that they work; how the software's rings go round is seen elsewhere
}

void expect_refusal(const DeviceSessionOptions& options, Status status, const std::string& why) {
  Job job(options);
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_FALSE(job[rank].session) << rank;
    EXPECT_EQ(name_of(status), name_of(job[rank].refusal->status())) << job[rank].refusal->message();
    EXPECT_NE(std::string::npos, job[rank].refusal->message().find(why)) << job[rank].refusal->message();
  }
}

ISOLATED_TEST(HcaSession, IsChosenWhereThereIsOne) {
  const FakeAdapters adapters("other_0; mlx5_0 down; mlx5_1");
  expect_working(QueueEngine::automatic, QueueEngine::hca);
}

ISOLATED_TEST(HcaSession, IsRungByTheCpuWhenAsked) {
  const FakeAdapters adapters("mlx5_0");
  expect_working(QueueEngine::hca_cpu_doorbell, QueueEngine::hca_cpu_doorbell);
}

ISOLATED_TEST(HcaSession, OfEthernetTakesTheGidThatIsNamed) {
  const FakeAdapters adapters("mlx5_0 ethernet");
  DeviceSessionOptions options = by(QueueEngine::hca);
  options.hca_port = "mlx5_0/1";
  options.hca_gid_index = 3;
  {
    Job job(options);
    ASSERT_TRUE(job.is_open());
    EXPECT_NE(std::string::npos, job.reach().reason.find("mlx5_0/1")) << job.reach().reason;
    exchange_everything(job);
  }
  options.hca_gid_index = -1;
  expect_refusal(options, Status::unavailable, "no address of RoCE version 2");
}

ISOLATED_TEST(HcaSession, WorksWithCqsThatHeedOverruns) {
  const FakeAdapters adapters("mlx5_0");
  fail("ignore_overrun", EOPNOTSUPP);
  expect_working(QueueEngine::hca, QueueEngine::hca);
}

ISOLATED_TEST(Hca, SaysWhichCallDidNotOpenIt) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const FakeAdapters adapters("mlx5_0 ethernet");
  hca::HcaOptions options;
  options.gid_index = 3;
  for (const auto& [call, part] :
       {std::pair{"query_device", "ibv_query_device failed"}, std::pair{"query_port", "ibv_query_port failed"},
        std::pair{"query_gid", "ibv_query_gid failed"}, std::pair{"alloc_pd", "ibv_alloc_pd failed"}}) {
    fail(call, EIO);
    const auto refused = hca::Hca::open(options);
    ASSERT_FALSE(refused) << call;
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
  }
  fail("", 0);
  const auto opened = hca::Hca::open(options);
  ASSERT_TRUE(opened) << opened.error().message();
  fail("reg_mr", ENOMEM);
  const auto queue = hca::HcaQueue::create(**opened, 32);
  ASSERT_FALSE(queue);
  EXPECT_NE(queue.error().message().find("ibv_reg_mr failed"), std::string::npos) << queue.error().message();
}

// In three tests, as each session takes seconds where the processors are busy.
ISOLATED_TEST(HcaSession, FallsBackToSoftwareWhereItsAdapterCannotBeOpened) {
  const FakeAdapters adapters("mlx5_0");
  fail("open_device", EACCES);
  expect_fallback("ibv_open_device failed");
  fail("atomics", 0);
  expect_fallback("no atomics in the processor's byte order");
  fail("alloc_parent_domain", EOPNOTSUPP);
  expect_fallback("ibv_alloc_parent_domain failed");
  fail("reg_mr", ENOMEM);
  expect_fallback("ibv_reg_mr");
}

ISOLATED_TEST(HcaSession, FallsBackToSoftwareWhereItsQueuesCannotBeMade) {
  const FakeAdapters adapters("mlx5_0");
  fail("create_qp", ENOMEM);
  expect_fallback("mlx5dv_create_qp failed");
  fail("create_cq", ENOMEM);
  expect_fallback("ibv_create_cq_ex failed");
  fail("init_obj", EINVAL);
  expect_fallback("mlx5dv_init_obj failed");
  fail("long_cqe", 0);
  expect_fallback("entries of 128 bytes");
}

ISOLATED_TEST(HcaSession, FallsBackToSoftwareWhereItsQueuesDoNotWork) {
  const FakeAdapters adapters("mlx5_0");
  fail("modify_qp", ETIMEDOUT);
  expect_fallback("ibv_modify_qp(INIT) failed");
  fail("wire", 0);
  expect_fallback("an atomic on the peer's memory failed with syndrome 21");
  fail("word", 0);
  expect_fallback("an atomic on a word of 0 brought 5");
}

ISOLATED_TEST(HcaSession, FallsBackToSoftwareWhereItsQueuesDoNotAnswer) {
  const FakeAdapters adapters("mlx5_0");
  fail("stall", 0);
  expect_fallback("an atomic on the peer's memory did not come back in time");
}

// One rank has no queue pair left: it says so, and the other hears that it did.
ISOLATED_TEST(HcaSession, SaysThatItsPeerCouldNotConnect) {
  const FakeAdapters adapters("mlx5_0; mlx5_1 full");
  std::vector<DeviceSessionOptions> options(2, by(QueueEngine::hca));
  options[0].hca_port = "mlx5_0";
  options[1].hca_port = "mlx5_1";
  Job job(options);
  ASSERT_FALSE(job[0].session || job[1].session);
  EXPECT_NE(std::string::npos, job[0].refusal->message().find("rank 1: it could not connect its queues"))
      << job[0].refusal->message();
  EXPECT_NE(std::string::npos, job[1].refusal->message().find("mlx5dv_create_qp failed")) << job[1].refusal->message();
}

ISOLATED_TEST(HcaSession, RefusesWhatIsNotThere) {
  const FakeAdapters adapters("other_0; mlx5_0 down");
  expect_refusal(by(QueueEngine::hca), Status::unavailable, "the port is not active");
  DeviceSessionOptions options = by(QueueEngine::hca);
  options.hca_port = "mlx5_7";
  expect_refusal(options, Status::unavailable, "libibverbs does not list it");
  options.hca_port = "mlx5_0/";
  expect_refusal(options, Status::unavailable, "neither a device nor a device and a port");
  options.hca_port = "mlx5_0/2";
  expect_refusal(options, Status::unavailable, "it has 1 port");
}

ISOLATED_TEST(HcaSession, OneRankWithoutAnAdapterLeavesBothToSoftware) {
  const FakeAdapters adapters("mlx5_0");
  DeviceSessionOptions without = by(QueueEngine::automatic);
  without.hca_port = "mlx5_9";
  Job job({by(QueueEngine::automatic), without});
  ASSERT_TRUE(job.is_open());
  EXPECT_NE(std::string::npos, job.reach().reason.find("no HCA at another rank")) << job.reach().reason;
  exchange_everything(job);
}

ISOLATED_TEST(HcaSession, RanksAgreeOnTheEngine) {
  const FakeAdapters adapters("mlx5_0");
  Job job({by(QueueEngine::hca), by(QueueEngine::software_hca)});
  ASSERT_FALSE(job[0].session || job[1].session);
  EXPECT_NE(std::string::npos, job[0].refusal->message().find("engine")) << job[0].refusal->message();
}

// The network breaks under a session that works: who waits hears of it, and the two connect anew.
ISOLATED_TEST(HcaSession, RecoversFromAPeerThatDidNotAnswer) {
  const FakeAdapters adapters("mlx5_0");
  for (const QueueEngine engine : {QueueEngine::hca, QueueEngine::hca_cpu_doorbell}) {
    Job job(by(engine));
    ASSERT_TRUE(job.is_open());
    fail("wire", 0);
    const DeviceFabric& fabric = job[0].handle();
    ASSERT_EQ(Status::ok, device::write(Thread{}, fabric, {kOrigin, 0}, {1, kTarget, 0}, 100));
    EXPECT_EQ(Status::peer_lost, device::wait(Thread{}, fabric, 0, kLong));
    EXPECT_EQ(Status::peer_lost, device::write(Thread{}, fabric, {kOrigin, 0}, {1, kTarget, 0}, 100));
    fail("", 0);
    // One side alone: it ends in time. Then both, whose counts of attempts differ.
    EXPECT_EQ(Status::timed_out, job[0].session->recover(1, Timeout::of(std::chrono::milliseconds(50))).status());
    job.run([&](Rank rank) {
      const Result<void> recovered = job[rank].session->recover(1 - rank, kPatience);
      EXPECT_TRUE(recovered.is_ok()) << recovered.message();
    });
    exchange_everything(job);
  }
}

// What kernels posted is not done: the session stays open until it is.
ISOLATED_TEST(HcaSession, ClosesBehindWhatKernelsPosted) {
  const FakeAdapters adapters("mlx5_0");
  Job job(by(QueueEngine::hca));
  ASSERT_TRUE(job.is_open());
  fail("stall", 0);
  ASSERT_EQ(Status::ok, device::write(Thread{}, job[0].handle(), {kOrigin, 0}, {1, kTarget, 0}, 100));
  const Result<void> early = job[0].session->close(Timeout::of(std::chrono::milliseconds(50)));
  EXPECT_EQ(Status::timed_out, early.status());
  EXPECT_NE(std::string::npos, early.message().find("operations that kernels posted are not done yet")) << early.message();
  fail("", 0);
}

// As if rank 1 had made so many queues anew for rank 0: only the memory that a peer shares tells that it has.
void pretend_made(Job& job, const DeviceSessionOptions& options, std::uint32_t queue_count) {
  const ControlLayout layout({.rank_count = 2,
                              .segment_count = options.segment_count,
                              .notification_count = options.notification_count,
                              .queue_count = options.queue_count,
                              .ring_count = 0,
                              .ring_line_count = static_cast<std::uint32_t>(options.ring_bytes / sizeof(device::MessageLine))});
  constexpr std::uint32_t kMade = 2;
  const std::uint32_t state[] = {9, kMade, queue_count};  // the attempt, how far it has come, queues
  std::memcpy(job[0].origin->address(), state, sizeof state);
  const auto told = job[0].fabric->write({kOrigin, 0}, {1, options.control_segment, layout.state_at(0)}, sizeof state);
  ASSERT_TRUE(told.is_ok()) << told.message();
  ASSERT_TRUE(job[0].fabric->flush(1, kPatience).is_ok());
}

void recover_both(Job& job) {
  job.run([&](Rank rank) {
    const Result<void> recovered = job[rank].session->recover(1 - rank, kPatience);
    EXPECT_TRUE(recovered.is_ok()) << recovered.message();
  });
}

ISOLATED_TEST(HcaSession, RefusesAPeerWithAnotherCountOfQueues) {
  const FakeAdapters adapters("mlx5_0");
  const DeviceSessionOptions options = by(QueueEngine::hca);
  Job job(options);
  ASSERT_TRUE(job.is_open());
  ASSERT_NO_FATAL_FAILURE(pretend_made(job, options, 1));
  const Result<void> refused = job[0].session->recover(1, kPatience);
  EXPECT_EQ(Status::peer_lost, refused.status());
  EXPECT_NE(std::string::npos, refused.message().find("it has 1 queue, this rank 2")) << refused.message();
  recover_both(job);
  exchange_everything(job, 5);
}

// The adapter knows what was there when the session was opened, and only what kernels reach.
ISOLATED_TEST(HcaSession, RefusesAPeerWithASegmentThatItsAdapterDoesNotKnow) {
  const FakeAdapters adapters("mlx5_0");
  const DeviceSessionOptions options = by(QueueEngine::hca);
  constexpr SegmentId kLater = 3;
  std::vector<std::byte> later(4096);
  Job job(options);
  ASSERT_TRUE(job.is_open());
  ASSERT_TRUE(job[1].fabric->register_segment(kLater, later.data(), later.size()).is_ok());
  ASSERT_NO_FATAL_FAILURE(pretend_made(job, options, options.queue_count));
  const Result<void> refused = job[0].session->recover(1, kPatience);
  EXPECT_EQ(Status::not_supported, refused.status()) << refused.message();
  EXPECT_NE(std::string::npos, refused.message().find("segment 3 of rank 1: it is not in the memory of that rank's device"))
      << refused.message();
  EXPECT_NE(std::string::npos, refused.message().find("use the software HCA, or DeviceMemory")) << refused.message();
}

ISOLATED_TEST(HcaSession, SaysThatNoThreadCanRing) {
  const FakeAdapters adapters("mlx5_0");
  // While there is a queue, the adapters' own thread goes on.
  const auto hca = hca::Hca::open({});
  ASSERT_TRUE(hca.is_ok()) << hca.message();
  const auto queue = hca::HcaQueue::create(**hca, 32);
  ASSERT_TRUE(queue.is_ok()) << queue.message();
  Job job(by(QueueEngine::hca_cpu_doorbell));
  ASSERT_TRUE(job.is_open());
  job.run([&](Rank rank) {
    if (rank == 1) refuse_threads();
    const Result<void> recovered = job[rank].session->recover(1 - rank, kPatience);
    EXPECT_EQ(recovered.is_ok(), rank == 0) << recovered.message();
    if (rank == 0) return;
    EXPECT_NE(std::string::npos, recovered.message().find("that rings doorbells: a thread cannot be started"))
        << recovered.message();
  });
  recover_both(job);
  exchange_everything(job, 5);
}

// Every rank with every other.
ISOLATED_TEST(HcaSession, OfFourRanksTellsEachOfEach) {
  const FakeAdapters adapters("mlx5_0; mlx5_1");
  Job job(by(QueueEngine::hca), 4);
  ASSERT_TRUE(job.is_open());
  job.run([&](Rank rank) {
    const DeviceFabric& fabric = job[rank].handle();
    for (Rank peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(Status::ok, device::write_notify(Thread{}, fabric, {kOrigin, 0}, {peer, kTarget, rank * 64}, 64, rank, rank + 1));
    }
    for (Rank peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      NotificationId found = 0;
      ASSERT_EQ(Status::ok, device::notification_wait(Thread{}, fabric, kTarget, peer, 1, kLong, found));
    }
    ASSERT_EQ(Status::ok, device::barrier(Thread{}, fabric, kLong));
  });
}

// What goes wrong between two of them late ends it for all, and soon.
ISOLATED_TEST(HcaSession, OneLateFailureLeavesAllToSoftware) {
  const FakeAdapters adapters("mlx5_0; mlx5_1 ethernet");
  std::vector<DeviceSessionOptions> options(3, by(QueueEngine::automatic));
  for (DeviceSessionOptions& each : options) each.hca_port = "mlx5_0";
  options[2].hca_port = "mlx5_1";
  options[2].hca_gid_index = 3;
  Job job(options);
  ASSERT_TRUE(job.is_open());
  for (const Rank rank : {1u, 2u}) EXPECT_EQ("software_hca", name_of(job.reach(rank).engine));
  const std::string reasons = job.reach(2, 0).reason + "\n" + job.reach(2, 1).reason + "\n" + job.reach(0, 2).reason;
  EXPECT_NE(std::string::npos, reasons.find("one port is of Ethernet and one of InfiniBand")) << reasons;
}

// Memory of the device, of pinned pages and of none; and depths at both ends.
ISOLATED_TEST(Hca, MakesQueuesOfEveryDepth) {
  const FakeAdapters adapters("mlx5_0");
  hca::HcaOptions options;
  auto opened = hca::Hca::open(options);
  ASSERT_TRUE(opened.is_ok()) << opened.error().message();
  EXPECT_EQ("mlx5_0/1", (*opened)->name());
  for (std::uint32_t depth = 8; depth <= device::kMaxDepth; depth *= 2) {
    auto queue = hca::HcaQueue::create(**opened, depth);
    ASSERT_TRUE(queue.is_ok()) << queue.error().message();
    const device::Queue& made = (*queue)->queue().queue;
    EXPECT_LE(made.depth, depth);
    EXPECT_GE(made.depth * 3, depth);
    EXPECT_GE(made.cq_depth, made.depth);
  }
}

}  // namespace
}  // namespace gigabar::test
