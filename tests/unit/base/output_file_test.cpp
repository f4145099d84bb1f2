// SPDX-License-Identifier: Apache-2.0
// check_output(): what write_output() would refuse, without a trace; replaced_file(): which file it would replace. What
// write_output() does is tested by tests/tools/outputs_test.py.
#include "base/output_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/descriptor.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int code_of(const std::string& path) {
  const auto fault = check_output(path);
  return fault ? fault->code : 0;
}

TEST(CheckOutput, LeavesNothingAndChangesNothing) {
  const test::TemporaryFolder folder;
  const std::string old = folder.path() + "/old";
  std::ofstream(old) << "old";
  EXPECT_EQ(code_of(old), 0);
  EXPECT_EQ(code_of(folder.path() + "/new"), 0);
  EXPECT_EQ(content_of(old), "old");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/new"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(CheckOutput, RefusesWhatCannotBeAFile) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(code_of(folder.path()), EISDIR);
  EXPECT_EQ(code_of(folder.path() + "/absent/new"), ENOENT);
  EXPECT_EQ(code_of("/dev/null/new"), ENOTDIR);

  const std::string link = folder.path() + "/link";
  ASSERT_EQ(::symlink("absent/target", link.c_str()), 0);
  EXPECT_EQ(code_of(link), ENOENT) << "the folder of a link's target";
}

TEST(ReplacedFile, IsTheSameForAllPathsToAFile) {
  const test::TemporaryFolder folder;
  const std::string old = folder.path() + "/old", fresh = folder.path() + "/new", link = folder.path() + "/link";
  std::ofstream(old) << "old";
  std::filesystem::create_directory(folder.path() + "/folder");
  std::filesystem::create_hard_link(old, folder.path() + "/other");
  EXPECT_EQ(replaced_file(old), replaced_file(folder.path() + "/other"));
  EXPECT_NE(replaced_file(old), replaced_file(fresh));

  ASSERT_EQ(::symlink("new", link.c_str()), 0);
  EXPECT_FALSE(replaced_file(fresh).empty());
  for (const std::string& path : {link, folder.path() + "/./new", folder.path() + "/folder/../new"}) {
    EXPECT_EQ(replaced_file(path), replaced_file(fresh)) << path;
  }
  EXPECT_EQ(replaced_file("new"), replaced_file("./new"));
  EXPECT_NE(replaced_file("new"), replaced_file(fresh));
}

TEST(ReplacedFile, IsNoneOfWhatIsAddedTo) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(replaced_file(path), "");
  EXPECT_EQ(replaced_file("/dev/null"), "");
  EXPECT_EQ(replaced_file(folder.path()), "");
}

TEST(CheckOutput, DoesNotOpenAFifo) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(code_of(path), 0) << "would wait for its reader";
  // Who reads it has seen no writer come and go.
  const Descriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_EQ(code_of(path), 0);
  EXPECT_EQ(code_of("/dev/null"), 0);
  EXPECT_EQ(code_of("/dev/full"), 0) << "only the write can tell";
}

TEST(CheckOutput, RefusesASocket) {
  const test::TemporaryFolder folder;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder.path() + "/socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(code_of(path), ENXIO);
}

// Root may write everywhere.
TEST(CheckOutput, AsksTheKernelForPermission) {
  const test::TemporaryFolder folder;
  const std::string closed = folder.path() + "/closed", own = closed + "/own", other = closed + "/other";
  std::filesystem::create_directory(closed);
  for (const std::string& path : {own, other}) std::ofstream(path) << "old";
  ::chmod(other.c_str(), 0444);
  ::chmod(closed.c_str(), 0555);
  const int refused = ::geteuid() == 0 ? 0 : EACCES;
  EXPECT_EQ(code_of(closed + "/new"), refused);
  EXPECT_EQ(code_of(other), refused);
  EXPECT_EQ(code_of(own), 0) << "is overwritten in place";
  ::chmod(closed.c_str(), 0755);
}

}  // namespace
}  // namespace gigabar
