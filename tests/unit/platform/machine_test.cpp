// SPDX-License-Identifier: Apache-2.0
// gigabar/machine.hpp and platform/system_archive.hpp: what is captured of this machine, and how captures are opened.
#include "gigabar/machine.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "platform/system_archive.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/tar_file.hpp"
#include "support/temporary_folder.hpp"
#include "unit/platform/document.hpp"

namespace gigabar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::document_of;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

Json small_archive() {
  Json archive = {{"format", "gigabar-machine"}, {"version", 1}, {"remark", "constructed"}};
  archive["files"]["/proc/cmdline"] = "iommu=pt\n";
  return archive;
}

// Drivers of the machine that runs the test stay out of it.
class MachineTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  test::ScopedEnvironment no_cuda_{"GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"};
  test::ScopedEnvironment no_nvml_{"GIGABAR_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1"};
  // Of this name in the folder.
  void expect_refused(const std::string& name, Status status, const std::string& part) const {
    expect_path_refused(path(name), status, part);
  }
  static void expect_path_refused(const std::string& path, Status status, const std::string& part) {
    const auto machine = Machine::open(path);
    ASSERT_FALSE(machine.is_ok()) << path;
    EXPECT_EQ(machine.status(), status) << machine.error().message();
    EXPECT_NE(machine.error().message().find("open machine: " + path), std::string::npos) << machine.error().message();
    EXPECT_NE(machine.error().message().find(part), std::string::npos) << machine.error().message();
  }

  test::TemporaryFolder folder_;
};

TEST_F(MachineTest, OfAnArchive) {
  folder_.write("archive.json", small_archive().dump());
  const auto machine = Machine::open(path("archive.json"));
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  EXPECT_FALSE(machine->is_live());
  EXPECT_EQ(machine->origin(), path("archive.json"));
  EXPECT_EQ(machine->remark(), "constructed");
  EXPECT_EQ(machine->files().word("/proc/cmdline"), "iommu=pt");
  EXPECT_TRUE(is_not_asked(machine->answers().cuda));
  EXPECT_EQ(machine->answers().nvml.reason, "no answer was captured");
  EXPECT_FALSE(machine->answers().verbs.remedy.empty());
}

TEST_F(MachineTest, OfAFolder) {
  folder_.write("proc/cmdline", "quiet\n");
  const auto machine = Machine::open(folder_.path());
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  EXPECT_FALSE(machine->is_live());
  EXPECT_EQ(machine->remark(), "");
  EXPECT_EQ(machine->files().word("/proc/cmdline"), "quiet");
  EXPECT_EQ(machine->answers().cuda.reason, "no answer was captured");
}

TEST_F(MachineTest, OfAFolderWithAnswers) {
  DriverAnswers answers;
  answers.driver_version = "580.1";
  folder_.write("gigabar-answers.json", to_json(answers));
  const auto machine = Machine::open(folder_.path());
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  EXPECT_EQ(machine->answers().driver_version, "580.1");
  folder_.write("gigabar-answers.json", "{");
  EXPECT_EQ(Machine::open(folder_.path()).status(), Status::bad_file);
  fs::remove(path("gigabar-answers.json"));
  ASSERT_EQ(::mkfifo(path("gigabar-answers.json").c_str(), 0600), 0);
  expect_path_refused(folder_.path(), Status::bad_file,
                      "/gigabar-answers.json: not a regular file; make it a readable file, or remove it");
}

TEST_F(MachineTest, WhatCannotBeOpened) {
  expect_refused("none", Status::invalid_argument, "there is no such file or folder");
  expect_path_refused("", Status::invalid_argument, "there is no such file or folder");
  folder_.write("empty", "");
  expect_refused("empty", Status::bad_file, "it is neither a tar file nor JSON");
  expect_refused("empty/none", Status::invalid_argument, "there is no such file or folder");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refused("fifo", Status::bad_file, "not a regular file");
  expect_path_refused("/dev/zero", Status::bad_file, "not a regular file");
  fs::create_symlink("circle", path("circle"));
  expect_refused("circle", Status::bad_file, "symbolic links");
  folder_.write("huge", "");
  ASSERT_EQ(::truncate(path("huge").c_str(), static_cast<off_t>(kMaxArchiveBytes) + 1), 0);
  expect_refused("huge", Status::bad_file, "larger than");

  Json archive = small_archive();
  archive["remark"] = 5;
  folder_.write("remark", archive.dump());
  const auto bad = Machine::open(path("remark"));
  ASSERT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status(), Status::bad_file);
  EXPECT_NE(bad.error().message().find(path("remark")), std::string::npos) << bad.error().message();
  EXPECT_NE(bad.error().message().find("'remark'"), std::string::npos) << bad.error().message();
  archive = small_archive();
  archive["answers"] = 5;
  folder_.write("answers", archive.dump());
  EXPECT_EQ(Machine::open(path("answers")).status(), Status::bad_file);
}

TEST_F(MachineTest, ReadsNothingBeforeSomebodyAsks) {
  const Machine machine = Machine::here();
  EXPECT_TRUE(machine.is_live());
  EXPECT_EQ(machine.origin(), "this machine");
  EXPECT_EQ(machine.remark(), "");
  const Machine copy = machine;
  EXPECT_EQ(&copy.answers(), &machine.answers()) << "copies share what was read";
}

TEST_F(MachineTest, CaptureOfACaptureIsRefused) {
  folder_.write("archive.json", small_archive().dump());
  const Result<void> captured = Machine::open(path("archive.json"))->capture(path("again.json"));
  EXPECT_EQ(captured.status(), Status::not_supported);
  EXPECT_FALSE(fs::exists(path("again.json")));
}

// What a build without libarchive would say, and a machine where it is not installed.
ISOLATED_TEST(CaptureWithoutLibarchive, SaysWhatIsMissing) {
  const test::ScopedEnvironment library("GIGABAR_ARCHIVE_LIBRARY", "/nonexistent/libarchive.so.13");
  const test::TemporaryFolder folder;
  const Result<void> captured = Machine::here().capture(folder.path() + "/machine.tar");
  EXPECT_EQ(captured.status(), Status::unavailable);
  EXPECT_NE(captured.message().find("/nonexistent/libarchive.so.13"), std::string::npos) << captured.message();
  EXPECT_NE(captured.record().remedy.find("libarchive13"), std::string::npos) << captured.message();
  EXPECT_FALSE(fs::exists(folder.path() + "/machine.tar"));
  folder.write("archive.json", small_archive().dump());
  EXPECT_TRUE(Machine::open(folder.path() + "/archive.json").is_ok()) << "a document needs no library";
  folder.write("archive.tar", test::TarFile().file("gigabar-machine.json", small_archive().dump()).take());
  EXPECT_EQ(Machine::open(folder.path() + "/archive.tar").status(), Status::unavailable);
}

TEST_F(MachineTest, CaptureThatCannotBeWrittenLeavesNoFile) {
  const Machine machine = Machine::here();
  EXPECT_EQ(machine.capture(path("none/machine.tar")).status(), Status::invalid_argument);
  fs::create_directories(path("taken"));
  EXPECT_EQ(machine.capture(path("taken")).status(), Status::invalid_argument) << "a folder of that name";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1) << "only the folder";
}

class CaptureOfThisMachine : public MachineTest {
 protected:
  void SetUp() override {
    const Result<void> captured = Machine::here().capture(path("machine.tar"));
    ASSERT_TRUE(captured.is_ok()) << captured.message();
    text_ = content_of(path("machine.tar"));
    archive_ = document_of(text_);
  }
  std::string text_;
  Json archive_;
};

TEST_F(CaptureOfThisMachine, IsAWholeFileThatOthersCanRead) {
  struct stat facts{};
  ASSERT_EQ(::stat(path("machine.tar").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0644U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
  EXPECT_TRUE(std::regex_match(archive_["date"].get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")));
  const auto read = read_archive(text_);
  ASSERT_TRUE(read.is_ok()) << read.error().message();
  EXPECT_EQ(read->head.remark, "");
  EXPECT_NE(read->head.answers.cuda.reason, "no answer was captured");
}

// Which user stands behind which is nobody's business, only whether it is the machine's own namespace.
TEST(CapturedUsers, AreAnAnswerAndNoMap) {
  const auto captured = [](const std::string& map) {
    const Json archive = {{"format", "gigabar-machine"}, {"version", 1}, {"files", {{"/proc/self/uid_map", map}}}};
    const std::string again = write_archive(*SystemFiles::of_archive(archive.dump()), {}).value();
    return document_of(again)["files"]["/proc/self/uid_map"].get<std::string>();
  };
  EXPECT_EQ(captured("         0          0 4294967295\n"), "         0          0 4294967295\n");
  for (const char* map : {"         0     100000      65536\n", "0 1000 1\n1 100000 65536\n", "0 0 65536\n", ""})
    EXPECT_EQ(captured(map), "mapped\n");
}

TEST_F(CaptureOfThisMachine, AnswersAsTheMachineItself) {
  const SystemFiles live = SystemFiles::live();
  const auto captured = Machine::open(path("machine.tar"));
  ASSERT_TRUE(captured.is_ok()) << captured.error().message();
  const SystemFiles& files = captured->files();
  // Each file of the archive by the path it has, and by the path through a link.
  std::size_t compared = 0;
  const std::set<std::string> changed{"/proc/kallsyms", "/proc/self/status", "/proc/self/mounts", "/proc/self/uid_map"};
  for (const auto& [path, unused] : archive_["files"].items()) {
    const FileText now = live.read(path, kMaxArchiveBytes);
    // What counts or swings differs from one moment to the next, and config spaces are without their serial number.
    const bool is_steady = path.find("meminfo") == std::string::npos && path.find("counters") == std::string::npos &&
                           path.find("_hugepages") == std::string::npos && path.find("cpuinfo") == std::string::npos &&
                           !path.ends_with("/config") && !changed.contains(path);
    EXPECT_TRUE(files.read(path, kMaxArchiveBytes).is_present()) << path;
    if (!is_steady || !now.is_present()) continue;
    EXPECT_EQ(files.read(path, kMaxArchiveBytes).content, now.content) << path;
    ++compared;
  }
  EXPECT_GT(compared, 20U);
  for (const auto& [path, unused] : archive_["links"].items()) {
    EXPECT_EQ(files.real_path(path), live.real_path(path)) << path;
    EXPECT_EQ(files.link_name(path), live.link_name(path)) << path;
  }
  for (const char* path : {"/proc/cpuinfo", "/proc/version", "/proc/sys/kernel/osrelease", "/proc/self/limits", "/etc/os-release",
                           "/sys/devices/system/cpu/online", "/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/gdrdrv"}) {
    EXPECT_EQ(files.exists(path), live.exists(path)) << path;
    EXPECT_EQ(files.facts(path).kind, live.facts(path).kind) << path;
  }
  for (const char* folder : {"/sys/bus/pci/devices", "/sys/class/infiniband", "/sys/class/net"}) {
    if (!live.exists(folder)) continue;
    EXPECT_EQ(files.names(folder), live.names(folder)) << folder;
  }
  EXPECT_EQ(files.read("/sys/none").state, FileState::missing);
}

TEST_F(CaptureOfThisMachine, NamesNoHostAndNoHardwareAddress) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  const std::string host(&system.nodename[0]);
  // Short names are parts of many words.
  const bool is_telling = host.size() >= 5 && host != "localhost";
  EXPECT_FALSE(is_telling && text_.find(host) != std::string::npos) << host;
  const SystemFiles live = SystemFiles::live();
  for (const std::string& device : live.names("/sys/class/net")) {
    const std::string address = live.word("/sys/class/net/" + device + "/address").value_or("");
    if (address.size() < 17 || address == "00:00:00:00:00:00") continue;
    EXPECT_EQ(text_.find(address), std::string::npos) << device;
  }
  for (const char* section : {"files", "unreadable", "links"}) {
    for (const auto& [path, unused] : archive_[section].items()) {
      EXPECT_TRUE(path.starts_with("/sys/") || path.starts_with("/proc/") || path.starts_with("/dev/") ||
                  path.starts_with("/etc/") || path.starts_with("/boot/") || path == "/usr/lib/os-release" ||
                  path == "/.dockerenv" || path.starts_with("/run/"))
          << path;
      for (const char* private_name : {"/address", "/serial", "uuid", "node_desc", "environ", "/vpd", "_serial"}) {
        EXPECT_EQ(path.find(private_name), std::string::npos) << path;
      }
    }
  }
}

// A machine with the things that the one which runs the test may not have.
class CaptureOfAFolder : public testing::Test {
 protected:
  Json archive() const {
    text_ = write_archive(SystemFiles::of_folder(folder_.path()).value(), {"remark", "date", {}}).value();
    EXPECT_TRUE(SystemFiles::of_archive(text_).is_ok());
    EXPECT_EQ(read_archive(text_)->head.remark, "remark");
    return document_of(text_);
  }
  void link(const std::string& path, const std::string& target) const {
    fs::create_directories(fs::path(folder_.path() + path).parent_path());
    fs::create_symlink(target, folder_.path() + path);
  }
  test::TemporaryFolder folder_;
  mutable std::string text_;  // of the last archive
};

TEST_F(CaptureOfAFolder, TakesWhatIsInTheTableOnly) {
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/vendor", "0x15b3\n");
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/vpd", "serial");
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/net/eth0/address", "00:11:22:33:44:55");
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/net/eth0/mtu", "9000\n");
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/ports/1/gids/0", "fe80::\n");
  folder_.write("sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/node_desc", "host");
  link("/sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0");
  link("/sys/class/net/eth0", "../../devices/pci0000:00/0000:01:00.0/net/eth0");
  link("/sys/class/infiniband/mlx5_0", "../../devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0");
  link("/sys/class/infiniband/mlx5_9", "/home/somebody");
  link("/sys/devices/pci0000:00/0000:01:00.0/driver", "../../../bus/pci/drivers/mlx5_core");
  fs::create_directories(folder_.path() + "/sys/bus/pci/drivers/mlx5_core");
  folder_.write("home/somebody/ports/1/state", "private");
  folder_.write("sys/module/nvidia/version", "580.1\n");
  folder_.write("sys/module/other/version", "1\n");
  folder_.write("proc/sys/kernel/osrelease", "6.1.0-test\n");
  folder_.write("boot/config-6.1.0-test", "CONFIG_PCI_P2PDMA=y\n");
  folder_.write("boot/config-5.0", "old");
  folder_.write("usr/lib/os-release", "NAME=x\n");
  link("/etc/os-release", "../usr/lib/os-release");
  folder_.write("etc/passwd", "private");
  folder_.write(".dockerenv", "private");
  const Json captured = archive();
  std::set<std::string> paths;
  for (const auto& [path, unused] : captured["files"].items()) paths.insert(path);
  const std::string device = "/sys/devices/pci0000:00/0000:01:00.0";
  EXPECT_EQ(paths, (std::set<std::string>{"/.dockerenv", "/boot/config-6.1.0-test", "/proc/sys/kernel/osrelease",
                                          device + "/vendor", device + "/infiniband/mlx5_0/ports/1/gids/0",
                                          device + "/net/eth0/mtu", "/sys/module/nvidia/version", "/usr/lib/os-release"}));
  EXPECT_EQ(captured["files"]["/.dockerenv"], "");
  EXPECT_EQ(captured["links"].size(), 5U) << captured["links"].dump();
  EXPECT_EQ(captured["links"]["/sys/bus/pci/devices/0000:01:00.0"], "../../../devices/pci0000:00/0000:01:00.0");
  EXPECT_FALSE(captured["links"].contains("/sys/class/infiniband/mlx5_9")) << "leads to where nothing is captured";
  const auto folders = captured["folders"].get<std::set<std::string>>();
  EXPECT_TRUE(folders.contains("/sys/bus/pci/drivers/mlx5_core")) << "a link names it";
  EXPECT_FALSE(folders.contains("/sys/module/nvidia")) << "follows from the file in it";
  const auto files = SystemFiles::of_archive(text_);
  EXPECT_EQ(files->link_name("/sys/class/net/eth0/../../driver"), "mlx5_core");
  EXPECT_EQ(files->word("/sys/class/net/eth0/mtu"), "9000");
}

TEST_F(CaptureOfAFolder, KeepsOfSomeFilesOnlyAPart) {
  folder_.write("proc/kallsyms",
                "ffffffffa0001000 T other\nffffffffc1234567 t ib_register_peer_memory_client\t[ib_core]\nffffffffa0002000 T last");
  folder_.write("proc/self/status",
                "Name:\tsecret\nUid:\t7\t7\t7\t7\nCapEff:\t0000\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0");
  folder_.write("proc/self/mounts", "server:/home/somebody /home nfs rw 0 0\nserver:/root / nfs4 rw 0 0\n/dev/sda1 /\n");
  // Config space: at 0x100 an AER capability (id 1) that leads to the serial number (id 3) at 0x150.
  std::string config(4096, '\x11');
  config.replace(0x100, 4, std::string("\x01\x00\x01\x15", 4));
  config.replace(0x150, 4, std::string("\x03\x00\x01\x00", 4));
  folder_.write("sys/bus/pci/devices/0000:01:00.0/config", config);
  const Json captured = archive();
  EXPECT_EQ(captured["files"]["/proc/kallsyms"], "0000000000000000 t ib_register_peer_memory_client\t[ib_core]\n");
  EXPECT_EQ(captured["files"]["/proc/self/status"],
            "Uid:\t7\t7\t7\t7\nCapEff:\t0000\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0");
  EXPECT_EQ(captured["files"]["/proc/self/mounts"], "root / nfs4\n");
  config.replace(0x154, 8, std::string(8, '\0'));
  EXPECT_EQ(SystemFiles::of_archive(text_)->read("/sys/bus/pci/devices/0000:01:00.0/config").content, config);
  // A chain of capabilities in a circle, and one that leads out of a shorter space.
  config.replace(0x150, 4, std::string("\x02\x00\x01\x15", 4));
  folder_.write("sys/bus/pci/devices/0000:01:00.0/config", config);
  folder_.write("sys/bus/pci/devices/0000:02:00.0/config", config.substr(0, 0x152));
  EXPECT_EQ(archive()["files"].size(), 5U);
}

TEST_F(CaptureOfAFolder, ContentOfAnyBytesStaysAsItIs) {
  for (const std::string& content :
       {std::string("plain\n"), std::string("gr\xc3\xbc\xc3\x9f"), std::string("\xff"), std::string("\0", 1),
        std::string("\xed\xa0\x80"), std::string(511, '\0'), std::string(513, 'x'), std::string()}) {
    folder_.write("proc/cmdline", content);
    EXPECT_EQ(archive()["files"]["/proc/cmdline"], content);
    EXPECT_EQ(SystemFiles::of_archive(text_)->read("/proc/cmdline").content, content);
  }
}

// An archive as the source: root may list every folder that a test makes.
TEST(Capture, NamesTheFoldersThatCannotBeListed) {
  Json machine = small_archive();
  machine["folders"] = {"/sys/bus/pci/devices", "/sys/class/net"};
  machine["unreadable"] = {{"/sys/bus/pci/devices", "permission denied"},
                           {"/sys/devices/system/cpu", "permission denied"},
                           {"/sys/devices/system/cpu/online", "permission denied"},
                           {"/sys/kernel", "permission denied"}};
  const std::string text = write_archive(SystemFiles::of_archive(machine.dump()).value(), {}).value();
  const Json captured = document_of(text);
  for (const char* folder : {"/sys/bus/pci/devices", "/sys/devices/system/cpu", "/sys/kernel/iommu_groups"}) {
    EXPECT_EQ(captured["unreadable"].value(folder, ""), "permission denied") << captured["unreadable"].dump();
    EXPECT_EQ(SystemFiles::of_archive(text).value().list(folder).reason, "permission denied") << folder;
  }
  EXPECT_FALSE(captured["unreadable"].contains("/sys/class/net")) << captured["unreadable"].dump();
  EXPECT_EQ(SystemFiles::of_archive(text).value().facts("/sys/bus/pci/devices").kind, NodeKind::folder);
}

// What would be written could not be opened again.
TEST_F(CaptureOfAFolder, IsRefusedWhenItIsTooLarge) {
  folder_.write("proc/cmdline", std::string(5000, 'x'));
  const SystemFiles files = SystemFiles::of_folder(folder_.path()).value();
  const auto archive = write_archive(files, {});
  ASSERT_TRUE(archive) << archive.message();
  EXPECT_TRUE(write_archive(files, {}, archive->size()));
  const auto refused = write_archive(files, {}, archive->size() - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::not_supported) << refused.message();
  EXPECT_NE(refused.message().find("it would have " + std::to_string(archive->size()) + " bytes"), std::string::npos)
      << refused.message();
}

TEST(CapturePatterns, AreWellFormed) {
  ASSERT_FALSE(capture_patterns().empty());
  for (const CapturePattern& pattern : capture_patterns()) {
    EXPECT_TRUE(pattern.folder.starts_with("/")) << pattern.folder;
    EXPECT_TRUE(pattern.folder == "/" || !pattern.folder.ends_with("/")) << pattern.folder;
    EXPECT_FALSE(pattern.names.empty()) << pattern.folder;
    EXPECT_EQ(pattern.names.find('/'), std::string_view::npos) << pattern.names;
    // Folders above the patterns are never listed.
    EXPECT_FALSE(pattern.folder == "/" && pattern.names.find('*') != std::string_view::npos);
    EXPECT_FALSE(pattern.folder.starts_with("/*"));
  }
}

}  // namespace
}  // namespace gigabar
