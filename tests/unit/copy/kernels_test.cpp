// SPDX-License-Identifier: Apache-2.0
// The contract of StoreKernel and LoadKernel, for every kernel this CPU can run: the right bytes, not one other, any alignment.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"

namespace gigabar {
namespace {

using Sizes = std::initializer_list<std::size_t>;

constexpr std::size_t kLine = 64;
constexpr std::size_t kMaxLength = 300;
constexpr std::size_t kAreaBytes = 512;  // alignment, length and a line of guard on both sides

struct NamedKernel {
  std::string name;
  StoreKernel store;
  LoadKernel load;
};

// The table's, and those that serve the other mapping types and CPUs without MOVNTDQA.
std::vector<NamedKernel> kernels_under_test() {
  std::vector<NamedKernel> all;
  for (const CopyKernel& kernel : copy_kernels()) {
    if (kernel.is_supported) all.push_back({std::string(kernel.name), kernel.store, kernel.load});
  }
  all.push_back({"cached", kernels::cached_store, kernels::cached_load});
#if defined(__x86_64__)
  all.push_back({"sse2_without_streaming_loads", kernels::sse2_store, kernels::sse2_load});
#endif
  return all;
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(1 + (i * 7 + i / 251) % 250);
  return data;
}

// Whole pages between two that cannot be touched.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes) : page_bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    bytes_ = (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
    void* all = ::mmap(nullptr, bytes_ + 2 * page_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    begin_ = static_cast<std::byte*>(all) + page_bytes_;
    EXPECT_EQ(::mprotect(begin_, bytes_, PROT_READ | PROT_WRITE), 0);
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { ::munmap(begin_ - page_bytes_, bytes_ + 2 * page_bytes_); }
  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }

 private:
  std::size_t page_bytes_;
  std::size_t bytes_ = 0;
  std::byte* begin_ = nullptr;
};

class Kernel : public testing::TestWithParam<NamedKernel> {};

INSTANTIATE_TEST_SUITE_P(Every, Kernel, testing::ValuesIn(kernels_under_test()),
                         [](const testing::TestParamInfo<NamedKernel>& named) { return named.param.name; });

// `copy(to, from, bytes)` for every alignment of both sides and every length up to kMaxLength; the bytes around stay as they were.
template <class Copy>
void check_every_alignment(Copy copy) {
  alignas(64) std::array<std::byte, kAreaBytes> to;
  alignas(64) std::array<std::byte, kAreaBytes> from;
  std::array<std::byte, kAreaBytes> untouched;
  untouched.fill(std::byte{0xEE});
  to = untouched;
  const std::vector<std::byte> data = pattern(kAreaBytes);
  std::copy(data.begin(), data.end(), from.begin());
  for (std::size_t to_skew = 0; to_skew < kLine; ++to_skew) {
    for (std::size_t from_skew = 0; from_skew < kLine; ++from_skew) {
      for (std::size_t bytes = 0; bytes <= kMaxLength; ++bytes) {
        std::byte* const begin = to.data() + kLine + to_skew;
        copy(begin, from.data() + kLine + from_skew, bytes);
        const std::size_t after = kAreaBytes - (kLine + to_skew + bytes);
        const bool is_right = std::memcmp(begin, from.data() + kLine + from_skew, bytes) == 0 &&
                              std::memcmp(to.data(), untouched.data(), kLine + to_skew) == 0 &&
                              std::memcmp(begin + bytes, untouched.data(), after) == 0;
        ASSERT_TRUE(is_right) << bytes << " bytes from alignment " << from_skew << " to alignment " << to_skew;
        std::memset(begin, 0xEE, bytes);
      }
    }
  }
}

TEST_P(Kernel, StoresEveryAlignmentAndShortLength) { check_every_alignment(GetParam().store); }

TEST_P(Kernel, LoadsEveryAlignmentAndShortLength) { check_every_alignment(GetParam().load); }

TEST_P(Kernel, CopiesLongRanges) {
  constexpr std::size_t kMost = 300'000;
  const std::vector<std::byte> from = pattern(kMost + kLine);
  std::vector<std::byte> to(kMost + 3 * kLine);
  for (const std::size_t bytes : Sizes{511, 512, 513, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 262144, 300000}) {
    for (const auto& [to_skew, from_skew] :
         {std::pair<std::size_t, std::size_t>{0, 0}, {1, 0}, {0, 1}, {63, 17}, {32, 48}, {8, 63}}) {
      for (const bool is_store : {true, false}) {
        std::fill(to.begin(), to.end(), std::byte{0xEE});
        std::byte* const begin = to.data() + kLine + to_skew;
        (is_store ? GetParam().store : GetParam().load)(begin, from.data() + from_skew, bytes);
        ASSERT_EQ(std::memcmp(begin, from.data() + from_skew, bytes), 0) << bytes;
        const auto is_guard = [](std::byte b) { return b == std::byte{0xEE}; };
        ASSERT_TRUE(std::all_of(to.data(), begin, is_guard)) << bytes;
        ASSERT_TRUE(std::all_of(begin + bytes, to.data() + to.size(), is_guard)) << bytes;
      }
    }
  }
}

// A page that cannot be touched lies right behind (or before) both ranges: an access outside the line of an asked byte ends the
// test.
TEST_P(Kernel, TouchesNothingPastAPage) {
  const GuardedPages mapped(8192);
  const GuardedPages host(8192);
  for (const bool is_at_end : {true, false}) {
    for (std::size_t bytes = 1; bytes <= kMaxLength; ++bytes) {
      for (std::size_t shift = 0; shift < kLine; ++shift) {
        // The host range ends (begins) exactly at the page; the mapped one anywhere in the last (first) line.
        std::byte* const host_at = is_at_end ? host.end() - bytes : host.begin();
        std::byte* const mapped_at = is_at_end ? mapped.end() - bytes - shift : mapped.begin() + shift;
        std::memset(host_at, static_cast<int>(bytes & 0x7f), bytes);
        GetParam().store(mapped_at, host_at, bytes);
        std::memset(host_at, 0, bytes);
        GetParam().load(host_at, mapped_at, bytes);
        const auto is_sent = [&](std::byte b) { return b == static_cast<std::byte>(bytes & 0x7f); };
        ASSERT_TRUE(std::all_of(host_at, host_at + bytes, is_sent)) << bytes << " bytes, shift " << shift;
      }
    }
  }
}

TEST_P(Kernel, CopiesNothingForZeroBytes) {
  std::byte to{0x11};
  const std::byte from{0x22};
  GetParam().store(&to, &from, 0);
  GetParam().load(&to, &from, 0);
  GetParam().store(nullptr, nullptr, 0);
  GetParam().load(nullptr, nullptr, 0);
  EXPECT_EQ(to, std::byte{0x11});
}

// A word that one thread copies again and again with alternating values, seen by another: a copy made of two accesses would show
// a mixture.
template <class Word>
void check_single_store(StoreKernel store) {
  alignas(64) std::array<Word, 64 / sizeof(Word)> line{};
  Word& word = line[1];
  constexpr Word kValues[2] = {0, static_cast<Word>(~Word{0})};
  std::atomic<bool> is_done{false};
  std::atomic<int> mixed_count{0};
  std::thread reader([&] {
    while (!is_done.load()) {
      const Word seen = __atomic_load_n(&word, __ATOMIC_RELAXED);
      if (seen != kValues[0] && seen != kValues[1]) ++mixed_count;
    }
  });
  for (int i = 0; i < 100'000; ++i) store(&word, &kValues[i % 2], sizeof word);
  is_done = true;
  reader.join();
  EXPECT_EQ(mixed_count.load(), 0) << sizeof word;
}

template <class Word>
void check_single_load(LoadKernel load) {
  alignas(64) std::array<Word, 64 / sizeof(Word)> line{};
  Word& word = line[1];
  constexpr Word kValues[2] = {0, static_cast<Word>(~Word{0})};
  std::atomic<bool> is_done{false};
  std::thread writer([&] {
    for (int i = 0; !is_done.load(); ++i) __atomic_store_n(&word, kValues[i % 2], __ATOMIC_RELAXED);
  });
  int mixed_count = 0;
  for (int i = 0; i < 100'000; ++i) {
    Word seen = 1;
    load(&seen, &word, sizeof word);
    if (seen != kValues[0] && seen != kValues[1]) ++mixed_count;
  }
  is_done = true;
  writer.join();
  EXPECT_EQ(mixed_count, 0) << sizeof word;
}

TEST_P(Kernel, StoresAnAlignedWordAtOnce) {
  check_single_store<std::uint16_t>(GetParam().store);
  check_single_store<std::uint32_t>(GetParam().store);
  check_single_store<std::uint64_t>(GetParam().store);
}

TEST_P(Kernel, LoadsAnAlignedWordAtOnce) {
  check_single_load<std::uint16_t>(GetParam().load);
  check_single_load<std::uint32_t>(GetParam().load);
  check_single_load<std::uint64_t>(GetParam().load);
}

// The check above must be able to see a torn word: a store in two halves, with a moment between them, shows mixtures.
TEST(KernelCheck, SeesAWordStoredInHalves) {
  alignas(64) std::array<std::uint32_t, 16> line{};
  std::atomic<bool> is_done{false};
  std::atomic<std::uint64_t> mixed_count{0};
  std::thread reader([&] {
    while (!is_done.load()) {
      const std::uint64_t seen = __atomic_load_n(reinterpret_cast<std::uint64_t*>(line.data()), __ATOMIC_RELAXED);
      if (seen != 0 && seen != ~std::uint64_t{0}) ++mixed_count;
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (mixed_count.load() == 0 && std::chrono::steady_clock::now() < end) {
    for (const std::uint32_t value : {~0U, 0U}) {
      __atomic_store_n(&line[0], value, __ATOMIC_RELAXED);
      for (volatile int moment = 0; moment < 100;) moment = moment + 1;
      __atomic_store_n(&line[1], value, __ATOMIC_RELAXED);
    }
  }
  is_done = true;
  reader.join();
  EXPECT_GT(mixed_count.load(), 0U);
}

TEST(KernelTable, ListsEachKernelOnceAndEndsWithOneForEveryCpu) {
  const auto table = copy_kernels();
  ASSERT_FALSE(table.empty());
  EXPECT_EQ(table.back().name, "generic");
  EXPECT_TRUE(table.back().is_supported);
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(kernels::is_kernel_name(table[i].name)) << table[i].name;
    EXPECT_NE(table[i].store, nullptr) << table[i].name;
    EXPECT_NE(table[i].load, nullptr) << table[i].name;
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(table[i].name, table[j].name);
  }
  EXPECT_FALSE(kernels::is_kernel_name("sse3"));
  EXPECT_FALSE(kernels::is_kernel_name(""));
  EXPECT_EQ(kernels::find_supported_kernel("no such kernel"), nullptr);
}

TEST(KernelTable, UsesOnlySupportedKernelsByDefault) {
  const CopyKernel* const direct = kernels::find_supported_kernel("movdir64b");
  const CopyKernel* const first = &kernels::default_store_kernel(0);
  for (std::size_t i = 0; i < detail::ActiveKernels::kSizeClasses; ++i) {
    const CopyKernel& kernel = kernels::default_store_kernel(i);
    EXPECT_TRUE(kernel.is_supported) << i;
    const bool is_middle = i >= 11 && i <= 13;  // 1 KiB to just below 8 KiB
    EXPECT_EQ(&kernel, is_middle && direct != nullptr ? direct : first) << i;
  }
  EXPECT_TRUE(kernels::default_load_kernel().is_supported);
}

TEST(ActiveKernels, SizeClassIsTheBitWidth) {
  EXPECT_EQ(detail::size_class(0), 0U);
  EXPECT_EQ(detail::size_class(1), 1U);
  EXPECT_EQ(detail::size_class(7), 3U);
  EXPECT_EQ(detail::size_class(8), 4U);
  EXPECT_EQ(detail::size_class(4096), 13U);
  EXPECT_EQ(detail::size_class((std::size_t{1} << 30) - 1), 30U);
  EXPECT_EQ(detail::size_class(std::size_t{1} << 30), 31U);
  EXPECT_EQ(detail::size_class(~std::size_t{0}), 31U);
}

// The first copy of each size goes through a resolver; it copies, and puts the default in its place.
TEST(ActiveKernels, ResolveOnFirstUseAndFollowAChoice) {
  auto& active = detail::active_kernels(MappingType::write_combined);
  const std::uint64_t sent = 0x0123456789abcdef;
  std::uint64_t stored = 0;
  std::uint64_t loaded = 0;
  active.store[detail::size_class(8)].load()(&stored, &sent, 8);
  active.load[detail::size_class(8)].load()(&loaded, &stored, 8);
  EXPECT_EQ(stored, sent);
  EXPECT_EQ(loaded, sent);
  for (std::size_t i = 0; i < detail::ActiveKernels::kSizeClasses; ++i) {
    EXPECT_EQ(active.store[i].load(), kernels::default_store_kernel(i).store) << i;
    EXPECT_EQ(active.load[i].load(), kernels::default_load_kernel().load) << i;
  }

  kernels::Choice choice = kernels::default_choice();
  choice.store[4] = kernels::generic_store;
  choice.load[7] = kernels::generic_load;
  kernels::use_choice(choice);
  EXPECT_EQ(active.store[4].load(), &kernels::generic_store);
  EXPECT_EQ(active.load[7].load(), &kernels::generic_load);
  EXPECT_EQ(active.store[5].load(), kernels::default_store_kernel(5).store);
  kernels::use_choice(kernels::default_choice());
}

// Uncached memory takes only naturally aligned accesses of at most 8 bytes, cached memory needs no streaming.
TEST(ActiveKernels, OtherMappingTypesHaveKernelsOfTheirOwn) {
  for (std::size_t i = 0; i < detail::ActiveKernels::kSizeClasses; ++i) {
    const auto& uncached = detail::active_kernels(MappingType::uncached);
    EXPECT_EQ(uncached.store[i].load(), &kernels::generic_store);
    EXPECT_EQ(uncached.load[i].load(), &kernels::generic_load);
    const auto& cached = detail::active_kernels(MappingType::cached);
    EXPECT_EQ(cached.store[i].load(), &kernels::cached_store);
    EXPECT_EQ(cached.load[i].load(), &kernels::cached_load);
  }
}

// Says which kernels of this build were not tested here.
TEST(KernelTable, EveryKernelOfThisBuildRunsOnThisCpu) {
  std::string missing;
  for (const CopyKernel& kernel : copy_kernels()) {
    if (!kernel.is_supported) missing += " " + std::string(kernel.name);
  }
  if (!missing.empty()) GTEST_SKIP() << "this CPU has no" << missing;
}

}  // namespace
}  // namespace gigabar
