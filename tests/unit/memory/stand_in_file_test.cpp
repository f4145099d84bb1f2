// SPDX-License-Identifier: Apache-2.0
// Stand-in devices whose memory is a file's: GIGABAR_STAND_IN_MEMORY. A file in memory plays the device file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "memory/stand_in_file.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

constexpr std::size_t kUnit = 65536;
constexpr std::size_t kUnits = 16;

// A file of kUnits * 64 KiB that goes away with the object.
class MemoryFile {
 public:
  explicit MemoryFile(std::size_t bytes = kUnits * kUnit) : path_("/dev/shm/gigabar-test-XXXXXX"), file_(::mkstemp(path_.data())) {
    if (!file_.is_open() || ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) ADD_FAILURE() << path_ << ": " << errno;
  }
  ~MemoryFile() { ::unlink(path_.c_str()); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

  std::string read(std::size_t offset_bytes, std::size_t bytes) const {
    std::string content(bytes, '\0');
    const ssize_t got = ::pread(file_.get(), content.data(), bytes, static_cast<off_t>(offset_bytes));
    content.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return content;
  }

  // Where in the file the memory lies, found by a mark; -1: nowhere.
  long unit_of(const DeviceMemory& memory, const std::string& mark) const {
    std::memcpy(memory.address(), mark.data(), mark.size());
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      if (read(unit * kUnit, mark.size()) == mark) return static_cast<long>(unit);
    }
    return -1;
  }

 private:
  std::string path_;
  const Descriptor file_;
};

class StandInFile : public testing::Test {
 protected:
  MemoryFile file_;
  test::ScopedEnvironment two_{"GIGABAR_STAND_IN", "2"};
  test::ScopedEnvironment memory_{"GIGABAR_STAND_IN_MEMORY", file_.path().c_str()};
};

TEST_F(StandInFile, DevicesSayWhereTheirMemoryIs) {
  const auto list = devices();
  ASSERT_TRUE(list) << list.error().message();
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].memory_bytes, kUnits * kUnit);
  EXPECT_NE((*list)[1].name.find(file_.path()), std::string::npos) << (*list)[1].name;
  EXPECT_NE((*list)[1].name.find("stand-in"), std::string::npos);
}

TEST_F(StandInFile, MemoryIsTheFilesWhole) {
  const auto memory = DeviceMemory::allocate(1, kUnits * kUnit);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->address()) % kUnit, 0u);
  auto* bytes = static_cast<unsigned char*>(memory->address());
  for (std::size_t i = 0; i < kUnits * kUnit; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + (i >> 8));
  const std::string content = file_.read(0, kUnits * kUnit);
  ASSERT_EQ(content.size(), kUnits * kUnit);
  EXPECT_EQ(std::memcmp(content.data(), bytes, content.size()), 0);
  const auto info = describe(bytes + 70000);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind, MemoryKind::stand_in);
  EXPECT_EQ(info->device, 1);
  EXPECT_EQ(info->offset_bytes, 70000u);
}

TEST_F(StandInFile, TheFirstHoleThatFitsIsTaken) {
  std::vector<std::optional<DeviceMemory>> held;
  for (const std::size_t units : {1u, 2u, 1u, 3u, 1u}) {  // at 0, 1, 3, 4, 7
    auto memory = DeviceMemory::allocate(0, units * kUnit - 5);
    ASSERT_TRUE(memory) << memory.error().message();
    held.emplace_back(std::move(*memory));
  }
  const std::vector<long> expected = {0, 1, 3, 4, 7};
  for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(file_.unit_of(*held[i], "block " + std::to_string(i)), expected[i]);
  held[1].reset();
  held[3].reset();
  const auto three = DeviceMemory::allocate(1, 3 * kUnit);
  EXPECT_EQ(file_.unit_of(*three, "three units"), 4);
  const auto one = DeviceMemory::allocate(0, 1);
  EXPECT_EQ(file_.unit_of(*one, "one byte's unit"), 1);
  const auto two = DeviceMemory::allocate(0, 2 * kUnit);
  EXPECT_EQ(file_.unit_of(*two, "two units"), 8);
  EXPECT_EQ(file_.read(7 * kUnit, 7), "block 4") << "others' memory is left alone";
}

TEST_F(StandInFile, MoreThanThereIsIsRefused) {
  const auto too_much = DeviceMemory::allocate(0, kUnits * kUnit + 1);
  EXPECT_EQ(too_much.status(), Status::out_of_memory);
  auto whole = DeviceMemory::allocate(0, (kUnits - 1) * kUnit);
  ASSERT_TRUE(whole);
  std::optional<DeviceMemory> most(std::move(*whole));
  const auto refused = DeviceMemory::allocate(1, 2 * kUnit);
  ASSERT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_NE(refused.error().message().find(file_.path()), std::string::npos) << refused.error().message();
  EXPECT_NE(refused.error().message().find(std::to_string(kUnits * kUnit)), std::string::npos) << refused.error().message();
  EXPECT_FALSE(refused.error().record().remedy.empty());
  EXPECT_TRUE(DeviceMemory::allocate(1, kUnit));
  most.reset();
  EXPECT_TRUE(DeviceMemory::allocate(1, kUnits * kUnit));
  EXPECT_EQ(DeviceMemory::allocate(0, std::size_t{1} << 60).status(), Status::out_of_memory);
}

// A window that is kept after the memory was freed still shows the range, so nobody else may get it.
TEST_F(StandInFile, HeldPagesKeepTheirRange) {
  std::shared_ptr<const void> held;
  {
    const auto memory = DeviceMemory::allocate(0, kUnits * kUnit);
    ASSERT_TRUE(memory);
    held = stand_in_runtime().hold(reinterpret_cast<std::uintptr_t>(memory->address()));
    ASSERT_NE(held, nullptr);
  }
  EXPECT_EQ(DeviceMemory::allocate(0, kUnit).status(), Status::out_of_memory);
  held.reset();
  EXPECT_TRUE(DeviceMemory::allocate(0, kUnit));
}

TEST_F(StandInFile, IsNotExported) {
  const auto memory = DeviceMemory::allocate(0, kUnit);
  ASSERT_TRUE(memory);
  EXPECT_FALSE(describe(memory->address())->is_exportable);
  const auto refused = memory->export_descriptor();
  ASSERT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.error().message().find("GIGABAR_STAND_IN_MEMORY"), std::string::npos) << refused.error().message();
}

// The environment may change while memory is in use.
TEST_F(StandInFile, EachAllocationKnowsItsFile) {
  const auto first = DeviceMemory::allocate(0, kUnit);
  const MemoryFile other;
  {
    const test::ScopedEnvironment changed("GIGABAR_STAND_IN_MEMORY", other.path().c_str());
    const auto second = DeviceMemory::allocate(0, kUnit);
    ASSERT_TRUE(second);
    EXPECT_EQ(other.unit_of(*second, "in the other file"), 0);
    EXPECT_EQ(file_.unit_of(*first, "in the first file"), 0);
  }
  const test::ScopedEnvironment unset("GIGABAR_STAND_IN_MEMORY", nullptr);
  const auto third = DeviceMemory::allocate(0, kUnit);
  EXPECT_EQ(other.unit_of(*third, "in no file"), -1);
  EXPECT_TRUE(describe(third->address())->is_exportable);
}

// Takes `units` in a process of its own and returns it when the range is taken; it waits to be killed.
pid_t child_that_takes(const std::string& path, std::size_t units) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto range = take_from_stand_in_file(path, units * kUnit, kUnit);
    const char answer = range ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) == 1) ::pause();
    ::_exit(1);
  }
  ::close(ready[1]);
  char answer = 0;
  const bool has_answer = ::read(ready[0], &answer, 1) == 1;
  ::close(ready[0]);
  EXPECT_TRUE(has_answer && answer == 'y');
  return child;
}

TEST_F(StandInFile, ProcessesShareItAndTheDeadGiveBack) {
  const auto own = DeviceMemory::allocate(0, kUnit);
  const pid_t child = child_that_takes(file_.path(), 3);
  ASSERT_GT(child, 0);
  {
    const auto beyond = DeviceMemory::allocate(0, kUnit);
    EXPECT_EQ(file_.unit_of(*beyond, "behind the child's"), 4);
  }
  EXPECT_EQ(DeviceMemory::allocate(0, (kUnits - 3) * kUnit).status(), Status::out_of_memory);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto after = DeviceMemory::allocate(0, (kUnits - 1) * kUnit);
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ(file_.unit_of(*after, "where the child was"), 1);
}

TEST(StandInFiles, ThatAreNoneAreRefused) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const test::TemporaryFolder folder;
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  folder.write("empty", "");
  folder.write("small", "less than a page");
  for (const std::string& bad : {std::string("/nonexistent/device"), folder.path(), fifo, folder.path() + "/empty",
                                 folder.path() + "/small", std::string("/dev/null"), std::string(5000, 'x')}) {
    const test::ScopedEnvironment memory("GIGABAR_STAND_IN_MEMORY", bad.c_str());
    const auto list = devices();
    ASSERT_EQ(list.status(), Status::invalid_argument) << bad;
    EXPECT_NE(list.error().message().find("GIGABAR_STAND_IN_MEMORY"), std::string::npos) << list.error().message();
    EXPECT_FALSE(list.error().record().remedy.empty());
    EXPECT_EQ(DeviceMemory::allocate(0, kUnit).status(), Status::invalid_argument) << bad;
  }
}

TEST(StandInFiles, TheEndThatIsNoWholeUnitIsLeft) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const MemoryFile file(2 * kUnit + 4096 + 100);
  const test::ScopedEnvironment memory("GIGABAR_STAND_IN_MEMORY", file.path().c_str());
  EXPECT_EQ(devices()->front().memory_bytes, 2 * kUnit + 4096);
  const auto first = DeviceMemory::allocate(0, 2 * kUnit);
  EXPECT_TRUE(first);
  EXPECT_EQ(DeviceMemory::allocate(0, 1).status(), Status::out_of_memory);
}

TEST(StandInFiles, EmptyNameMeansHostMemory) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const test::ScopedEnvironment memory("GIGABAR_STAND_IN_MEMORY", "");
  EXPECT_EQ(devices()->front().name, "stand-in (host memory)");
  EXPECT_TRUE(DeviceMemory::allocate(0, kUnit));
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
ISOLATED_TEST(StandInFiles, DescriptorsAreExhausted) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const MemoryFile file;
  const test::ScopedEnvironment memory("GIGABAR_STAND_IN_MEMORY", file.path().c_str());
  ASSERT_TRUE(devices());
  const auto range = test::without_descriptors([&] { return take_from_stand_in_file(file.path(), kUnit, kUnit); });
  EXPECT_EQ(range.status(), Status::out_of_descriptors);
  EXPECT_TRUE(DeviceMemory::allocate(0, kUnit));
}
#endif

}  // namespace
}  // namespace gigabar
