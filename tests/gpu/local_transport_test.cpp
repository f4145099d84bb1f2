// SPDX-License-Identifier: Apache-2.0
// Two ranks in two processes on real GPUs, one each (both on the only one otherwise): CUDA IPC, VMM memory, host memory on either
// side; data always checked, times and rates printed. Each rank is this program started anew: CUDA does not survive a fork.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "unit/transport/local/processes.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr std::size_t kSizes[] = {1, 8, 4096, 65537, std::size_t{1} << 20, (std::size_t{4} << 20) + 3, std::size_t{64} << 20};

int gpu_count() {
  const auto list = devices();
  if (!list || list->empty() || list->front().is_stand_in) return 0;
  return static_cast<int>(list->size());
}

// --- What one rank does ----------------------------------------------------------------------------------------------------------

struct Place {
  MemoryRange range;
  int device;

  void put(const std::vector<std::byte>& content, std::size_t offset) const {
    const auto at = reinterpret_cast<std::uintptr_t>(range.address) + offset;
    if (device < 0) {
      std::memcpy(reinterpret_cast<void*>(at), content.data(), content.size());
    } else if (const Result<void> copied = engine_copy_to(device, at, content.data(), content.size()); !copied) {
      throw std::runtime_error(copied.message());
    }
  }
  std::vector<std::byte> get(std::size_t offset, std::size_t bytes) const {
    std::vector<std::byte> content(bytes);
    const auto at = reinterpret_cast<std::uintptr_t>(range.address) + offset;
    if (device < 0) {
      std::memcpy(content.data(), reinterpret_cast<void*>(at), bytes);
    } else if (const Result<void> copied = engine_copy_from(device, content.data(), at, bytes); !copied) {
      throw std::runtime_error(copied.message());
    }
    return content;
  }
};

Place place_of(const DeviceMemory& memory, MemoryKind kind) {
  return {{memory.address(), memory.bytes(), kind, memory.device(), -1, 0}, memory.device()};
}

// The writer's half of a check: each size, then a message; then everything is read back.
void write_sizes(RankProcess& rank, const Place& from, const char* what) {
  const auto local = must(rank.transport->register_memory(from.range));
  const auto remote = rank.open_shown();
  const Reach reach = rank.link->reach(Direction::write, *local, *remote);
  std::printf("    %-28s %s\n", what, reach.reason.c_str());
  if (!reach.can) throw std::runtime_error(std::string(what) + ": " + reach.reason);
  for (const std::size_t bytes : kSizes) {
    const auto sent = pattern_of(bytes, bytes);
    from.put(sent, 3);
    rank.sink.dones.clear();
    rank.meet();  // the other side's memory is ready
    ASSERT_EQ(rank.link->post_write(*local, 3, *remote, 17, bytes, 1), Posted::ok);
    rank.post(header_of(bytes));
    ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 1; }));
    rank.meet();
    from.put(std::vector<std::byte>(bytes + 2, std::byte{0x44}), 2);
    ASSERT_EQ(rank.link->post_read(*local, 3, *remote, 17, bytes, 2), Posted::ok);
    ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 2; }));
    EXPECT_EQ(rank.sink.dones[0].second, Status::ok);
    EXPECT_EQ(rank.sink.dones[1].second, Status::ok);
    EXPECT_EQ(from.get(3, bytes), sent) << what << ": read " << bytes;
    EXPECT_EQ(from.get(2, 1)[0], std::byte{0x44});
    EXPECT_EQ(from.get(3 + bytes, 1)[0], std::byte{0x44});
    rank.meet();
  }
}

void check_sizes(RankProcess& rank, const Place& to, const char* what) {
  const auto region = must(rank.transport->register_memory(to.range));
  rank.show(*region);
  for (const std::size_t bytes : kSizes) {
    to.put(std::vector<std::byte>(bytes + 2, std::byte{0x33}), 16);
    rank.sink.messages.clear();
    rank.meet();
    ASSERT_TRUE(rank.poll_until([&] { return !rank.sink.messages.empty(); }));
    EXPECT_EQ(to.get(17, bytes), pattern_of(bytes, bytes)) << what << ": write " << bytes;
    EXPECT_EQ(to.get(16, 1)[0], std::byte{0x33});
    EXPECT_EQ(to.get(17 + bytes, 1)[0], std::byte{0x33});
    rank.meet();
    rank.meet();
  }
}

void run_sizes(RankProcess& rank, Rank number, const Place& place, const char* what) {
  rank.meet();
  if (number == 0) {
    write_sizes(rank, place, what);
  } else {
    check_sizes(rank, place, what);
  }
}

// A write and a message there, the same back: half of the round trip. The last bytes of each write are checked at the end.
void time_ping_pong(RankProcess& rank, Rank number, const Place& place, std::size_t bytes) {
  const auto region = must(rank.transport->register_memory(place.range));
  rank.show(*region);
  const auto remote = rank.open_shown();
  constexpr std::uint64_t kTurns = 2000;
  std::uint64_t last = 0;
  rank.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) { last = number_of(header); };
  rank.sink.dones.clear();
  place.put(pattern_of(bytes, number), 0);
  const std::size_t landing = kBytes / 2;
  std::vector<double> samples;
  rank.meet();
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    const std::int64_t begin_ns = now_ns();
    if (number == 1) {
      ASSERT_TRUE(rank.poll_until([&] { return last == turn; }));
    }
    ASSERT_EQ(rank.link->post_write(*region, 0, *remote, landing, bytes, turn), Posted::ok);
    rank.post(header_of(turn));
    if (number == 0) {
      ASSERT_TRUE(rank.poll_until([&] { return last == turn; }));
    }
    samples.push_back(static_cast<double>(now_ns() - begin_ns) / 2000);
  }
  ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == kTurns; }));
  rank.sink.on_message = nullptr;
  rank.meet();
  EXPECT_EQ(place.get(landing, bytes), pattern_of(bytes, 1 - number));
  std::sort(samples.begin(), samples.end());
  if (number == 0) {
    std::printf("    write + message %8zu bytes: one way p50 %.2f us, p99 %.2f us\n", bytes, samples[samples.size() / 2],
                samples[samples.size() * 99 / 100]);
  }
  rank.meet();
}

// A window of writes kept full, then one message.
void time_writes(RankProcess& rank, Rank number, const Place& place, std::size_t bytes) {
  const auto region = must(rank.transport->register_memory(place.range));
  rank.show(*region);
  const auto remote = rank.open_shown();
  const std::uint64_t count = std::max<std::uint64_t>((std::uint64_t{16} << 30) / bytes, 64) / (bytes < (1 << 20) ? 8 : 1);
  constexpr std::size_t kWindow = 8;
  const std::size_t slots = std::min<std::size_t>(kWindow, kBytes / bytes);
  rank.sink.dones.clear();
  rank.sink.messages.clear();
  rank.meet();
  if (number == 0) {
    const std::int64_t begin_ns = now_ns();
    for (std::uint64_t posted = 0; posted < count; ++posted) {
      ASSERT_TRUE(rank.poll_until([&] { return posted - rank.sink.dones.size() < kWindow; }));
      const std::uint64_t offset = posted % slots * bytes;
      ASSERT_EQ(rank.link->post_write(*region, offset, *remote, offset, bytes, posted), Posted::ok);
    }
    rank.post(header_of(1));
    ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == count && !rank.sink.messages.empty(); }));
    const double seconds = static_cast<double>(now_ns() - begin_ns) / 1e9;
    std::printf("    %8zu bytes, window %zu: %.1f GB/s\n", bytes, kWindow, static_cast<double>(count * bytes) / 1e9 / seconds);
  } else {
    ASSERT_TRUE(rank.poll_until([&] { return !rank.sink.messages.empty(); }));
    rank.post(header_of(2));
  }
  rank.meet();
}

void be_rank(int socket, Rank number) {
  Parcel mine;
  mine.bytes = std::to_string(::getpid());
  send_parcel(socket, mine);
  const std::int64_t other = std::stoll(receive_parcel(socket).bytes);
  const int device = static_cast<int>(number) % gpu_count();
  RankProcess rank(socket, number, other, device);

  const auto memory = must(DeviceMemory::allocate(device, kBytes));
  const auto vmm = must(DeviceMemory::allocate(device, kBytes, DeviceAllocator::vmm));
  const Place plain = place_of(memory, MemoryKind::device);
  run_sizes(rank, number, plain, "cudaMalloc to cudaMalloc");
  run_sizes(rank, number, place_of(vmm, MemoryKind::device_vmm), "VMM to VMM");
  const auto pinned = must(HostMemory::allocate(kBytes));
  const Place host{{pinned.address(), pinned.bytes(), MemoryKind::host_pinned, -1, -1, 0}, -1};
  run_sizes(rank, number, number == 0 ? host : plain, "pinned host to cudaMalloc");
  const SharedMemory shared(kBytes);
  run_sizes(rank, number, number == 0 ? plain : Place{shared.range(), -1}, "cudaMalloc to memfd");
  EXPECT_TRUE(shared.are_guards_whole());
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{65536}, std::size_t{1} << 20})
    time_ping_pong(rank, number, plain, bytes);
  for (const std::size_t bytes : {std::size_t{65536}, std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{16} << 20,
                                  std::size_t{64} << 20, std::size_t{256} << 20})
    time_writes(rank, number, plain, bytes);
  rank.meet();
}

// --- The test --------------------------------------------------------------------------------------------------------------------

// Started by the test below, in a process of its own.
TEST(LocalGpuRank, DISABLED_Serves) {
  const char* const socket = std::getenv("GIGABAR_TEST_SOCKET");
  const char* const number = std::getenv("GIGABAR_TEST_RANK");
  if (socket == nullptr || number == nullptr) GTEST_SKIP() << "is started by LocalGpu.TwoRanksReachEachOther";
  (void)devices();
  try {
    be_rank(std::atoi(socket), static_cast<Rank>(std::atoi(number)));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << number << ": " << error.what();
  }
}

[[noreturn]] void become_rank(int socket, const char* number) {
  ::alarm(110);
  ::fcntl(socket, F_SETFD, 0);
  ::setenv("GIGABAR_TEST_SOCKET", std::to_string(socket).c_str(), 1);
  ::setenv("GIGABAR_TEST_RANK", number, 1);
  ::execl("/proc/self/exe", "rank", "--gtest_also_run_disabled_tests", "--gtest_filter=LocalGpuRank.DISABLED_Serves",
          "--gtest_brief=1", static_cast<char*>(nullptr));
  ::_exit(127);
}

TEST(LocalGpu, TwoRanksReachEachOther) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  std::printf("    %d GPU(s)\n", gpu_count());
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  std::fflush(nullptr);
  pid_t ranks[2];
  for (int number = 0; number < 2; ++number) {
    ranks[number] = ::fork();
    ASSERT_GE(ranks[number], 0);
    if (ranks[number] == 0) become_rank(pair[number], number == 0 ? "0" : "1");
    ::close(pair[number]);
  }
  for (int number = 0; number < 2; ++number) {
    int status = 0;
    ASSERT_EQ(::waitpid(ranks[number], &status, 0), ranks[number]);
    EXPECT_EQ(status, 0) << "rank " << number << " failed; see above";
  }
}

}  // namespace
}  // namespace gigabar::transport
