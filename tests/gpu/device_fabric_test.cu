// SPDX-License-Identifier: Apache-2.0
// Kernels that reach each other's memory by themselves, on the hardware: the functions of gigabar/device/fabric.hpp for threads,
// warps and blocks; and ranks that are processes where one of them is killed. Queues of an HCA are those of tests/fakes/hca.cpp,
// which GIGABAR_VERBS_LIBRARY and GIGABAR_MLX5_LIBRARY name.
#include <array>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "gigabar/device/channel.hpp"
#include "gpu/device_ranks.cuh"

namespace gigabar::test {
namespace {

unsigned char pattern_byte(std::uint64_t place, std::uint64_t seed) {
  return static_cast<unsigned char>((place * 131 + seed * 89) >> 1);
}

using Ways = testing::Types<Way<gpu::Thread, QueueUse::never>, Way<gpu::Warp, QueueUse::never>, Way<gpu::Block, QueueUse::never>,
                            Way<gpu::Thread, QueueUse::always>, Way<gpu::Warp, QueueUse::always>, Way<gpu::Block, QueueUse::always>,
                            Way<gpu::Thread, QueueUse::always, QueueEngine::hca_cpu_doorbell>,
                            Way<gpu::Thread, QueueUse::always, QueueEngine::automatic>,
                            Way<gpu::Block, QueueUse::always, QueueEngine::automatic>>;
TYPED_TEST_SUITE(DeviceFabricTest, Ways);

// --- Data ------------------------------------------------------------------------------------------------------------------------

template <class Scope>
__global__ void exchange(DeviceFabric fabric, Report* report, std::uint64_t at, std::uint64_t from, std::uint64_t bytes,
                         bool is_read) {
  const Scope scope;
  const Rank peer = 1 - fabric.rank;
  if (is_read) {
    is_ok(report, read(scope, fabric, {kTarget, at}, {peer, kOrigin, from}, bytes), 1);
    is_ok(report, wait(scope, fabric, 0, kLong), 2);
    return;
  }
  is_ok(report, write_notify(scope, fabric, {kOrigin, from}, {peer, kTarget, at}, bytes, 5, 77), 3);
  NotificationId found = 0;
  is_ok(report, notification_wait(scope, fabric, kTarget, 0, 8, kLong, found, peer), 4);
  std::uint32_t value = 0;
  is_ok(report, notification_reset(scope, fabric, kTarget, found, value), 5);
  if (found != 5 || value != 77) report->wrong_count = 1;
}

TYPED_TEST(DeviceFabricTest, WritesAndReadsOfAllSizes) {
  std::vector<unsigned char> bytes(kSpan), back(kSpan);
  for (Rank rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < kSpan; ++i) bytes[i] = pattern_byte(i, rank);
    cudaSetDevice(this->ranks_[rank].device);
    ASSERT_CUDA(cudaMemcpy(this->ranks_[rank].origin->address(), bytes.data(), kSpan, cudaMemcpyHostToDevice));
  }
  for (const bool is_read : {false, true}) {
    for (const std::uint64_t size : {0, 1, 4, 8, 15, 16, 100, 4096, 100003}) {
      for (const std::uint64_t at : {0, 1, 4, 8}) {
        for (const std::uint64_t from : {0, 1, 8}) {
          if (this->kIsByQueue && (at == 4 || from == 1)) continue;  // the fabric's matter
          this->launch(exchange<typename TypeParam::Scope>, 1, this->threads(), at, from, size, is_read);
          for (Rank rank = 0; rank < 2; ++rank) {
            const TestRank& here = this->ranks_[rank];
            here.expect_ok();
            ASSERT_CUDA(cudaMemcpy(back.data(), here.target->address(), kSpan, cudaMemcpyDeviceToHost));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < kSpan; ++i) {
              const bool is_written = i >= at && i < at + size;
              wrong += back[i] != (is_written ? pattern_byte(i - at + from, 1 - rank) : 0xc5) ? 1 : 0;
            }
            ASSERT_EQ(0U, wrong) << size << " bytes at " << at << " from " << from << (is_read ? ", read" : ", written");
            ASSERT_CUDA(cudaMemset(here.target->address(), 0xc5, kSpan));
            ASSERT_CUDA(cudaDeviceSynchronize());
          }
        }
      }
    }
  }
}

// --- Ordering --------------------------------------------------------------------------------------------------------------------

// Rank 0 writes a round's number to every word, then tells; rank 1 counts the words that do not show it, and answers.
template <class Scope>
__global__ void count_early_notifications(DeviceFabric fabric, Report* report, std::uint64_t* words, std::uint64_t bytes,
                                          std::uint32_t rounds) {
  const Scope scope;
  const Rank peer = 1 - fabric.rank;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    NotificationId found = 0;
    std::uint32_t value = 0;
    std::uint64_t payload = 0;
    if (fabric.rank == 0) {
      for (std::uint64_t i = scope.rank(); i < bytes / 8; i += scope.size()) words[i] = round;
      scope.sync();
      if (!is_ok(report, write_notify(scope, fabric, {kOrigin, 0}, {peer, kTarget, 0}, bytes, 0, round), round)) return;
      if (!is_ok(report, notification_wait(scope, fabric, kOrigin, 0, 1, kLong, found, peer), round)) return;
      if (!is_ok(report, notification_reset(scope, fabric, kOrigin, 0, value, &payload), round)) return;
      if (payload != round * 5ULL) report->wrong_count = 1;
    } else {
      if (!is_ok(report, notification_wait(scope, fabric, kTarget, 0, 1, kLong, found, peer), round)) return;
      if (!is_ok(report, notification_reset(scope, fabric, kTarget, 0, value), round)) return;
      unsigned long long wrong = value != round ? 1 : 0;
      for (std::uint64_t i = scope.rank(); i < bytes / 8; i += scope.size()) wrong += words[i] != round ? 1 : 0;
      if (wrong != 0) atomicAdd(&report->wrong_count, wrong);
      if (!is_ok(report, notify(scope, fabric, peer, kOrigin, 0, round, gpu::Order::none, round * 5ULL), round)) return;
    }
  }
}

TYPED_TEST(DeviceFabricTest, NotificationsComeBehindTheirPayload) {
  for (const std::uint64_t bytes : {8, 4096, 65536}) {
    const std::uint32_t rounds = bytes > 4096 && this->threads() < 32 ? 20 : 500;
    for (const TestRank& rank : this->ranks_) {
      auto* const words = static_cast<std::uint64_t*>((rank.fabric->rank() == 0 ? rank.origin : rank.target)->address());
      this->launch_at(rank, count_early_notifications<typename TypeParam::Scope>, 1, this->threads(), words, bytes, rounds);
    }
    for (const TestRank& rank : this->ranks_) rank.expect_ok();
  }
}

// Rank 0 raises one notification to growing values, rank 1 takes what it finds: each value has its own payload.
template <class Scope>
__global__ void raise_and_take(DeviceFabric fabric, Report* report, std::uint32_t rounds) {
  const Scope scope;
  if (fabric.rank == 0) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (!is_ok(report, notify(scope, fabric, 1, kOrigin, 0, round, gpu::Order::none, round * 7ULL), round)) return;
    }
    return;
  }
  std::uint32_t value = 0;
  std::uint64_t payload = 0;
  for (std::uint32_t last = 0; last < rounds; last = value != 0 ? value : last) {
    NotificationId found = 0;
    if (!is_ok(report, notification_wait(scope, fabric, kOrigin, 0, 1, kLong, found, 0), last)) return;
    if (!is_ok(report, notification_reset(scope, fabric, kOrigin, 0, value, &payload), last)) return;
    if (scope.rank() == 0 && (value <= last || payload != value * 7ULL)) ++report->wrong_count;
  }
}

TYPED_TEST(DeviceFabricTest, AValueIsTakenWithItsOwnPayload) {
  if (this->kIsByQueue) GTEST_SKIP() << "a queue writes the two one behind the other";
  for (const TestRank& rank : this->ranks_) {
    this->launch_at(rank, raise_and_take<typename TypeParam::Scope>, 1, this->threads(), 300'000U);
  }
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

// --- Channels, and queues that are shared ----------------------------------------------------------------------------------------

// Both ranks send each other every round's words, from the second half of kTarget to the first, and look at what came.
template <class Scope>
__global__ void speak(DeviceFabric fabric, Report* report, std::uint64_t* words, std::uint64_t bytes, std::uint32_t rounds) {
  const Scope scope;
  const Rank peer = 1 - fabric.rank;
  constexpr std::uint64_t kHalf = kSpan / 2;
  gpu::Channel channel;
  if (!is_ok(report, gpu::Channel::open(scope, fabric, peer, kTarget, kTarget, 0, channel), 0)) return;
  constexpr std::uint64_t kCount = kHalf - 8;  // of a word that this rank alone changes, at the other one
  std::uint64_t count = 0;
  if (!is_ok(report, channel.atomic_fetch_add(scope, kCount, 0, kLong, count), 0)) return;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    for (std::uint64_t i = scope.rank(); i < bytes / 8; i += scope.size()) words[kHalf / 8 + i] = round * 1000ULL + fabric.rank + i;
    scope.sync();
    std::uint32_t value = 0;
    if (!is_ok(report, channel.write(scope, kHalf, 8, bytes - 8, kLong), round)) return;
    if (!is_ok(report, channel.write_notify(scope, kHalf + bytes - 8, 0, 8, 1, round, kLong), round)) return;
    if (!is_ok(report, channel.notification_wait_until(scope, 1, round, kLong, value), round)) return;
    unsigned long long wrong = value != round ? 1 : 0;
    // The last word came first.
    for (std::uint64_t i = scope.rank(); i < bytes / 8; i += scope.size()) {
      const std::uint64_t sent = (i + bytes / 8 - 1) % (bytes / 8);
      wrong += gpu::load_relaxed(words + i) != round * 1000ULL + peer + sent ? 1 : 0;
    }
    if (wrong != 0) atomicAdd(&report->wrong_count, wrong);
    if (!is_ok(report, channel.wait(scope, kLong), round)) return;
    // Looked at: the next ones may come.
    std::uint64_t payload = 0;
    if (!is_ok(report, channel.notify(scope, 2, round, gpu::Order::after_writes, ~std::uint64_t{round}, kLong), round)) return;
    if (!is_ok(report, channel.notification_wait_until(scope, 2, round, kLong, value, &payload), round)) return;
    if (payload != ~std::uint64_t{round}) atomicAdd(&report->wrong_count, 1ULL);
    std::uint64_t before = 0, between = 0;
    if (!is_ok(report, channel.atomic_fetch_add(scope, kCount, round, kLong, before), round)) return;
    if (!is_ok(report, channel.compare_swap(scope, kCount, count + round, count + 2 * round, kLong, between), round)) return;
    if (before != count || between != count + round) atomicAdd(&report->wrong_count, 1ULL);
    count += 2 * round;
  }
  channel.close(scope);
  is_ok(report, barrier(scope, fabric, kLong), rounds + 1);
}

TYPED_TEST(DeviceFabricTest, Channels) {
  for (const std::uint64_t bytes : {8, 16, 4096, 65536}) {
    // Notifications grow from test to test no further: each size has a session of its own.
    if (bytes != 8) {
      this->TearDown();
      this->SetUp();
    }
    for (const TestRank& rank : this->ranks_) {
      this->launch_at(rank, speak<typename TypeParam::Scope>, 1, this->threads(),
                      static_cast<std::uint64_t*>(rank.target->address()), bytes, bytes > 4096 ? 50U : 200U);
    }
    for (const TestRank& rank : this->ranks_) rank.expect_ok();
  }
}

// One of several kernels, each with a word, a notification and a stream of its own, and all with queue 0.
template <class Scope>
__global__ void count_up(DeviceFabric fabric, Report* report, std::uint64_t* words, std::uint32_t index, std::uint32_t rounds) {
  const Scope scope;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (scope.rank() == 0) gpu::store_relaxed(words + index, round);
    const std::uint64_t at = 8ULL * index;
    if (!is_ok(report, write_notify(scope, fabric, {kOrigin, at}, {1 - fabric.rank, kTarget, at}, 8, index, round), round)) return;
  }
  is_ok(report, wait(scope, fabric, 0, kLong), rounds + 1);
}

template <class Scope>
__global__ void see_all_counts(DeviceFabric fabric, Report* report, const std::uint64_t* words, std::uint32_t count,
                               std::uint32_t rounds) {
  const Scope scope;
  std::uint32_t value = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!is_ok(report, notification_wait_until(scope, fabric, kTarget, i, rounds, kLong, value), i)) return;
    if (scope.rank() == 0 && (value != rounds || gpu::load_relaxed(words + i) != rounds)) ++report->wrong_count;
  }
}

TYPED_TEST(DeviceFabricTest, KernelsOfSeveralStreamsShareAQueue) {
  constexpr std::uint32_t kStreams = 6, kRounds = 500;
  const TestRank &sender = this->ranks_[0], &receiver = this->ranks_[1];
  this->load(count_up<typename TypeParam::Scope>);
  this->launch_at(receiver, see_all_counts<typename TypeParam::Scope>, 1, this->threads(),
                  static_cast<const std::uint64_t*>(receiver.target->address()), kStreams, kRounds);
  cudaSetDevice(sender.device);
  std::array<cudaStream_t, kStreams> streams{};
  for (cudaStream_t& stream : streams) ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (std::uint32_t i = 0; i < kStreams; ++i) {
    count_up<typename TypeParam::Scope><<<1, this->threads(), 0, streams[i]>>>(
        sender.session->handle(), sender.report(), static_cast<std::uint64_t*>(sender.origin->address()), i, kRounds);
    ASSERT_CUDA(cudaPeekAtLastError());
  }
  receiver.expect_ok();
  cudaSetDevice(sender.device);
  for (const cudaStream_t stream : streams) {
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_CUDA(cudaStreamDestroy(stream));
  }
  sender.expect_ok();
}

// --- Atomics and barriers --------------------------------------------------------------------------------------------------------

template <class Scope>
__global__ void add_up(DeviceFabric fabric, Report* report, std::uint64_t count) {
  const Scope scope;
  std::uint64_t old = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    is_ok(report, atomic_fetch_add(scope, fabric, {0, kTarget, 8}, 3, kLong, old), 1);
  }
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < count; expected = old) {
    if (!is_ok(report, compare_swap(scope, fabric, {0, kTarget, 16}, expected, expected + 1, kLong, old), 2)) return;
    i += old == expected ? 1 : 0;
  }
}

TYPED_TEST(DeviceFabricTest, AtomicsOfManyBlocks) {
  constexpr std::uint64_t kCount = TestFixture::kIsByQueue ? 3 : 50, kBlocks = 16;
  for (const TestRank& rank : this->ranks_) {
    cudaSetDevice(rank.device);
    ASSERT_CUDA(cudaMemset(rank.target->address(), 0, 64));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
  // Atomics by queues are the CPU's at the target, and not atomic with those of a kernel that has the word in reach.
  constexpr std::uint64_t kAdders = TestFixture::kIsByQueue ? 1 : 2;
  this->launch_at(this->ranks_[1], add_up<typename TypeParam::Scope>, kBlocks, this->threads(), kCount);
  if (kAdders == 2) this->launch_at(this->ranks_[0], add_up<typename TypeParam::Scope>, kBlocks, this->threads(), kCount);
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
  EXPECT_EQ(3 * kAdders * kCount * kBlocks, peek(this->ranks_[0].target->at(8)));
  EXPECT_EQ(kAdders * kCount * kBlocks, peek(this->ranks_[0].target->at(16)));
}

template <class Scope>
__global__ void meet_often(DeviceFabric fabric, Report* report, const std::uint64_t* mine, std::uint32_t rounds) {
  const Scope scope;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    std::uint64_t old = 0;
    is_ok(report, atomic_fetch_add(scope, fabric, {1 - fabric.rank, kTarget, 0}, 1, kLong, old), round);
    if (!is_ok(report, barrier(scope, fabric, kLong), round)) return;
    if (scope.rank() == 0 && gpu::load_relaxed(mine) != round) ++report->wrong_count;
    if (!is_ok(report, barrier(scope, fabric, kLong), round)) return;
  }
}

TYPED_TEST(DeviceFabricTest, Barriers) {
  for (const TestRank& rank : this->ranks_) poke(rank.target->address(), 0);
  for (const TestRank& rank : this->ranks_) {
    this->launch_at(rank, meet_often<typename TypeParam::Scope>, 1, this->threads(),
                    static_cast<std::uint64_t*>(rank.target->address()), 300);
  }
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

// --- Bad arguments, time, closing ------------------------------------------------------------------------------------------------

// The statuses of calls that cannot be, each in a bit of `number` when it was the expected one; and how long a wait took.
template <class Scope>
__global__ void ask_for_the_impossible(DeviceFabric fabric, Report* report, gpu::Timeout timeout) {
  const Scope scope;
  const Rank peer = 1 - fabric.rank;
  NotificationId found = 0;
  std::uint64_t old = 0, bits = 0;
  std::uint32_t bit = 0;
  const auto note = [&](Status status, Status expected) { bits |= (status == expected ? 1ULL : 0ULL) << bit++; };
  note(write(scope, fabric, {kOrigin, 0}, {peer, kTarget, kSpan - 7}, 8), Status::out_of_range);
  note(write(scope, fabric, {kOrigin, kSpan}, {peer, kTarget, 0}, 1), Status::out_of_range);
  note(write(scope, fabric, {kOrigin, 0}, {2, kTarget, 0}, 8), Status::out_of_range);
  note(read(scope, fabric, {kOrigin, 0}, {peer, 9, 0}, 8), Status::out_of_range);
  note(notify(scope, fabric, peer, kTarget, 1024, 1), Status::out_of_range);
  note(notify(scope, fabric, peer, kTarget, 0, 0), Status::invalid_argument);
  note(atomic_fetch_add(scope, fabric, {peer, kTarget, 4}, 1, kLong, old), Status::invalid_argument);
  note(notification_wait(scope, fabric, kTarget, 7, 1, gpu::Timeout{}, found), Status::timed_out);
  std::uint32_t value = 0;
  note(notification_wait_until(scope, fabric, kTarget, 1024, 1, kLong, value), Status::out_of_range);
  note(notification_wait_until(scope, fabric, kTarget, 7, 0, kLong, value), Status::invalid_argument);
  note(notification_wait_until(scope, fabric, kTarget, 7, 1, gpu::Timeout{}, value), Status::timed_out);
  const std::uint64_t begin_ns = gpu::now_ns();
  note(notification_wait(scope, fabric, kTarget, 7, 1, timeout, found, peer), Status::timed_out);
  if (scope.rank() == 0) {
    report->number = bits;
    report->place = static_cast<std::uint32_t>((gpu::now_ns() - begin_ns) / 1000);
  }
}

TYPED_TEST(DeviceFabricTest, BadArgumentsAndDeadlines) {
  this->launch(ask_for_the_impossible<typename TypeParam::Scope>, 1, this->threads(), gpu::Timeout{5'000'000});
  for (const TestRank& rank : this->ranks_) {
    const Report found = rank.result();
    EXPECT_EQ(0xfffULL, found.number);
    EXPECT_GE(found.place, 5000U) << "us";
    EXPECT_LT(found.place, 50000U) << "us";
  }
}

template <class Scope>
__global__ void wait_long(DeviceFabric fabric, Report* report, gpu::Timeout timeout) {
  NotificationId found = 0;
  is_ok(report, notification_wait(Scope(), fabric, kTarget, 3, 1, timeout, found, 1 - fabric.rank), 1);
}

template <class Scope>
__global__ void tell(DeviceFabric fabric, Report* report) {
  is_ok(report, notify(Scope(), fabric, 1 - fabric.rank, kTarget, 3, 1), 2);
}

TYPED_TEST(DeviceFabricTest, ClosingWaitsForKernels) {
  this->load(tell<typename TypeParam::Scope>);
  this->launch_at(this->ranks_[0], wait_long<typename TypeParam::Scope>, 1, this->threads(), kLong);
  const auto closed = this->ranks_[0].session->close(Timeout::of(std::chrono::milliseconds(50)));
  EXPECT_EQ(Status::timed_out, closed.status());
  EXPECT_EQ(Status::busy, this->ranks_[0].fabric->close(kPatience).status());
  // It still works.
  this->launch_at(this->ranks_[1], tell<typename TypeParam::Scope>, 1, this->threads());
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

// --- Queues that fail ------------------------------------------------------------------------------------------------------------

// Writes behind the end of the peer's segment, which the functions that know segments would refuse.
__global__ void break_queue(DeviceFabric fabric, Report* report) {
  const Rank peer = 1 - fabric.rank;
  gpu::Queue& queue = fabric.queues[peer][0].queue;
  const gpu::Remote segment = fabric.segments[peer * fabric.segment_count + kTarget].remote;
  gpu::Ticket ticket;
  const Status posted = gpu::post_inline_write<gpu::Sharing::device>(
      gpu::Thread{}, queue, {segment.address + (1ULL << 40), segment.key}, gpu::inline_value(1), ticket, kLong);
  if (!is_ok(report, posted, 1)) return;
  const Status ended = gpu::wait<gpu::Sharing::device>(gpu::Thread{}, queue, ticket, kLong);
  const Status refused = write(gpu::Thread{}, fabric, {kOrigin, 0}, {peer, kTarget, 0}, 8);
  if (ended != Status::peer_lost || refused != Status::peer_lost) report->wrong_count = 1;
}

TYPED_TEST(DeviceFabricTest, AQueueThatFailedIsMadeAnew) {
  for (int round = 0; round < 3; ++round) {
    if (this->kIsByQueue) {
      this->launch_at(this->ranks_[0], break_queue, 1, 1);
      this->ranks_[0].expect_ok();
    }
    std::thread other([&] { EXPECT_TRUE(this->ranks_[1].session->recover(0, kPatience).is_ok()); });
    EXPECT_TRUE(this->ranks_[0].session->recover(1, kPatience).is_ok());
    other.join();
    this->launch(exchange<typename TypeParam::Scope>, 1, this->threads(), 0, 0, 4096, false);
    for (const TestRank& rank : this->ranks_) rank.expect_ok();
  }
}

// --- Peers that end --------------------------------------------------------------------------------------------------------------

constexpr Rank kVictim = 1;

// As a process: 0 waits for ever in a kernel for 1, which is killed.
RANK_BODY(kernel_waits_for_the_victim) {
  int device_count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&device_count));
  ASSERT_CUDA(cudaSetDevice(fabric.device()));
  CudaBuffer target(kSpan), report(sizeof(Report));
  ASSERT_CUDA(cudaMemset(report.address(), 0, sizeof(Report)));
  ASSERT_TRUE(fabric.register_segment(kTarget, target.address(), kSpan).is_ok());
  auto session = DeviceSession::open(fabric);
  ASSERT_TRUE(session.is_ok()) << session.error().message();
  wait_long<gpu::Block><<<1, 64>>>(session->handle(), static_cast<Report*>(report.address()), gpu::kForever);
  ASSERT_CUDA(cudaPeekAtLastError());
  me.tell("waiting");
  if (me.rank() == kVictim) {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    FAIL() << "nobody killed this rank";
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  Report found;
  ASSERT_CUDA(cudaMemcpy(&found, report.address(), sizeof found, cudaMemcpyDeviceToHost));
  EXPECT_EQ(Status::peer_lost, static_cast<Status>(found.status));
  EXPECT_TRUE(session->close(kPatience).is_ok());
  EXPECT_TRUE(fabric.deregister_segment(kTarget, kPatience).is_ok());
  me.tell("told");
}

TEST(DeviceFabricKill, AKernelThatWaitsIsTold) {
  int device_count = 0;
  if (cudaGetDeviceCount(&device_count) != cudaSuccess || device_count == 0) GTEST_SKIP() << "no GPU";
  RankSetup setup;
  setup.origin = setup.target = MemoryChoice::device;
  RankJob job("kernel_waits_for_the_victim", setup);
  job.start_all();
  ASSERT_TRUE(job.hear(0, "waiting"));
  ASSERT_TRUE(job.hear(kVictim, "waiting"));
  job.send_signal(kVictim, SIGKILL);
  ASSERT_TRUE(job.hear(0, "told"));
  job.finish();
}

}  // namespace
}  // namespace gigabar::test
