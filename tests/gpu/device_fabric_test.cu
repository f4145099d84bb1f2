// SPDX-License-Identifier: Apache-2.0
// Kernels that reach each other's memory by themselves, on the hardware: the functions of gigabar/device/fabric.hpp for threads,
// warps and blocks. Two ranks of one process, each with a kernel of its own at the same time, on two GPUs where there are two;
// and ranks that are processes where one of them is killed. Queues of an HCA are those of tests/fakes/hca.cpp, which
// GIGABAR_VERBS_LIBRARY and GIGABAR_MLX5_LIBRARY name.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/ranks.hpp"
#include "gigabar/device/channel.hpp"
#include "gigabar/device_session.hpp"
#include "gpu/gpu_fixture.hpp"

namespace gigabar::test {
namespace {

namespace gpu = gigabar::device;
using gpu::DeviceFabric;

constexpr SegmentId kOrigin = 1, kTarget = 2;
constexpr std::size_t kSpan = std::size_t{1} << 20;
constexpr gpu::Timeout kLong{10'000'000'000};

unsigned char pattern_byte(std::uint64_t place, std::uint64_t seed) {
  return static_cast<unsigned char>((place * 131 + seed * 89) >> 1);
}

// What a kernel found: the first status that it did not expect, and counts.
struct Report {
  std::uint32_t status = 0;
  std::uint32_t place = 0;  // which call, or round
  unsigned long long wrong_count = 0;
  std::uint64_t number = 0;
};

__device__ bool is_ok(Report* report, Status status, std::uint32_t place) {
  if (status == Status::ok) return true;
  report->status = static_cast<std::uint32_t>(status);
  report->place = place;
  return false;
}

// A rank in this process: its GPU, memory, fabric and session.
struct TestRank {
  int device = 0;
  std::unique_ptr<CudaBuffer> origin, target, report_memory;
  std::optional<Fabric> fabric;
  std::optional<DeviceSession> session;
  cudaStream_t stream = nullptr;

  void open(Rank rank, std::uint16_t port, int device_count, QueueUse queues, QueueEngine engine) {
    device = static_cast<int>(rank) % device_count;
    ASSERT_CUDA(cudaSetDevice(device));
    origin = std::make_unique<CudaBuffer>(kSpan);
    target = std::make_unique<CudaBuffer>(kSpan);
    report_memory = std::make_unique<CudaBuffer>(sizeof(Report));
    ASSERT_CUDA(cudaMemset(target->address(), 0xc5, kSpan));
    ASSERT_CUDA(cudaMemset(report_memory->address(), 0, sizeof(Report)));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaDeviceSynchronize());
    FabricOptions options;
    options.rank = rank;
    options.rank_count = 2;
    options.master_address = "127.0.0.1";
    options.master_port = port;
    options.transports = {TransportKind::local};
    options.device = device;
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened.is_ok()) << opened.error().message();
    fabric.emplace(std::move(*opened));
    ASSERT_TRUE(fabric->register_segment(kOrigin, origin->address(), kSpan).is_ok());
    ASSERT_TRUE(fabric->register_segment(kTarget, target->address(), kSpan).is_ok());
    DeviceSessionOptions session_options;
    session_options.queues = queues;
    session_options.queue_depth = 64;
    session_options.engine = engine;
    auto session_opened = DeviceSession::open(*fabric, session_options);
    ASSERT_TRUE(session_opened.is_ok()) << session_opened.error().message();
    session.emplace(std::move(*session_opened));
  }

  void close() {
    if (session) EXPECT_TRUE(session->close(kPatience).is_ok());
    session.reset();
    if (fabric) {
      EXPECT_TRUE(fabric->deregister_segment(kOrigin, kPatience).is_ok());
      EXPECT_TRUE(fabric->deregister_segment(kTarget, kPatience).is_ok());
    }
    fabric.reset();
    cudaSetDevice(device);
    if (stream != nullptr) cudaStreamDestroy(stream);
    stream = nullptr;
  }

  Report* report() const { return static_cast<Report*>(report_memory->address()); }
  // Waits for the kernel.
  Report result() const {
    cudaSetDevice(device);
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
    Report found;
    EXPECT_EQ(cudaSuccess, cudaMemcpy(&found, report(), sizeof found, cudaMemcpyDeviceToHost));
    return found;
  }
  void expect_ok() const {
    const Report found = result();
    EXPECT_EQ(Status::ok, static_cast<Status>(found.status)) << "at " << found.place << " on device " << device;
    EXPECT_EQ(0ULL, found.wrong_count);
  }
};

// Who calls, and whether by loads and stores or by queues, with what behind them.
template <class S, QueueUse Q, QueueEngine E = QueueEngine::software_hca>
struct Way {
  using Scope = S;
  static constexpr QueueUse kQueues = Q;
  static constexpr QueueEngine kEngine = E;
};

template <class W>
class DeviceFabricTest : public GpuTest {
 protected:
  using Scope = typename W::Scope;
  static constexpr bool kIsByQueue = W::kQueues == QueueUse::always;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (W::kEngine != QueueEngine::software_hca && std::getenv("GIGABAR_FAKE_HCA") == nullptr) {
      GTEST_SKIP()
          << "for an HCA set GIGABAR_VERBS_LIBRARY and GIGABAR_MLX5_LIBRARY to libgigabar_fake_hca.so, GIGABAR_FAKE_HCA to mlx5_0";
    }
    const std::uint16_t port = free_port();
    std::thread other([&] { ranks_[1].open(1, port, device_count_, W::kQueues, W::kEngine); });
    ranks_[0].open(0, port, device_count_, W::kQueues, W::kEngine);
    other.join();
    if (!ranks_[0].session || !ranks_[1].session) return;
    const auto reach = ranks_[0].session->reach(1, kTarget);
    ASSERT_TRUE(reach.is_ok());
    if (!kIsByQueue) ASSERT_TRUE(reach->is_direct) << reach->reason;
    if (W::kEngine == QueueEngine::software_hca) return;
    EXPECT_NE(QueueEngine::software_hca, reach->engine) << reach->reason;
    RecordProperty("engine", std::string(name_of(reach->engine)));
  }
  void TearDown() override {
    if (IsSkipped()) return;
    std::thread other([&] { ranks_[1].close(); });
    ranks_[0].close();
    other.join();
  }

  // The same kernel at both ranks at once.
  template <class... Arguments>
  void launch(void (*kernel)(DeviceFabric, Report*, Arguments...), unsigned blocks, unsigned threads,
              std::type_identity_t<Arguments>... arguments) {
    for (const TestRank& rank : ranks_) launch_at(rank, kernel, blocks, threads, arguments...);
  }
  template <class... Arguments>
  void launch_at(const TestRank& rank, void (*kernel)(DeviceFabric, Report*, Arguments...), unsigned blocks, unsigned threads,
                 std::type_identity_t<Arguments>... arguments) {
    cudaSetDevice(rank.device);
    kernel<<<blocks, threads, 0, rank.stream>>>(rank.session->handle(), rank.report(), arguments...);
    ASSERT_CUDA(cudaPeekAtLastError());
  }
  // A kernel's code, before it is launched beside one that runs: loading it may wait for that one.
  template <class Kernel>
  void load(Kernel kernel) {
    cudaFuncAttributes loaded;
    for (const TestRank& rank : ranks_) {
      cudaSetDevice(rank.device);
      ASSERT_CUDA(cudaFuncGetAttributes(&loaded, kernel));
    }
  }
  unsigned threads() const { return std::is_same_v<Scope, gpu::Thread> ? 1 : std::is_same_v<Scope, gpu::Warp> ? 32 : 256; }

  std::array<TestRank, 2> ranks_;
};
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

// --- Several blocks as one -------------------------------------------------------------------------------------------------------

// Both ranks write each other every round's words by all blocks, which come at different times, and look at what came. With
// `is_mixed` a block copies what others have made.
__global__ void write_together(DeviceFabric fabric, Report* report, std::uint64_t* words, const std::uint64_t* came,
                               std::uint64_t bytes, std::uint32_t first_round, std::uint32_t rounds, bool is_counted,
                               bool is_mixed) {
  const Rank peer = 1 - fabric.rank;
  gpu::Blocks blocks;
  if (!is_ok(report, open_blocks(fabric, 2, gridDim.x, blockIdx.x, blocks), 0)) return;
  const std::uint64_t count = bytes / 8;
  for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
    // Quad i of a scope is copied by thread i modulo its size.
    const std::uint32_t maker = is_mixed ? (blocks.rank() + round) % blocks.size() : blocks.rank();
    for (std::uint64_t i = 2ULL * maker; i < count; i += 2ULL * blocks.size()) {
      for (std::uint64_t k = i; k < i + 2 && k < count; ++k) words[k] = round * 1000ULL + fabric.rank + k;
    }
    if (is_mixed) blocks.sync();
    __nanosleep((blockIdx.x * 7 + round) % 5 * 1000);
    std::uint32_t value = 0;
    if (is_counted) {
      if (!is_ok(report, write_count(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, bytes, 1), round)) return;
      if (!is_ok(report, counter_wait(blocks, fabric, peer, 1, round, kLong, value), round)) return;
    } else {
      if (!is_ok(report, write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, bytes, 6, round), round)) return;
      if (!is_ok(report, notification_wait_until(blocks, fabric, kTarget, 6, round, kLong, value, peer), round)) return;
    }
    unsigned long long wrong = value != round ? 1 : 0;
    for (std::uint64_t i = blocks.rank(); i < count; i += blocks.size()) {
      wrong += gpu::load_relaxed(came + i) != round * 1000ULL + peer + i ? 1 : 0;
    }
    if (wrong != 0) atomicAdd(&report->wrong_count, wrong);
    if (!is_ok(report, barrier(blocks, fabric, kLong), round)) return;
  }
}

template <class W>
class DeviceBlocksTest : public DeviceFabricTest<W> {};
using BlockWays = testing::Types<Way<gpu::Block, QueueUse::never>, Way<gpu::Block, QueueUse::always>>;
TYPED_TEST_SUITE(DeviceBlocksTest, BlockWays);

TYPED_TEST(DeviceBlocksTest, MessagesAreWholeWhenTheyAreTold) {
  const auto reach = this->ranks_[0].session->reach(1, kTarget);
  const bool counts = !this->kIsByQueue && reach->why_no_atomics.empty();
  std::uint32_t round = 1, counted_round = 1;
  for (const std::uint64_t bytes : {8, 4096, 65536, 1 << 20}) {
    for (const unsigned blocks : {1U, 2U, 8U, 13U}) {
      for (const bool is_counted : {false, true}) {
        if (is_counted && !counts) continue;
        for (const bool is_mixed : {false, true}) {
          constexpr std::uint32_t kRounds = 40;
          std::uint32_t& first = is_counted ? counted_round : round;
          for (const TestRank& rank : this->ranks_) {
            this->launch_at(rank, write_together, blocks, 256, static_cast<std::uint64_t*>(rank.origin->address()),
                            static_cast<const std::uint64_t*>(rank.target->address()), bytes, first, kRounds, is_counted, is_mixed);
          }
          for (const TestRank& rank : this->ranks_) rank.expect_ok();
          first += kRounds;
        }
      }
    }
  }
}

// One block of three leaves: the others are told in time, and nothing is raised.
__global__ void leave_one_out(DeviceFabric fabric, Report* report) {
  gpu::Blocks blocks;
  if (!is_ok(report, open_blocks(fabric, 3, gridDim.x, blockIdx.x, blocks, {200'000'000}), 0)) return;
  if (blockIdx.x == 1) return;
  const Rank peer = 1 - fabric.rank;
  const Status first = write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, 4096, 7, 1);
  const Status second = write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, 4096, 7, 2);
  const Status met = flush(blocks, fabric, peer, kLong);
  const bool is_told = second == Status::timed_out && met == Status::timed_out;
  if ((first != Status::ok && first != Status::timed_out) || !is_told) atomicAdd(&report->wrong_count, 1ULL);
}

TYPED_TEST(DeviceBlocksTest, ABlockThatDoesNotComeIsTold) {
  this->launch(leave_one_out, 3, 64);
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
