// SPDX-License-Identifier: Apache-2.0
// How many accesses a kernel makes, counted by the CPU: the page cannot be touched, so each access faults; the handler opens the
// page for exactly one instruction (the trap flag) and closes it again. x86-64 only.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"

namespace gigabar {
namespace {

using Sizes = std::initializer_list<std::size_t>;

constexpr std::size_t kPageBytes = 4096;
constexpr greg_t kTrapFlag = 0x100;

// One watched page; what the handlers know.
std::byte* watched_page = nullptr;
volatile int access_count = 0;

void on_fault(int, siginfo_t* fault, void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(fault->si_addr) - reinterpret_cast<std::uintptr_t>(watched_page);
  if (at >= kPageBytes) {  // a fault of the test's own: let it end the test
    ::signal(SIGSEGV, SIG_DFL);
    return;
  }
  access_count = access_count + 1;
  ::mprotect(watched_page, kPageBytes, PROT_READ | PROT_WRITE);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

void on_step(int, siginfo_t*, void* context) {
  ::mprotect(watched_page, kPageBytes, PROT_NONE);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
}

class AccessCount : public testing::Test {
 protected:
  void SetUp() override {
    void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    watched_page = static_cast<std::byte*>(page);
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_fault;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &before_fault_), 0);
    action.sa_sigaction = on_step;
    ASSERT_EQ(::sigaction(SIGTRAP, &action, &before_step_), 0);
  }
  void TearDown() override {
    ::sigaction(SIGSEGV, &before_fault_, nullptr);
    ::sigaction(SIGTRAP, &before_step_, nullptr);
    ::munmap(watched_page, kPageBytes);
  }

  template <class Action>
  static int accesses_of(Action action) {
    access_count = 0;
    ::mprotect(watched_page, kPageBytes, PROT_NONE);
    action();
    ::mprotect(watched_page, kPageBytes, PROT_READ | PROT_WRITE);
    return access_count;
  }

 private:
  struct sigaction before_fault_{};
  struct sigaction before_step_{};
};

// The fewest naturally aligned pieces of at most `widest` bytes that make up [begin, begin + bytes).
int fewest_pieces(std::size_t begin, std::size_t bytes, std::size_t widest) {
  int count = 0;
  while (bytes != 0) {
    const std::size_t aligned = begin == 0 ? widest : std::size_t{1} << std::countr_zero(begin);
    const std::size_t piece = std::min({aligned, std::bit_floor(bytes), widest});
    begin += piece;
    bytes -= piece;
    ++count;
  }
  return count;
}

struct Widths {
  std::string name;
  StoreKernel store;
  LoadKernel load;
  std::size_t store_bytes;
  std::size_t load_bytes;
};

std::vector<Widths> stream_kernels() {
  std::vector<Widths> all;
  for (const CopyKernel& kernel : copy_kernels()) {
    if (!kernel.is_supported) continue;
    const bool is_wide = kernel.name == "avx512" || kernel.name == "movdir64b";
    const std::size_t load_bytes = kernel.name == "avx512" ? 64 : kernel.name == "avx2" ? 32 : kernel.name == "generic" ? 8 : 16;
    const std::size_t store_bytes = is_wide ? 64 : load_bytes;
    all.push_back({std::string(kernel.name), kernel.store, kernel.load, store_bytes, load_bytes});
  }
  return all;
}

TEST_F(AccessCount, CountsEveryAccessOfTheTestItself) {
  const std::uint64_t word = 7;
  EXPECT_EQ(accesses_of([] {}), 0);
  EXPECT_EQ(accesses_of([&] {
              for (std::size_t i = 0; i < 3; ++i) {
                __atomic_store_n(reinterpret_cast<std::uint64_t*>(watched_page) + i, word, __ATOMIC_RELAXED);
              }
            }),
            3);
}

// A second load of a line can be a second round trip over PCIe.
TEST_F(AccessCount, TheDefaultLoadsALineInTheFewestAccesses) {
  alignas(64) std::array<unsigned char, 64> host{};
  const auto accesses_by = [&](LoadKernel load) { return accesses_of([&] { load(host.data(), watched_page, 64); }); };
  const auto by_default = accesses_by(kernels::default_load_kernel().load);
  for (const Widths& kernel : stream_kernels()) EXPECT_LE(by_default, accesses_by(kernel.load)) << kernel.name;
}

TEST_F(AccessCount, AnAlignedWordIsOneAccess) {
  std::vector<Widths> all = stream_kernels();
  all.push_back({"cached", kernels::cached_store, kernels::cached_load, 0, 0});
  for (const Widths& kernel : all) {
    for (const std::size_t bytes : Sizes{1, 2, 4, 8}) {
      for (std::size_t offset = 0; offset < 128; offset += bytes) {
        std::uint64_t value = 0x1122334455667788;
        EXPECT_EQ(accesses_of([&] { kernel.store(watched_page + offset, &value, bytes); }), 1)
            << kernel.name << " stores " << bytes << " at " << offset;
        EXPECT_EQ(accesses_of([&] { kernel.load(&value, watched_page + offset, bytes); }), 1)
            << kernel.name << " loads " << bytes << " at " << offset;
      }
    }
  }
}

TEST_F(AccessCount, StoresTheFewestAlignedPieces) {
  const std::vector<std::byte> host(400);
  for (const Widths& kernel : stream_kernels()) {
    // 16 and 32-byte pieces are stored with what the kernel has: MOVDIR64B is beside SSE2.
    const std::size_t piece_bytes = kernel.name == "movdir64b" ? 16 : kernel.store_bytes;
    for (std::size_t offset = 0; offset < 64; offset += 3) {
      for (std::size_t bytes = 1; bytes < 200; bytes += 7) {
        const std::size_t line_begin = std::min(bytes, (64 - offset) % 64);
        const std::size_t lines = (bytes - line_begin) / 64;
        const int expected = fewest_pieces(offset, line_begin, piece_bytes) + static_cast<int>(lines * 64 / kernel.store_bytes) +
                             fewest_pieces(0, bytes - line_begin - lines * 64, piece_bytes);
        ASSERT_EQ(accesses_of([&] { kernel.store(watched_page + offset, host.data(), bytes); }), expected)
            << kernel.name << " " << bytes << " at " << offset;
      }
    }
  }
}

// A narrow load of write-combined memory costs a round trip like a wide one: whole vectors, each once.
TEST_F(AccessCount, LoadsEachAlignedVectorOnce) {
  std::vector<std::byte> host(400);
  for (const Widths& kernel : stream_kernels()) {
    for (std::size_t offset = 0; offset < 64; offset += 3) {
      for (std::size_t bytes = 1; bytes < 200; bytes += 7) {
        const std::size_t first = offset / kernel.load_bytes;
        const std::size_t last = (offset + bytes - 1) / kernel.load_bytes;
        ASSERT_EQ(accesses_of([&] { kernel.load(host.data(), watched_page + offset, bytes); }), static_cast<int>(last - first + 1))
            << kernel.name << " " << bytes << " at " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace gigabar
