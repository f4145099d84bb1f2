// SPDX-License-Identifier: Apache-2.0
// driver/archive: tar files in memory, written by libarchive.so.13, and read, whoever wrote them.
#include "driver/archive/archive.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/tar_file.hpp"

namespace gigabar {
namespace {

using test::TarFile;

struct Read {
  Result<void> result;
  std::vector<tar::Entry> entries;
};

Read read(const std::string& bytes) {
  Read all;
  all.result = tar::read(bytes, [&](tar::Entry&& entry) { all.entries.push_back(std::move(entry)); });
  return all;
}

void expect_entry(const tar::Entry& entry, tar::Kind kind, const std::string& path, const std::string& text) {
  EXPECT_EQ(entry.kind, kind) << path;
  EXPECT_EQ(entry.path, path);
  EXPECT_EQ(entry.text, text) << path;
}

void expect_refused(const std::string& bytes, const std::string& cause) {
  const Read all = read(bytes);
  ASSERT_FALSE(all.result.is_ok()) << cause;
  EXPECT_EQ(all.result.status(), Status::bad_file) << all.result.message();
  EXPECT_NE(all.result.message().find(cause), std::string::npos) << all.result.message();
}

TEST(Tar, WhatIsWrittenIsRead) {
  const std::vector<tar::Entry> entries = {
      {tar::Kind::file, "sys/a \xff\n/b", std::string("\0\xff\n", 3)},
      {tar::Kind::file, "empty", ""},
      {tar::Kind::file, "block", std::string(512, 'b')},
      {tar::Kind::file, std::string(200, 'p') + "/" + std::string(200, 'q'), std::string(100'000, 'x')},
      {tar::Kind::link, "link", "../../devices/" + std::string(3000, 't')},
      {tar::Kind::folder, "folder/below", ""}};
  const auto bytes = tar::write(entries);
  ASSERT_TRUE(bytes.is_ok()) << bytes.error().message();
  EXPECT_TRUE(tar::is_tar(*bytes));
  const Read all = read(*bytes);
  ASSERT_TRUE(all.result.is_ok()) << all.result.message();
  ASSERT_EQ(all.entries.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) expect_entry(all.entries[i], entries[i].kind, entries[i].path, entries[i].text);
}

TEST(Tar, OfAnotherProgramIsRead) {
  // As tar(1) packs a folder by the name of ".".
  const Read all = read(TarFile().folder("./").folder("./sys/").file("./sys/a", "x").link("./sys/l", "/sys/a").take());
  ASSERT_TRUE(all.result.is_ok()) << all.result.message();
  ASSERT_EQ(all.entries.size(), 3U);
  expect_entry(all.entries[0], tar::Kind::folder, "sys", "");
  expect_entry(all.entries[1], tar::Kind::file, "sys/a", "x");
  expect_entry(all.entries[2], tar::Kind::link, "sys/l", "/sys/a");
}

TEST(Tar, OtherEntriesAreRefused) {
  expect_refused(TarFile().file("/etc/passwd", "x").take(), "'/etc/passwd': has an absolute path");
  expect_refused(TarFile().folder("/").take(), "'/': has an absolute path");
  expect_refused(TarFile().file("a", "x").entry("b", '1', 0, "a").take(), "'b': is a hard link");
  for (const char type : {'3', '4', '6'}) expect_refused(TarFile().entry("a", type, 0).take(), "'a': is neither a file nor");
  expect_refused(TarFile().link("a", "").take(), "'a'");
}

TEST(Tar, SizesAreThoseOfTheFile) {
  for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{1} << 33, std::uint64_t{1} << 62, UINT64_MAX - 1})
    expect_refused(TarFile().entry("a", '0', bytes).content("few").take(), "");
  // Within the file, but beyond its end.
  expect_refused(TarFile().file("before", std::string(4096, 'x')).entry("a", '0', 2000).take(), "'a'");
}

TEST(Tar, SparseFilesAreRefused) {
  // GNU's: a map of one piece of 3 bytes at 1 TiB, in the file's header.
  std::string header = TarFile().entry("hole", 'S', 3).take().substr(0, 512);
  header.replace(386, 24,
                 std::string_view("\x80\0\0\0\0\0\x01\0\0\0\0\0"
                                  "00000000003\0",
                                  24));
  header.replace(483, 12, std::string_view("\x80\0\0\0\0\0\x01\0\0\0\0\x03", 12));
  expect_refused(TarFile().block(header).content("abc").take(), "'hole': is a sparse file");
  // POSIX's: the map in an extended header.
  const std::string map =
      "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n24 GNU.sparse.name=hole\n37 GNU.sparse.realsize=1099511627779\n";
  const std::string piece = "1\n1099511627776\n3\n";
  expect_refused(TarFile()
                     .entry("x", 'x', map.size())
                     .content(map)
                     .entry("GNUSparseFile.0/hole", '0', 515)
                     .content(piece + std::string(512 - piece.size(), '\0') + "abc")
                     .take(),
                 "is a sparse file");
}

TEST(Tar, SparseFilesWhoseMapLiesBehindTheirEndAreNoLargerThanTheArchive) {
  // libarchive drops such a map and fills the file with zeros: 300,000 bytes of 512.
  std::string header = TarFile().entry("hole", 'S', 3).take().substr(0, 512);
  header.replace(386, 24,
                 std::string_view("00007777777\0"
                                  "00000000003\0",
                                  24));
  header.replace(483, 12, std::string_view("00001111740\0", 12));
  TarFile file;
  file.file("real", std::string(1 << 20, 'x'));
  for (int i = 0; i < 3; ++i) file.block(header).content("abc");
  expect_refused(file.take(), "'hole': is larger than what the archive has bytes for");
}

TEST(Tar, HeadersWithoutEndAreRefused) {
  TarFile many;
  for (int i = 0; i < 20'000; ++i) many.entry("././@LongLink", 'L', 5).content("name");
  expect_refused(many.file("a", "x").take(), "cannot be read");
}

TEST(Tar, DamageIsRefused) {
  const std::string whole = TarFile().file("sys/a", "content").file("sys/b", "more").take();
  std::string damaged = whole;
  damaged[1024 + 3] ^= 1;  // in the second name, which the checksum knows
  expect_refused(damaged, "'sys/a': what comes next cannot be read");
  for (const std::size_t bytes : {512U, 515U, 1024U + 511U, 1024U + 512U})
    EXPECT_EQ(read(whole.substr(0, bytes)).result.status(), Status::bad_file) << bytes;
}

TEST(Tar, WhatIsNoneIsKnown) {
  EXPECT_FALSE(tar::is_tar(""));
  EXPECT_FALSE(tar::is_tar("{\"format\": \"gigabar-machine\"}"));
  EXPECT_FALSE(tar::is_tar(std::string(10'240, 'x')));
  EXPECT_TRUE(tar::is_tar(TarFile().file("a", "").take()));
}

// What a visitor throws is the caller's, also in the middle of a file.
TEST(Tar, PassesOnWhatIsThrown) {
  const std::string bytes = TarFile().file("a", "x").file("b", "y").take();
  EXPECT_THROW(static_cast<void>(tar::read(bytes, [](tar::Entry&&) { throw std::bad_alloc(); })), std::bad_alloc);
}

ISOLATED_TEST(TarLibrary, WithoutItsFunctions) {
  const test::ScopedEnvironment library("GIGABAR_ARCHIVE_LIBRARY", "libm.so.6");
  EXPECT_EQ(tar::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(tar::availability().reason.find("archive_errno"), std::string::npos) << tar::availability().reason;
  EXPECT_EQ(tar::write({}).status(), Status::unavailable);
  EXPECT_EQ(read(TarFile().file("a", "x").take()).result.status(), Status::unavailable);
}

}  // namespace
}  // namespace gigabar
