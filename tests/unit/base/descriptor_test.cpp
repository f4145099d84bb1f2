// SPDX-License-Identifier: Apache-2.0
// Owned descriptors, small files, deadlines: base/descriptor.hpp and base/clock.hpp.
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }
int some_descriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(Descriptor, ClosesWhatItOwns) {
  const int number = some_descriptor();
  {
    const Descriptor owner(number);
    EXPECT_TRUE(owner.is_open());
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Descriptor, MovesAndReleases) {
  const int number = some_descriptor();
  Descriptor first(number);
  Descriptor second(std::move(first));
  EXPECT_FALSE(first.is_open());  // NOLINT(bugprone-use-after-move): the state after a move is the contract
  const int other = some_descriptor();
  Descriptor third(other);
  third = std::move(second);
  EXPECT_FALSE(is_open(other)) << "the old descriptor of an assigned owner is closed";
  EXPECT_EQ(third.release(), number);
  EXPECT_FALSE(third.is_open());
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(ReadSmallFile, ReadsWholeFilesUpToTheLimit) {
  const test::TemporaryFolder folder;
  folder.write("ten", "0123456789");
  EXPECT_EQ(read_small_file(folder.path() + "/ten"), "0123456789");
  EXPECT_EQ(read_small_file(folder.path() + "/ten", 10), "0123456789");
  EXPECT_FALSE(read_small_file(folder.path() + "/ten", 9));
  EXPECT_EQ(errno, EFBIG);
  folder.write("big", std::string(10000, 'x'));
  EXPECT_EQ(read_small_file(folder.path() + "/big").value_or("").size(), 10000u);
}

TEST(ReadSmallFile, SaysWhyNot) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(read_small_file(folder.path() + "/none"));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(read_small_file(folder.path()));
  EXPECT_EQ(errno, EISDIR);
  EXPECT_FALSE(read_small_file("/dev/zero")) << "an endless file ends at the limit";
}

TEST(Deadline, Passes) {
  EXPECT_FALSE(Deadline::after_ns(60'000'000'000).has_passed());
  const std::int64_t before = now_ns();
  const Deadline soon = Deadline::after_ns(1'000'000);
  while (!soon.has_passed()) {
  }
  EXPECT_GE(now_ns() - before, 1'000'000);
}

}  // namespace
}  // namespace gigabar
