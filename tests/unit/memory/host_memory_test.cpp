// SPDX-License-Identifier: Apache-2.0
// Owned host memory: HostMemory of gigabar/memory.hpp, without a GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "gigabar/memory.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"
#include "platform/numa.hpp"
#include "platform/roots.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

bool is_zero(const HostMemory& memory) {
  const auto* bytes = static_cast<const unsigned char*>(memory.address());
  return std::all_of(bytes, bytes + memory.bytes(), [](unsigned char byte) { return byte == 0; });
}

class HostMemoryTest : public testing::Test {
 protected:
  test::ScopedEnvironment stand_in_{"GIGABAR_STAND_IN", "1"};
  const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(HostMemoryTest, IsPresentZeroedAlignedAndPinned) {
  const auto memory = HostMemory::allocate(3 * page_ + 1);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_EQ(memory->bytes(), 3 * page_ + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->address()) % page_, 0u);
  EXPECT_TRUE(memory->is_pinned());
  std::vector<unsigned char> present(4);
  ASSERT_EQ(::mincore(memory->address(), 4 * page_, present.data()), 0);
  EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](unsigned char page) { return (page & 1) != 0; }));
  const auto* bytes = static_cast<const unsigned char*>(memory->address());
  EXPECT_TRUE(std::all_of(bytes, bytes + memory->bytes(), [](unsigned char byte) { return byte == 0; }));
}

// The child has none of the pages, and may have other memory where they are in its parent.
TEST_F(HostMemoryTest, AForkedChildKeepsWhatItHasThere) {
  const std::size_t bytes = 16 * page_;
  std::optional<HostMemory> shared;
  auto made = HostMemory::allocate(bytes, {.pages = HostPages::pageable, .is_shared = true});
  ASSERT_TRUE(made) << made.error().message();
  shared.emplace(std::move(*made));
  const auto end = test::run_in_child([&] {
    void* const own =
        ::mmap(shared->address(), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own != shared->address()) return 2;
    shared.reset();
    std::memset(own, 1, bytes);
    return 0;
  });
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
}

TEST_F(HostMemoryTest, IsDescribedAsPinnedUntilItIsGone) {
  void* address = nullptr;
  {
    const auto memory = HostMemory::allocate(10000);
    address = memory->address();
    const auto info = describe(static_cast<std::byte*>(address) + 9999);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->kind, MemoryKind::host_pinned);
    EXPECT_EQ(info->base, reinterpret_cast<std::uintptr_t>(address));
    EXPECT_EQ(info->length_bytes, 10000u);
    EXPECT_EQ(info->offset_bytes, 9999u);
    EXPECT_EQ(info->device, -1);
    EXPECT_NE(info->buffer_id, 0u);
    EXPECT_NE(describe(static_cast<std::byte*>(address) + 10000)->kind, MemoryKind::host_pinned);
  }
  EXPECT_EQ(describe(address)->kind, MemoryKind::host_pageable);
}

TEST_F(HostMemoryTest, UnpinnedIsPageable) {
  const auto memory = HostMemory::allocate(4096, {.numa_node = -1, .pages = HostPages::pageable});
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->is_pinned());
  EXPECT_EQ(describe(memory->address())->kind, MemoryKind::host_pageable);
}

TEST_F(HostMemoryTest, SharedIsOfAMemoryFile) {
  for (const HostPages pages : {HostPages::pageable, HostPages::pinned}) {
    SCOPED_TRACE(name_of(pages));
    std::uintptr_t begin = 0;
    {
      const auto memory = HostMemory::allocate(2 * page_ + 1, {.numa_node = -1, .pages = pages, .is_shared = true});
      ASSERT_TRUE(memory) << memory.error().message();
      EXPECT_TRUE(is_zero(*memory));
      EXPECT_EQ(memory->is_pinned(), pages == HostPages::pinned);
      EXPECT_EQ(describe(memory->address())->kind, memory->is_pinned() ? MemoryKind::host_pinned : MemoryKind::host_pageable);
      begin = reinterpret_cast<std::uintptr_t>(memory->address());
      const SharedPages found = find_shared_host_memory(begin + page_, page_ + 1);
      ASSERT_NE(found.file, nullptr);
      EXPECT_EQ(found.offset_bytes, page_);
      EXPECT_EQ(find_shared_host_memory(begin + page_, page_ + 2).file, nullptr) << "beyond its end";
      EXPECT_EQ(find_shared_host_memory(begin - 1, 2).file, nullptr) << "before its beginning";
      EXPECT_EQ(::ftruncate(found.file->get(), 0), -1) << "who maps it relies on its size";
      void* const again = ::mmap(nullptr, page_, PROT_READ | PROT_WRITE, MAP_SHARED, found.file->get(), static_cast<off_t>(page_));
      ASSERT_NE(again, MAP_FAILED);
      std::memcpy(again, "peer", 5);
      EXPECT_STREQ(static_cast<const char*>(memory->address()) + page_, "peer");
      ::munmap(again, page_);
    }
    EXPECT_EQ(find_shared_host_memory(begin, 1).file, nullptr) << "it is gone";
  }
  const auto own = HostMemory::allocate(page_);
  ASSERT_TRUE(own);
  EXPECT_EQ(find_shared_host_memory(reinterpret_cast<std::uintptr_t>(own->address()), 1).file, nullptr);
}

TEST_F(HostMemoryTest, SharedIsRefused) {
  for (const HostPages pages : {HostPages::huge, HostPages::write_combined}) {
    const auto refused = HostMemory::allocate(4096, {.numa_node = -1, .pages = pages, .is_shared = true});
    EXPECT_EQ(refused.status(), Status::invalid_argument) << name_of(pages);
  }
#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
  const auto refused = test::without_descriptors(
      [] { return HostMemory::allocate(4096, {.numa_node = -1, .pages = HostPages::pageable, .is_shared = true}).status(); });
  EXPECT_EQ(refused, Status::out_of_descriptors);
#endif
}

TEST_F(HostMemoryTest, BadRequestsAreRefused) {
  EXPECT_EQ(HostMemory::allocate(0).status(), Status::invalid_argument);
  EXPECT_EQ(HostMemory::allocate(SIZE_MAX).status(), Status::invalid_argument);
  const auto no_such_node = HostMemory::allocate(4096, {.numa_node = 999, .pages = HostPages::pageable});
  EXPECT_EQ(no_such_node.status(), Status::invalid_argument);
  EXPECT_NE(no_such_node.error().message().find("999"), std::string::npos) << no_such_node.error().message();
  EXPECT_EQ(HostMemory::allocate(4096, {.numa_node = -7, .pages = HostPages::pageable}).status(), Status::invalid_argument);
  EXPECT_EQ(HostMemory::allocate(std::size_t{1} << 50).status(), Status::out_of_memory);
}

TEST_F(HostMemoryTest, LiesOnTheAskedNode) {
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty()) {
    EXPECT_EQ(HostMemory::allocate(4096, {.numa_node = 0, .pages = HostPages::pageable}).status(), Status::invalid_argument)
        << "no NUMA, no node 0";
    return;
  }
  for (const int node : nodes) {
    const auto memory = HostMemory::allocate(16 * page_, {.numa_node = node, .pages = HostPages::pageable});
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(memory->numa_node(), node);
    EXPECT_EQ(describe(memory->address())->numa_node, node);
  }
}

// Fresh pages as staging memory has them: of a file, shared.
class FreshPages {
 public:
  explicit FreshPages(std::size_t bytes)
      : bytes_(bytes), address_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~FreshPages() { ::munmap(address_, bytes_); }
  FreshPages(const FreshPages&) = delete;
  FreshPages& operator=(const FreshPages&) = delete;

  // What the log says of bringing them, at level info.
  std::string bring(int numa_node) {
    std::string said;
    const LogHandler before = set_log_handler([&](LogLevel level, std::string_view line) {
      if (level == LogLevel::info) said += std::string(line) + '\n';
    });
    bring_pages(static_cast<std::byte*>(address_), bytes_, numa_node);
    set_log_handler(before);
    return said;
  }
  bool are_present() const {
    std::vector<unsigned char> present(bytes_ / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
    return ::mincore(address_, bytes_, present.data()) == 0 &&
           std::all_of(present.begin(), present.end(), [](unsigned char page) { return (page & 1) != 0; });
  }
  PagePlacement placement() const { return placement_of_pages(address_, bytes_); }

 private:
  std::size_t bytes_;
  void* address_;
};

TEST_F(HostMemoryTest, PagesAreBroughtFromTheNodeAsFarAsItHasRoom) {
  FreshPages anywhere(64 * page_);
  EXPECT_FALSE(anywhere.are_present());
  EXPECT_EQ(anywhere.bring(-1), "");
  EXPECT_TRUE(anywhere.are_present());
  for (const int node : numa_nodes()) {
    FreshPages pages(64 * page_);
    EXPECT_EQ(pages.bring(node), "") << "nothing to tell";
    EXPECT_TRUE(pages.are_present());
    EXPECT_EQ(pages.placement().pages_by_node[node], 64U);
  }
}

TEST_F(HostMemoryTest, MovesAsOwner) {
  auto first = HostMemory::allocate(4096);
  auto second = HostMemory::allocate(8192);
  void* const kept = second->address();
  *first = std::move(*second);
  EXPECT_EQ(first->address(), kept);
  EXPECT_EQ(first->bytes(), 8192u);
  EXPECT_EQ(second->address(), nullptr);
  EXPECT_EQ(second->bytes(), 0u);
  EXPECT_FALSE(second->is_pinned());
}

TEST_F(HostMemoryTest, KindsHaveNames) {
  EXPECT_EQ(name_of(HostPages::pinned), "pinned");
  EXPECT_EQ(name_of(HostPages::pageable), "pageable");
  EXPECT_EQ(name_of(HostPages::write_combined), "wc");
  EXPECT_EQ(name_of(HostPages::huge), "huge");
}

TEST_F(HostMemoryTest, WriteCombinedIsPinned) {
  void* address = nullptr;
  {
    const auto memory = HostMemory::allocate(3 * page_ + 1, {.numa_node = -1, .pages = HostPages::write_combined});
    ASSERT_TRUE(memory) << memory.error().message();
    address = memory->address();
    EXPECT_EQ(memory->pages(), HostPages::write_combined);
    EXPECT_EQ(memory->bytes(), 3 * page_ + 1);
    EXPECT_TRUE(memory->is_pinned());
    EXPECT_TRUE(is_zero(*memory));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % page_, 0u);
    EXPECT_EQ(describe(address)->kind, MemoryKind::host_pinned);
    std::memset(address, 0x5a, memory->bytes());
  }
  EXPECT_EQ(describe(address)->kind, MemoryKind::host_pageable);
  unsigned char present = 0;
  EXPECT_NE(::mincore(address, page_, &present), 0) << "it is unmapped";
}

TEST_F(HostMemoryTest, WriteCombinedLiesOnTheAskedNode) {
  for (const int node : numa_nodes()) {
    const auto memory = HostMemory::allocate(16 * page_, {.numa_node = node, .pages = HostPages::write_combined});
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(memory->numa_node(), node);
  }
  EXPECT_EQ(HostMemory::allocate(page_, {.numa_node = 999, .pages = HostPages::write_combined}).status(), Status::invalid_argument);
}

TEST_F(HostMemoryTest, HugeIsHugeOrRefused) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const auto first = HostMemory::allocate(2 * kHuge + 1, {.numa_node = -1, .pages = HostPages::huge});
  if (!first) {
    EXPECT_EQ(first.status(), Status::out_of_memory);
    EXPECT_NE(first.error().message().find("vm.nr_hugepages="), std::string::npos) << first.error().message();
    return;  // this machine has none to give, and said so
  }
  EXPECT_EQ(first->pages(), HostPages::huge);
  EXPECT_EQ(first->bytes(), 2 * kHuge + 1);
  EXPECT_TRUE(first->is_pinned());
  EXPECT_TRUE(is_zero(*first));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first->address()) % kHuge, 0u);
  EXPECT_EQ(describe(first->address())->kind, MemoryKind::host_pinned);
  // Whoever had to be looked at alone is still alone beside another one.
  const auto second = HostMemory::allocate(kHuge, {.numa_node = -1, .pages = HostPages::huge});
  ASSERT_TRUE(second) << second.error().message();
  const auto smaps = read_small_file("/proc/self/smaps", 64 << 20);
  ASSERT_TRUE(smaps);
  const auto huge = huge_bytes_in(*smaps, reinterpret_cast<std::uintptr_t>(second->address()), kHuge);
  ASSERT_TRUE(huge);
  if (!numa_nodes().empty()) {
    const auto placed = HostMemory::allocate(kHuge, {.numa_node = numa_nodes().front(), .pages = HostPages::huge});
    ASSERT_TRUE(placed) << placed.error().message();
    EXPECT_EQ(placed->numa_node(), numa_nodes().front());
  }
}

// What a peer would find in the file is what was written to the pages, whether the kernel has moved them to huge ones or not.
void expect_to_share_a_file(std::size_t bytes, NodePolicy policy) {
  const Descriptor file(memfd_create("gigabar-test", MFD_CLOEXEC));
  ASSERT_TRUE(file.is_open());
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  std::byte* address = nullptr;
  {
    const auto pages = PageMapping::make(bytes, -1, policy, file.get());
    ASSERT_TRUE(pages) << pages.error().message();
    address = pages->address();
    EXPECT_EQ(pages->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % kHugePageBytes, 0u) << "or no huge page fits";
    EXPECT_TRUE(std::all_of(address, address + bytes, [](std::byte byte) { return byte == std::byte{0}; }));
    for (std::size_t at = 0; at < bytes; at += 4096) address[at] = static_cast<std::byte>(at / 4096 % 251 + 1);
  }
  EXPECT_NE(msync(address, 4096, MS_ASYNC), 0) << "it is unmapped";
  for (std::size_t at = 0; at < bytes; at += 4096) {
    std::byte found{};
    ASSERT_EQ(pread(file.get(), &found, 1, static_cast<off_t>(at)), 1);
    ASSERT_EQ(found, static_cast<std::byte>(at / 4096 % 251 + 1)) << "page " << at / 4096;
  }
}

TEST(PageMapping, SharesAMemoryFile) {
  for (const std::size_t bytes : {std::size_t{12288}, 2 * kHugePageBytes, 2 * kHugePageBytes + 4096}) {
    expect_to_share_a_file(bytes, NodePolicy::bind);
    expect_to_share_a_file(bytes, NodePolicy::prefer);
  }
  constexpr int kNoFile = 1 << 20;
  EXPECT_EQ(PageMapping::make(4096, -1, NodePolicy::bind, kNoFile).status(), Status::out_of_memory);
}

// How many bytes of the mapping that begins there are on huge pages of a file.
std::uint64_t huge_shared_bytes(const void* begin) {
  const std::string smaps = read_small_file("/proc/self/smaps", 64 << 20).value_or("");
  char first[32];
  std::snprintf(first, sizeof first, "%lx-", static_cast<unsigned long>(reinterpret_cast<std::uintptr_t>(begin)));
  const std::size_t mapping = smaps.find(first);
  constexpr std::string_view kKey = "ShmemPmdMapped:";
  const std::size_t line = mapping == std::string::npos ? mapping : smaps.find(kKey, mapping);
  return line == std::string::npos ? 0 : std::strtoull(smaps.c_str() + line + kKey.size(), nullptr, 10) << 10;
}

// Where this kernel moves pages of a memory file to huge ones, which the test itself asks it for first.
TEST_F(HostMemoryTest, SharedPagesAreHugeWhereTheKernelCan) {
  constexpr std::size_t kPages = 3 * kHugePageBytes;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which glibc has since 2.37
  const auto control = HostMemory::allocate(kPages, {.numa_node = -1, .pages = HostPages::pageable, .is_shared = true});
  ASSERT_TRUE(control) << control.error().message();
  if (::madvise(control->address(), kPages, kCollapse) != 0) return;
  for (const HostPages kind : {HostPages::pageable, HostPages::pinned}) {
    const auto memory = HostMemory::allocate(kPages, {.numa_node = -1, .pages = kind, .is_shared = true});
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(huge_shared_bytes(memory->address()), kPages) << name_of(kind);
  }
}

TEST(HugeBytes, AreOfTheRangeAlone) {
  const std::string smaps =
      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize:               2048 kB\nAnonHugePages:      2048 kB\n"
      "VmFlags: rd wr mr mw me ac sd hg\n"
      "7f0000400000-7f0000a00000 rw-p 00000000 00:00 0 \nSize:               6144 kB\nAnonHugePages:      4096 kB\n"
      "ShmemPmdMapped:        7 kB\n"
      "7f0001000000-7f0002000000 r--p 00000000 fe:00 1234     /a/file\nAnonHugePages:        32 kB\n";
  EXPECT_EQ(huge_bytes_in(smaps, 0x7f0000400000, 6 << 20), std::uint64_t{4} << 20);
  EXPECT_EQ(huge_bytes_in(smaps, 0x7f0000000000, 10 << 20), std::uint64_t{6} << 20) << "two mappings";
  EXPECT_FALSE(huge_bytes_in(smaps, 0x7f0000400000, 4 << 20)) << "the mapping reaches beyond it";
  EXPECT_FALSE(huge_bytes_in(smaps, 0x7e0000000000, 4 << 20));
  EXPECT_FALSE(huge_bytes_in("", 0x7e0000000000, 4 << 20));
}

// Only where no huge pages are reserved is there nothing but transparent ones to refuse.
ISOLATED_TEST(HugePages, WithoutHugePagesAreRefusedWithTheirRemedy) {
  const test::ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  if (read_small_file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").value_or("0\n") != "0\n") return;
  ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  const auto refused = HostMemory::allocate(std::size_t{8} << 20, {.numa_node = -1, .pages = HostPages::huge});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_NE(refused.error().message().find("reserve 4 more huge pages (sysctl vm.nr_hugepages="), std::string::npos)
      << refused.error().message();
  EXPECT_TRUE(HostMemory::allocate(std::size_t{8} << 20)) << "ordinary ones are still there";
}

constexpr HostPages kAllKinds[] = {HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge};

// What does not fit is refused for what the machine says, before anything is touched.
class HostMemoryRoom : public HostMemoryTest {
 protected:
  HostMemoryRoom() {
    set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"});
    tree_.write("proc/meminfo", "MemAvailable:   67108864 kB\n");
  }
  ~HostMemoryRoom() override { set_platform_roots({}); }

  static void expect_refused(std::size_t bytes, int node, HostPages pages, const std::string& who, const std::string& left) {
    const auto refused = HostMemory::allocate(bytes, {.numa_node = node, .pages = pages});
    ASSERT_FALSE(refused) << name_of(pages);
    EXPECT_EQ(refused.status(), Status::out_of_memory);
    EXPECT_NE(refused.error().record().cause.find(who), std::string::npos) << refused.error().message();
    EXPECT_NE(refused.error().record().cause.find(left), std::string::npos) << refused.error().message();
    EXPECT_FALSE(refused.error().record().remedy.empty());
  }

  test::TemporaryFolder tree_;
};

TEST_F(HostMemoryRoom, MoreThanTheMachineHas) {
  for (const HostPages pages : kAllKinds) {
    expect_refused(std::size_t{1} << 40, -1, pages, "1024.0 GiB", "the machine has 64.0 GiB left");
    expect_refused(std::size_t{64} << 30, -1, pages, "64.0 GiB and 1/64", "the machine has 64.0 GiB left");
  }
}

TEST_F(HostMemoryRoom, MoreThanTheControlGroupHas) {
  tree_.write("proc/self/cgroup", "0::/job\n");
  tree_.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree_.write("sys/fs/cgroup/job/memory.max", std::to_string(std::size_t{3} << 30) + "\n");
  tree_.write("sys/fs/cgroup/job/memory.current", std::to_string(std::size_t{1} << 30) + "\n");
  for (const HostPages pages : kAllKinds) expect_refused(std::size_t{2} << 30, -1, pages, "/job", "has 2.0 GiB left");
  EXPECT_TRUE(HostMemory::allocate(1 << 20));
}

TEST_F(HostMemoryRoom, MoreThanTheNodeHas) {
  tree_.write("sys/devices/system/node/has_memory", "0-1\n");
  tree_.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 67108864 kB\nNode 0 MemFree:  1048576 kB\n");
  for (const HostPages pages : kAllKinds) {
    expect_refused(std::size_t{2} << 30, 0, pages, "NUMA node 0", "has 1.0 GiB left");
  }
  tree_.write("sys/devices/system/node/has_memory", "0\n");
  expect_refused(std::size_t{1} << 40, 0, HostPages::pinned, "the machine", "has 64.0 GiB left");
}

// A node that only the planted machine has: the kernel refuses it.
TEST_F(HostMemoryRoom, PagesThatTheNodeDoesNotHaveComeFromAnother) {
  tree_.write("sys/devices/system/node/has_memory", "0,900\n");
  for (const int node : {900, 901}) {
    FreshPages pages(16 * page_);
    const std::string said = pages.bring(node);
    EXPECT_NE(said.find(text("from any NUMA node, not from node ", node)), std::string::npos) << said;
    EXPECT_TRUE(pages.are_present()) << "all the same";
  }
}

// Sanitizers replace mlock by nothing, so there is no limit to meet.
#if !defined(GIGABAR_SANITIZE_ADDRESS) && !defined(GIGABAR_SANITIZE_THREAD)
// Root may lock more than the limit: the test gives that right up in its own process.
ISOLATED_TEST(HostMemoryLimits, LockedMemoryLimitIsNamed) {
  const test::ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const rlimit little{16384, 16384};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto fits = HostMemory::allocate(4096);
  EXPECT_TRUE(fits) << fits.error().message();
  const auto refused = HostMemory::allocate(1 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_NE(refused.error().message().find("ulimit -l"), std::string::npos) << refused.error().message();
  EXPECT_TRUE(HostMemory::allocate(1 << 20, {.numa_node = -1, .pages = HostPages::pageable}))
      << "without pinning there is no limit";
}
#endif

}  // namespace
}  // namespace gigabar
