// SPDX-License-Identifier: Apache-2.0
// platform/system_files.hpp: the same answers from a folder and from an archive, and nothing from outside of either.
#include "platform/system_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json empty_archive() { return {{"format", "gigabar-machine"}, {"version", 1}}; }

std::string message_of(const Json& archive) {
  const auto files = SystemFiles::of_archive(archive.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (files.is_ok()) return "opened";
  EXPECT_EQ(files.status(), Status::bad_file);
  return files.error().message();
}

// One tree, as a folder or as an archive.
class EitherKind : public testing::TestWithParam<bool> {
 protected:
  void file(const std::string& path, const std::string& content) {
    folder_.write(path.substr(1), content);
    archive_["files"][path] = content;
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories(fs::path(on_disk(path)).parent_path());
    fs::create_symlink(target, on_disk(path));
    archive_["links"][path] = target;
  }
  void folder(const std::string& path) {
    fs::create_directories(on_disk(path));
    archive_["folders"].push_back(path);
  }
  std::string on_disk(const std::string& path) const { return folder_.path() + path; }

  SystemFiles files() const {
    auto opened = GetParam() ? SystemFiles::of_archive(archive_.dump()) : SystemFiles::of_folder(folder_.path());
    if (!opened) throw std::runtime_error(opened.error().message());
    return *opened;
  }

  test::TemporaryFolder folder_;
  Json archive_ = empty_archive();
};
INSTANTIATE_TEST_SUITE_P(Kind, EitherKind, testing::Bool(), [](const auto& kind) { return kind.param ? "archive" : "folder"; });

TEST_P(EitherKind, ReadsAFile) {
  file("/proc/cmdline", " root=/dev/vda quiet \n");
  file("/sys/empty", "");
  const SystemFiles files = this->files();
  EXPECT_FALSE(files.is_live());
  const FileText text = files.read("/proc/cmdline");
  EXPECT_EQ(text.state, FileState::present);
  EXPECT_EQ(text.content, " root=/dev/vda quiet \n");
  EXPECT_EQ(text.reason, "");
  EXPECT_EQ(files.word("/proc/cmdline"), "root=/dev/vda quiet");
  EXPECT_EQ(files.word("/sys/empty"), "");
  EXPECT_EQ(files.read("/proc//./cmdline").content, text.content);
  EXPECT_EQ(files.read("/proc/../../../proc/cmdline").content, text.content) << "'..' above the root stays at the root";
  EXPECT_EQ(files.facts("/proc/cmdline").kind, NodeKind::file);
  EXPECT_TRUE(files.facts("/proc/cmdline").can_read);
}

TEST_P(EitherKind, WhatIsNotThereIsMissing) {
  file("/proc/cmdline", "text");
  link("/proc/nowhere", "/proc/none");
  const SystemFiles files = this->files();
  for (const std::string path :
       {"/proc/none", "/none/none", "/proc/cmdline/below", "/proc/cmdline/..", "/proc/nowhere", "", "proc/cmdline", "../proc"}) {
    const FileText text = files.read(path);
    EXPECT_EQ(text.state, FileState::missing) << path;
    EXPECT_EQ(text.content, "") << path;
    EXPECT_FALSE(files.word(path)) << path;
    EXPECT_FALSE(files.exists(path)) << path;
    EXPECT_FALSE(files.real_path(path)) << path;
    EXPECT_FALSE(files.link_name(path)) << path;
    EXPECT_TRUE(files.names(path).empty()) << path;
    EXPECT_EQ(files.facts(path).kind, NodeKind::missing) << path;
  }
}

TEST_P(EitherKind, NamesAreSorted) {
  for (const char* name : {"b", "a", "c10", "c9"}) file("/sys/class/net/" + std::string(name), "");
  folder("/sys/class/empty");
  const SystemFiles files = this->files();
  EXPECT_EQ(files.names("/sys/class/net"), (std::vector<std::string>{"a", "b", "c10", "c9"}));
  EXPECT_EQ(files.names("/sys/class/"), (std::vector<std::string>{"empty", "net"}));
  EXPECT_EQ(files.names("/"), std::vector<std::string>{"sys"});
  EXPECT_TRUE(files.names("/sys/class/empty").empty());
  EXPECT_TRUE(files.exists("/sys/class/empty"));
  EXPECT_EQ(files.facts("/sys/class/empty").kind, NodeKind::folder);
  EXPECT_TRUE(files.names("/sys/class/net/a").empty()) << "of a file";
  EXPECT_EQ(files.read("/sys/class/net").state, FileState::refused);
  EXPECT_EQ(files.read("/sys/class/net").reason, "not a regular file");
}

TEST_P(EitherKind, FollowsLinksInside) {
  file("/sys/devices/pci0000:00/0000:00:01.0/vendor", "0x10de\n");
  folder("/sys/bus/pci/drivers/nvidia");
  link("/sys/bus/pci/devices/0000:00:01.0", "../../../devices/pci0000:00/0000:00:01.0");
  link("/sys/devices/pci0000:00/0000:00:01.0/driver", "/sys/bus/pci/drivers/nvidia");
  link("/sys/all", "/sys/bus/pci/devices");
  const SystemFiles files = this->files();
  EXPECT_EQ(files.word("/sys/bus/pci/devices/0000:00:01.0/vendor"), "0x10de");
  EXPECT_EQ(files.word("/sys/all/0000:00:01.0/vendor"), "0x10de") << "a link through a link";
  EXPECT_EQ(files.real_path("/sys/all/0000:00:01.0"), "/sys/devices/pci0000:00/0000:00:01.0");
  EXPECT_EQ(files.link_name("/sys/all/0000:00:01.0/driver"), "nvidia");
  EXPECT_EQ(files.link_name("/sys/bus/pci"), "pci") << "no link at all";
  EXPECT_EQ(files.link_target("/sys/all/0000:00:01.0/driver"), "/sys/bus/pci/drivers/nvidia");
  EXPECT_EQ(files.link_target("/sys/bus/pci/devices/0000:00:01.0"), "../../../devices/pci0000:00/0000:00:01.0");
  EXPECT_FALSE(files.link_target("/sys/bus/pci"));
  EXPECT_FALSE(files.link_target("/sys/none"));
  EXPECT_EQ(files.facts("/sys/all/0000:00:01.0").kind, NodeKind::folder);
  EXPECT_EQ(files.names("/sys/all/0000:00:01.0"), (std::vector<std::string>{"driver", "vendor"}));
  EXPECT_EQ(files.real_path("/sys/all/0000:00:01.0/.."), "/sys/devices/pci0000:00") << "'..' is of what the link leads to";
}

TEST_P(EitherKind, LinksToOutsideStayInside) {
  // A file that every machine has, and that a captured tree must not show.
  ASSERT_TRUE(fs::exists("/proc/self/status"));
  const std::string up(60, '/');
  std::string many_up;
  for (int i = 0; i < 30; ++i) many_up += "../";
  link("/a", "/proc/self/status");
  link("/b", many_up + "proc/self/status");
  link("/c", "/");
  link("/proc/d", "../../../..");
  const SystemFiles files = this->files();
  for (const char* path : {"/a", "/b", "/c/proc/self/status", "/proc/d/proc/self/status"}) {
    EXPECT_EQ(files.read(path).state, FileState::missing) << path;
    EXPECT_FALSE(files.exists(path)) << path;
  }
  EXPECT_EQ(files.real_path("/proc/d"), "/");
  EXPECT_EQ(files.names("/proc/d"), (std::vector<std::string>{"a", "b", "c", "proc"}));
}

TEST_P(EitherKind, LinksWithoutEndAreRefused) {
  link("/a", "b");
  link("/b", "a");
  link("/self", "self");
  file("/end", "x");
  for (int i = 0; i < 41; ++i) link("/chain" + std::to_string(i), i == 40 ? "end" : "chain" + std::to_string(i + 1));
  const SystemFiles files = this->files();
  for (const char* path : {"/a", "/b", "/self", "/a/below", "/chain0"}) {
    EXPECT_EQ(files.read(path).state, FileState::refused) << path;
    EXPECT_EQ(files.read(path).reason, "too many links") << path;
    EXPECT_FALSE(files.exists(path)) << path;
    EXPECT_FALSE(files.real_path(path)) << path;
  }
  EXPECT_EQ(files.read("/chain1").content, "x") << "40 links are allowed";
}

TEST_P(EitherKind, PathsHaveBounds) {
  file("/a", "x");
  const SystemFiles files = this->files();
  EXPECT_EQ(files.read("/" + std::string(256, 'n')).state, FileState::refused);
  EXPECT_EQ(files.read("/" + std::string(255, 'n')).state, FileState::missing);
  std::string slashes(4094, '/');
  EXPECT_EQ(files.read(slashes + "a").content, "x");
  slashes.resize(5000, '/');
  EXPECT_EQ(files.read(slashes + "a").state, FileState::refused);
  EXPECT_FALSE(files.read(std::string("/a\0b", 4)).is_present() && GetParam());
}

TEST_P(EitherKind, ALargerFileIsRefused) {
  file("/exact", std::string(100, 'x'));
  file("/large", std::string(kMaxFileBytes + 1, 'x'));
  const SystemFiles files = this->files();
  EXPECT_TRUE(files.read("/exact", 100).is_present());
  EXPECT_EQ(files.read("/exact", 99).state, FileState::refused);
  EXPECT_EQ(files.read("/exact", 99).reason, "larger than 99 bytes");
  EXPECT_EQ(files.read("/exact", 99).content, "");
  EXPECT_EQ(files.read("/large").state, FileState::refused);
  EXPECT_FALSE(files.word("/large"));
  EXPECT_TRUE(files.read("/large", 2 * kMaxFileBytes).is_present());
}

TEST(FolderAsRoot, SpecialFilesAreRefusedAndNeverBlock) {
  const test::TemporaryFolder root;
  root.write("dev/file", "x");
  ASSERT_EQ(::mkfifo((root.path() + "/dev/fifo").c_str(), 0666), 0);
  const SystemFiles files = SystemFiles::of_folder(root.path()).value();
  const FileText text = files.read("/dev/fifo");
  EXPECT_EQ(text.state, FileState::refused);
  EXPECT_EQ(text.reason, "not a regular file");
  EXPECT_EQ(files.facts("/dev/fifo").kind, NodeKind::other);
  EXPECT_EQ(SystemFiles::live().read(root.path() + "/dev/fifo").state, FileState::refused);
}

TEST(FolderAsRoot, AHugeSparseFileIsReadToItsLimitOnly) {
  const test::TemporaryFolder root;
  root.write("big", "");
  ASSERT_EQ(::truncate((root.path() + "/big").c_str(), off_t{1} << 42), 0);
  const SystemFiles files = SystemFiles::of_folder(root.path()).value();
  EXPECT_EQ(files.read("/big").state, FileState::refused);
  EXPECT_EQ(files.read("/big", 10).reason, "larger than 10 bytes");
}

// Root may read everything; the rights are those of nobody while this lives.
class AsNobody {
 public:
  AsNobody() : before_(::geteuid()) { EXPECT_TRUE(before_ != 0 || ::seteuid(65534) == 0); }
  ~AsNobody() { EXPECT_TRUE(before_ != 0 || ::seteuid(0) == 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  uid_t before_;
};

TEST(FolderAsRoot, AFileWithoutRightsIsUnreadable) {
  const test::TemporaryFolder root;
  root.write("a", "secret");
  root.write("closed/b", "secret");
  fs::permissions(root.path(), fs::perms::all);
  fs::permissions(root.path() + "/a", fs::perms::none);
  fs::permissions(root.path() + "/closed", fs::perms::none);
  {
    const AsNobody nobody;
    const SystemFiles files = SystemFiles::of_folder(root.path()).value();
    for (const char* path : {"/a", "/closed/b"}) {
      EXPECT_EQ(files.read(path).state, FileState::unreadable) << path;
      EXPECT_EQ(files.read(path).reason, "permission denied") << path;
      EXPECT_EQ(SystemFiles::live().read(root.path() + path).reason, "permission denied") << path;
    }
    EXPECT_EQ(files.facts("/a").kind, NodeKind::file);
    EXPECT_FALSE(files.facts("/a").can_read);
    EXPECT_FALSE(files.facts("/a").can_write);
    EXPECT_TRUE(files.names("/closed").empty());
  }
  fs::permissions(root.path() + "/closed", fs::perms::owner_all);
}

TEST(FolderAsRoot, AFolderThatCannotBeListedSaysWhy) {
  const test::TemporaryFolder root;
  root.write("closed/b", "secret");
  root.write("open/b", "x");
  fs::permissions(root.path(), fs::perms::all);
  fs::permissions(root.path() + "/closed", fs::perms::none);
  {
    const AsNobody nobody;
    const SystemFiles files = SystemFiles::of_folder(root.path()).value(), live = SystemFiles::live();
    for (const char* path : {"/closed", "/closed/b"}) {
      EXPECT_EQ(files.list(path).reason, "permission denied") << path;
      EXPECT_EQ(live.list(root.path() + path).reason, "permission denied") << path;
    }
    for (const char* path : {"/open", "/open/b", "/open/none", "/none"}) {
      EXPECT_EQ(files.list(path).reason, "") << path;
      EXPECT_EQ(live.list(root.path() + path).reason, "") << path;
    }
    EXPECT_EQ(files.list("/open").names, std::vector<std::string>{"b"});
  }
  fs::permissions(root.path() + "/closed", fs::perms::owner_all);
}

TEST(FolderAsRoot, RightsAreOfTheOneWhoLooks) {
  const test::TemporaryFolder root;
  root.write("a", "x");
  fs::permissions(root.path() + "/a", fs::perms::owner_read | fs::perms::owner_write);
  const NodeFacts facts = SystemFiles::of_folder(root.path())->facts("/a");
  EXPECT_EQ(facts.mode, 0600U);
  EXPECT_TRUE(facts.can_read);
  EXPECT_TRUE(facts.can_write);
  EXPECT_EQ(SystemFiles::of_folder(root.path())->facts("/").kind, NodeKind::folder);
}

TEST(FolderAsRoot, MoreNamesThanTheBoundAreLeftOut) {
  // In memory, where there is a folder for it: a disk takes seconds.
  const test::ScopedEnvironment in_memory("TMPDIR", ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : nullptr);
  const test::TemporaryFolder root;
  fs::create_directories(root.path() + "/many");
  const std::string first = root.path() + "/many/0";
  root.write("many/0", "");
  // Hard links cost less than files.
  for (std::size_t i = 1; i <= kMaxNames; ++i) {
    if (::link(first.c_str(), (root.path() + "/many/" + std::to_string(i)).c_str()) != 0) {
      root.write("many/" + std::to_string(i), "");
    }
  }
  EXPECT_EQ(SystemFiles::of_folder(root.path())->names("/many").size(), kMaxNames);
}

TEST(FolderAsRoot, WhatCannotBeOpenedIsAnError) {
  const auto missing = SystemFiles::of_folder("/nonexistent/folder");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status(), Status::invalid_argument);
  const test::TemporaryFolder root;
  root.write("file", "");
  EXPECT_EQ(SystemFiles::of_folder(root.path() + "/file").status(), Status::invalid_argument);
}

TEST(Archive, BinaryContent) {
  Json archive = empty_archive();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  archive["files"]["/a"] = {{"base64", "AAECA/8="}};
  archive["files"]["/b"] = {{"base64", ""}};
  archive["files"]["/c"] = {{"base64", "YQ=="}};
  const auto files = SystemFiles::of_archive(archive.dump());
  ASSERT_TRUE(files.is_ok()) << files.error().message();
  EXPECT_EQ(files->read("/a").content, std::string("\0\1\2\3\xff", 5));
  EXPECT_TRUE(files->read("/b").is_present());
  EXPECT_EQ(files->read("/b").content, "");
  EXPECT_EQ(files->read("/c").content, "a");
  for (const char* bad : {"A", "AA", "AAA", "AAAA=", "A===", "====", "AA=A", "AA A", "AAA\n", "AAA\xc3\xa9"}) {
    archive["files"]["/a"] = {{"base64", bad}};
    EXPECT_NE(message_of(archive).find("'files: /a': is not base64"), std::string::npos) << bad;
  }
}

TEST(Archive, UnreadableFilesAndDevices) {
  Json archive = empty_archive();
  archive["unreadable"]["/sys/class/net/eth0/speed"] = "Invalid argument";
  archive["devices"]["/dev/nvidia0"] = {{"mode", 438}, {"major", 195}, {"minor", 7}, {"can_read", true}, {"can_write", false}};
  const auto files = SystemFiles::of_archive(archive.dump());
  ASSERT_TRUE(files.is_ok()) << files.error().message();
  const FileText text = files->read("/sys/class/net/eth0/speed");
  EXPECT_EQ(text.state, FileState::unreadable);
  EXPECT_EQ(text.reason, "Invalid argument");
  EXPECT_EQ(files->facts("/sys/class/net/eth0/speed").kind, NodeKind::file);
  EXPECT_FALSE(files->facts("/sys/class/net/eth0/speed").can_read);
  EXPECT_TRUE(files->exists("/sys/class/net/eth0/speed"));
  const NodeFacts facts = files->facts("/dev/nvidia0");
  EXPECT_EQ(facts.kind, NodeKind::character_device);
  EXPECT_EQ(facts.mode, 0666U);
  EXPECT_EQ(facts.device_major, 195U);
  EXPECT_EQ(facts.device_minor, 7U);
  EXPECT_TRUE(facts.can_read);
  EXPECT_FALSE(facts.can_write);
  EXPECT_EQ(files->read("/dev/nvidia0").state, FileState::refused);
}

TEST(Archive, AFolderThatCouldNotBeListedSaysWhy) {
  Json archive = empty_archive();
  archive["folders"] = {"/sys/alone"};
  archive["files"]["/sys/open/a"] = archive["files"]["/sys/above/a"] = "x";
  archive["unreadable"] = {{"/sys/alone", "permission denied"},
                           {"/sys/above", "permission denied"},
                           {"/sys/above/b", "permission denied"},
                           {"/sys/leaf", "permission denied"},
                           {"/sys/wordless", ""}};
  const auto files = SystemFiles::of_archive(archive.dump());
  ASSERT_TRUE(files.is_ok()) << files.error().message();
  for (const char* path : {"/sys/alone", "/sys/above", "/sys/leaf", "/sys/leaf/below"})
    EXPECT_EQ(files->list(path).reason, "permission denied") << path;
  for (const char* path : {"/sys/open", "/sys/open/a", "/sys/none"}) EXPECT_EQ(files->list(path).reason, "") << path;
  EXPECT_EQ(files->list("/sys/wordless").reason, "not readable");
  EXPECT_EQ(files->list("/sys/above").names, (std::vector<std::string>{"a", "b"})) << "what is known of it";
  EXPECT_EQ(files->facts("/sys/alone").kind, NodeKind::folder);
  EXPECT_FALSE(files->facts("/sys/alone").can_read);
  EXPECT_TRUE(files->facts("/sys/open").can_read);
  EXPECT_EQ(files->read("/sys/above/a").content, "x");
  EXPECT_EQ(files->read("/sys/leaf/below").state, FileState::unreadable);
  EXPECT_FALSE(files->exists("/sys/leaf/below"));
}

TEST(Archive, EachErrorNamesTheKey) {
  const auto with = [](const char* section, const Json& value) {
    Json archive = empty_archive();
    archive[section] = value;
    return message_of(archive);
  };
  EXPECT_EQ(message_of(empty_archive()), "opened");
  EXPECT_EQ(with("something of a later version", 5), "opened");
  EXPECT_NE(with("format", "other").find("'format'"), std::string::npos);
  EXPECT_NE(with("format", 1).find("'format'"), std::string::npos);
  EXPECT_NE(with("version", 2).find("'version'"), std::string::npos);
  EXPECT_NE(with("version", "1").find("'version'"), std::string::npos);
  for (const char* section : {"files", "unreadable", "links", "devices", "folders"}) {
    EXPECT_NE(with(section, 7).find(std::string("'") + section + "'"), std::string::npos);
    EXPECT_NE(with(section, nullptr).find(std::string("'") + section + "'"), std::string::npos);
  }
  for (const char* section : {"files", "unreadable", "links", "devices"}) {
    EXPECT_NE(with(section, {{"/a", 5}}).find(std::string("'") + section + ": /a'"), std::string::npos) << section;
    EXPECT_NE(with(section, {{"/a", {1, 2}}}).find(std::string("'") + section + ": /a'"), std::string::npos) << section;
  }
  EXPECT_NE(with("files", {{"/a", {{"base32", "x"}}}}).find("'files: /a'"), std::string::npos);
  EXPECT_NE(with("links", {{"/a", ""}}).find("'links: /a'"), std::string::npos);
  EXPECT_NE(with("links", {{"/a", std::string(5000, 'x')}}).find("'links: /a'"), std::string::npos);
  EXPECT_NE(with("links", {{"/a", std::string("x\0y", 3)}}).find("'links: /a'"), std::string::npos);
  EXPECT_NE(with("folders", {"/a", 5}).find("'folders'"), std::string::npos);
  for (const Json& bad : {Json{{"mode", -1}}, Json{{"mode", 1 << 20}}, Json{{"major", "x"}},
                          Json{{"minor", std::uint64_t{1} << 32}}, Json{{"can_read", 1}}, Json{{"mode", 1.5}}}) {
    EXPECT_NE(with("devices", {{"/a", bad}}).find("'devices: /a'"), std::string::npos) << bad.dump();
  }
}

TEST(Archive, PathsAreAbsoluteAndPlain) {
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "/d";
  for (const std::string& path :
       {std::string(), std::string("/"), std::string("a"), std::string("a/b"), std::string("/a/"), std::string("/a//b"),
        std::string("//a"), std::string("/."), std::string("/a/./b"), std::string("/.."), std::string("/a/../b"),
        std::string("/a/.."), std::string("/a\nb"), std::string("/a\0b", 4), "/" + std::string(256, 'n'), deep}) {
    Json archive = empty_archive();
    archive["files"][path] = "x";
    EXPECT_NE(message_of(archive).find("not an absolute path"), std::string::npos) << path;
  }
  Json archive = empty_archive();
  archive["files"]["/..."] = archive["files"]["/a/.b"] = "x";
  EXPECT_EQ(message_of(archive), "opened");
}

TEST(Archive, AFileIsNoFolder) {
  Json archive = empty_archive();
  archive["files"]["/a"] = "x";
  archive["files"]["/a/b"] = "x";
  EXPECT_NE(message_of(archive).find("'files: /a/b': lies below something that is not a folder"), std::string::npos);
  archive = empty_archive();
  archive["links"]["/a"] = "/b";
  archive["files"]["/a/b"] = "x";
  EXPECT_NE(message_of(archive).find("'links: /a': is there twice, or is a file and a folder"), std::string::npos);
  archive = empty_archive();
  archive["links"]["/a"] = "/b";
  archive["folders"] = {"/a"};
  EXPECT_NE(message_of(archive).find("'folders: /a'"), std::string::npos);
  archive = empty_archive();
  archive["files"]["/a/b"] = "x";
  archive["folders"] = {"/a", "/a"};
  EXPECT_EQ(message_of(archive), "opened") << "a folder may be named though it follows from a path";
}

TEST(Archive, WhatIsNoJsonIsABadFile) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("not json"), std::string("\0", 1), std::string("[]"), std::string("5"),
        std::string("{\"format\": \"gigabar-machine\", \"version\": 1"), std::string("\xff\xfe")}) {
    const auto files = SystemFiles::of_archive(text);
    ASSERT_FALSE(files.is_ok()) << text;
    EXPECT_EQ(files.status(), Status::bad_file) << text;
  }
}

TEST(Live, ReadsThisMachine) {
  const SystemFiles files = SystemFiles::live();
  EXPECT_TRUE(files.is_live());
  EXPECT_TRUE(files.read("/proc/self/status").content.starts_with("Name:"));
  EXPECT_EQ(files.read("/proc/self/none").state, FileState::missing);
  EXPECT_EQ(files.read("relative").state, FileState::missing);
  EXPECT_EQ(files.read("/proc").state, FileState::refused);
  EXPECT_EQ(files.read("/dev/zero").state, FileState::refused) << "a device would never end";
  EXPECT_EQ(files.read("/proc/self/status", 4).state, FileState::refused);
  EXPECT_EQ(files.link_name("/proc/self"), std::to_string(::getpid()));
  EXPECT_EQ(files.link_target("/proc/self"), std::to_string(::getpid()));
  EXPECT_FALSE(files.link_target("/proc"));
  const NodeFacts facts = files.facts("/dev/null");
  EXPECT_EQ(facts.kind, NodeKind::character_device);
  EXPECT_EQ(facts.device_major, 1U);
  EXPECT_EQ(facts.device_minor, 3U);
  EXPECT_TRUE(facts.can_read && facts.can_write);
  const auto names = files.names("/proc/self");
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_NE(std::find(names.begin(), names.end(), "status"), names.end());
}

TEST(Live, AFailingReadSaysWhy) {
  // /proc/self/mem is a regular file whose first page cannot be read, by anybody.
  const FileText text = SystemFiles::live().read("/proc/self/mem");
  EXPECT_EQ(text.state, FileState::unreadable);
  EXPECT_EQ(text.reason, "Input/output error");
}

}  // namespace
}  // namespace gigabar
