// SPDX-License-Identifier: Apache-2.0
// Archives and folders that somebody made to hurt: each is refused as a bad file or examined in bounded time, and what is said of
// it is plain text.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "fuzz/small_machine.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"
#include "platform/system_archive.hpp"
#include "platform/system_files.hpp"
#include "support/tar_file.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// Far more than any takes, also with sanitizers on a busy machine; far less than "for ever".
constexpr std::chrono::seconds kEnough{60};

bool is_plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char letter) { return static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f; });
}

// Examines without probes, and looks at what came out.
void expect_sane_examination(const Machine& machine) {
  ExamineOptions options;
  options.with_probes = false;
  const auto begin = Clock::now();
  const auto examination = examine(machine, options);
  EXPECT_LT(Clock::now() - begin, kEnough);
  ASSERT_TRUE(examination.is_ok()) << examination.error().message();
  EXPECT_FALSE(examination->findings.empty());
  for (const Finding& finding : examination->findings) {
    EXPECT_NE(find_check(finding.check), nullptr) << finding.check;
    EXPECT_FALSE(finding.statement.empty()) << finding.check;
    EXPECT_TRUE(is_plain(finding.statement)) << finding.check << ": " << finding.statement;
    EXPECT_TRUE(is_plain(finding.subject)) << finding.check << ": " << finding.subject;
    EXPECT_TRUE(is_plain(finding.remedy)) << finding.check << ": " << finding.remedy;
    for (const Reading& reading : finding.readings) {
      EXPECT_TRUE(is_plain(reading.source)) << finding.check << ": " << reading.source;
      EXPECT_TRUE(is_plain(reading.value)) << finding.check << ": " << reading.value;
    }
    EXPECT_EQ(finding.statement.find("the check itself failed"), std::string::npos) << finding.check << ": " << finding.statement;
  }
}

class HostileMachine : public testing::Test {
 protected:
  std::string write(std::string_view content) const {
    folder_.write("machine.json", content);
    return folder_.path() + "/machine.json";
  }
  Result<Machine> open(std::string_view content) const { return Machine::open(write(content)); }
  Result<Machine> open(const Json& document) const { return open(std::string_view(document.dump())); }

  void expect_bad_file(std::string_view content, const std::string& what) const {
    const auto begin = Clock::now();
    const auto machine = open(content);
    EXPECT_LT(Clock::now() - begin, kEnough) << what;
    ASSERT_FALSE(machine.is_ok()) << what;
    EXPECT_EQ(machine.status(), Status::bad_file) << what << ": " << machine.error().message();
    EXPECT_TRUE(is_plain(machine.error().message())) << what << ": " << machine.error().message();
  }
  void expect_sane(const Json& document, const std::string& what) const {
    SCOPED_TRACE(what);
    const auto machine = open(document);
    ASSERT_TRUE(machine.is_ok()) << machine.error().message();
    expect_sane_examination(*machine);
  }

  test::TemporaryFolder folder_;
};

TEST_F(HostileMachine, TheSmallMachineItselfIsSane) {
  const auto machine = open(test::SmallMachine().document());
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  EXPECT_EQ(machine->remark(), "constructed, never ran");
  EXPECT_EQ(machine->files().link_name("/sys/class/infiniband/mlx5_0/device/driver"), "mlx5_core");
  expect_sane_examination(*machine);
}

TEST_F(HostileMachine, TruncatedArchives) {
  const std::string whole = test::SmallMachine().document().dump();
  for (std::size_t length = 0; length < whole.size(); length += whole.size() / 150 + 1) {
    expect_bad_file(std::string_view(whole).substr(0, length), "of length " + std::to_string(length));
  }
  expect_bad_file(std::string_view(whole).substr(0, whole.size() - 1), "without its last byte");
}

TEST_F(HostileMachine, DeepNesting) {
  for (const char* opening : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string deep;
    while (deep.size() < 4'000'000) deep += opening;
    expect_bad_file(deep, opening);
    expect_bad_file("{\"format\": \"gigabar-machine\", \"version\": 1, \"answers\": " + deep, opening);
    expect_bad_file("{\"format\": \"gigabar-machine\", \"version\": 1, \"files\": {\"/a\": " + deep, opening);
  }
}

TEST_F(HostileMachine, Noise) {
  std::mt19937_64 random(7);
  for (const std::size_t bytes : {1U, 100U, 10'000U, 1'000'000U}) {
    std::string noise(bytes, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    expect_bad_file(noise, std::to_string(bytes) + " bytes");
  }
  expect_bad_file(std::string(1'000'000, '\0'), "zeros");
  expect_bad_file(std::string(1'000'000, '"'), "quotes");
  expect_bad_file("\"" + std::string(1'000'000, '\\'), "backslashes");
}

TEST_F(HostileMachine, MoreValuesThanAnyMachineHas) {
  std::string many = R"({"format": "gigabar-machine", "version": 1, "files": {)";
  for (int i = 0; i < 1'100'000; ++i) many += "\"/" + std::to_string(i) + "\":\"\",";
  expect_bad_file(many + "\"/z\":\"\"}}", "files");
  std::string deep = R"({"format": "gigabar-machine", "version": 1, "files": {)";
  for (int i = 0; i < 25'000; ++i) {
    deep += (i == 0 ? "\"/" : ",\"/") + std::to_string(i);
    for (int level = 0; level < 60; ++level) deep += "/d";
    deep += "\":\"\"";
  }
  expect_bad_file(deep + "}}", "folders that follow from the paths");
}

// Each key of the format, and of the answers, with a value of every type.
TEST_F(HostileMachine, WrongTypes) {
  const Json good = test::SmallMachine().document();
  const std::vector<Json> values{nullptr,
                                 true,
                                 -1,
                                 5,
                                 1e300,
                                 UINT64_MAX,
                                 "text",
                                 std::string("\0\x1b[31m\n", 8),
                                 Json::array(),
                                 {1, "a"},
                                 Json::object(),
                                 {{"a", {{"b", {{"c", 1}}}}}}};
  std::size_t refused = 0;
  std::size_t taken = 0;
  const auto try_one = [&](const Json& document, const std::string& what) {
    const auto machine = open(document);
    machine.is_ok() ? ++taken : ++refused;
    if (!machine.is_ok()) {
      EXPECT_EQ(machine.status(), Status::bad_file) << what;
      EXPECT_TRUE(is_plain(machine.error().message())) << what << ": " << machine.error().message();
    } else if (taken % 64 == 1) {
      SCOPED_TRACE(what);
      expect_sane_examination(*machine);
    }
  };
  const auto flat = good["answers"].flatten();
  for (const Json& value : values) {
    for (const auto& [key, unused] : good.items()) {
      Json document = good;
      document[key] = value;
      try_one(document, key + " = " + value.dump());
    }
    for (const auto& [pointer, unused] : flat.items()) {
      Json document = good;
      document["answers"][Json::json_pointer(pointer)] = value;
      try_one(document, pointer + " = " + value.dump());
    }
  }
  EXPECT_GT(refused, 100U);
  EXPECT_GT(taken, 10U);
}

TEST_F(HostileMachine, PathsThatLeadOut) {
  for (const char* path : {"/../etc/passwd", "/sys/../../etc/passwd", "etc/passwd", "/sys//x", "/sys/.", "//sys/x", "/sys/x/"}) {
    Json document = test::SmallMachine().document();
    document["files"][path] = "x";
    expect_bad_file(document.dump(), path);
  }
}

TEST_F(HostileMachine, LinksThatLeadOutOrRound) {
  Json document = test::SmallMachine().document();
  for (auto& [path, target] : document["links"].items()) target = path;
  expect_sane(document, "each to itself");
  document = test::SmallMachine().document();
  for (auto& [path, target] : document["links"].items()) target = "/";
  expect_sane(document, "each to the root");
  for (auto& [path, target] : document["links"].items()) target = "../../../../../../../../../../etc";
  expect_sane(document, "each to outside");
  for (auto& [path, target] : document["links"].items()) target = "/sys/bus/pci/devices";
  expect_sane(document, "each to the folder of devices");
  document = test::SmallMachine().document();
  for (int i = 0; i < 1000; ++i) {
    document["links"]["/sys/bus/pci/devices/loop" + std::to_string(i)] = "loop" + std::to_string((i + 1) % 1000);
    document["links"]["/sys/class/net/eth" + std::to_string(i + 1)] = "../net";
    document["links"]["/sys/class/infiniband/x" + std::to_string(i)] = "../infiniband";
  }
  expect_sane(document, "circles");
}

// What a file of /sys or /proc would never hold, in each of them.
TEST_F(HostileMachine, ContentNobodyWrote) {
  std::mt19937_64 random(11);
  std::string noise(5000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  std::string line_noise;
  for (int i = 0; i < 1000; ++i) line_noise += ": ,-\n";
  const std::vector<std::pair<std::string, std::string>> contents{
      {"nothing", ""},
      {"a new line", "\n"},
      {"18446744073709551616", "18446744073709551616\n"},
      {"-9223372036854775808", "-9223372036854775808\n"},
      {"4294967295", "4294967295\n"},
      {"a list without end", "0-4294967295\n"},
      {"a backward list", "9-0,5-,-,--,,\n"},
      {"ones", std::string(4000, 'f')},
      {"a mask", "ffffffff,ffffffff,ffffffff,ffffffff,ffffffff,ffffffff\n"},
      {"zeros", std::string(5000, '\0')},
      {"colours", "\x1b[31mred\x1b[0m\a\r\n"},
      {"a number with a tail", "1e999 nan inf 0x\n"},
      {"punctuation", line_noise}};
  for (const auto& [what, content] : contents) {
    Json document = test::SmallMachine().document();
    for (auto& [path, value] : document["files"].items()) value = content;
    expect_sane(document, what);
  }
  Json document = test::SmallMachine().document();
  for (auto& [path, value] : document["files"].items()) value = {{"base64", std::string(4000, '/')}};
  expect_sane(document, "ones in every bit");
  document = test::SmallMachine().document();
  for (auto& [path, value] : document["files"].items()) document["unreadable"][path] = "permission\x1b denied\n";
  document["files"] = Json::object();
  expect_sane(document, "nothing is readable");
}

TEST_F(HostileMachine, NamesNobodyGave) {
  Json document = test::SmallMachine().document();
  for (const char* name :
       {"\x1b[2J", "zzzz:zz:zz.z", "0000:03:00.9", "ffff:ff:1f.7", "0000:03:00.0x", "-1", " ", "\xc3\xa9", "%s%n", "$(id)"}) {
    if (std::string(name).front() == '\x1b') continue;  // refused, see below
    for (const char* folder : {"/sys/bus/pci/devices/", "/sys/class/net/", "/sys/class/infiniband/", "/sys/devices/system/cpu/cpu",
                               "/sys/devices/system/node/node", "/proc/driver/nvidia/gpus/", "/sys/kernel/iommu_groups/",
                               "/sys/class/infiniband/mlx5_0x/ports/", "/dev/nvidia", "/etc/libibverbs.d/"}) {
      document["files"][std::string(folder) + name + "/vendor"] = "0x10de\n";
      document["files"][std::string(folder) + name + "/class"] = "0x030200\n";
    }
  }
  expect_sane(document, "names");
  document["files"]["/sys/class/net/\x1b[2J/mtu"] = "9000";
  expect_bad_file(document.dump(), "a name with control characters");
}

TEST_F(HostileMachine, ManyDevices) {
  Json document = test::SmallMachine().document();
  for (unsigned i = 0; i < 256; ++i) {
    char address[32] = {};
    std::snprintf(address, sizeof address, "%04x:%02x:%02x.%x", 1 + i / 2048, i / 8 % 256, 0U, i % 8);
    const std::string path = "/sys/devices/pci0001:00/" + std::string(address);
    document["links"]["/sys/bus/pci/devices/" + std::string(address)] = path;
    document["files"][path + "/vendor"] = i % 2 == 0 ? "0x10de\n" : "0x15b3\n";
    document["files"][path + "/class"] = i % 2 == 0 ? "0x030200\n" : "0x020000\n";
    document["files"][path + "/device"] = "0x2330\n";
  }
  expect_sane(document, "128 GPUs and 128 adapters");
}

TEST_F(HostileMachine, ATreeOnDisk) {
  const test::TemporaryFolder root;
  const Json document = test::SmallMachine().document();
  for (const auto& [path, value] : document["files"].items())
    root.write(path.substr(1), value.is_string() ? value.get<std::string>() : "");
  for (const auto& [path, target] : document["links"].items()) {
    fs::create_directories(fs::path(root.path() + path).parent_path());
    fs::create_symlink(target.get<std::string>(), root.path() + path);
  }
  const auto examine_tree = [&root](const char* what) {
    SCOPED_TRACE(what);
    const auto machine = Machine::open(root.path());
    ASSERT_TRUE(machine.is_ok()) << machine.error().message();
    expect_sane_examination(*machine);
  };
  examine_tree("as it is");

  // Links to this machine's own files, which are no part of the tree.
  fs::create_directories(root.path() + "/etc");
  for (const char* path : {"/proc/cmdline", "/proc/cpuinfo", "/sys/module/nvidia/version", "/sys/class/infiniband/mlx5_0"}) {
    fs::remove_all(root.path() + path);
    fs::create_symlink("/proc/self/environ", root.path() + path);
  }
  ::setenv("GIGABAR_TEST_SECRET", "secret-of-this-process", 1);
  examine_tree("links to outside");
  const auto machine = Machine::open(root.path());
  EXPECT_FALSE(machine->files().read("/proc/cmdline").is_present());

  // Files that never end, or never begin.
  for (const char* path : {"/proc/cmdline", "/sys/devices/system/cpu/online", "/proc/driver/nvidia/version", "/proc/meminfo"}) {
    fs::remove(root.path() + path);
    ASSERT_EQ(::mkfifo((root.path() + path).c_str(), 0666), 0);
  }
  for (const char* path : {"/proc/cpuinfo", "/proc/self/status", "/sys/devices/system/node/online", "/proc/kallsyms"}) {
    fs::remove(root.path() + path);
    root.write(path + 1, "");
    ASSERT_EQ(::truncate((root.path() + path).c_str(), off_t{1} << 42), 0);
  }
  fs::create_symlink("net", root.path() + "/sys/class/net/net");
  fs::create_symlink("..", root.path() + "/sys/bus/pci/devices/up");
  fs::create_symlink("/", root.path() + "/sys/class/net/root");
  root.write("sys/class/net/\x1b[31m\xff\n/mtu", "9000\n");
  examine_tree("FIFOs, files without end, circles, names of bytes");
}

// ---- tar files ----

class HostileTar : public HostileMachine {
 protected:
  // With what makes it an archive, behind `entries`.
  static std::string archive(test::TarFile entries) {
    return entries.file("gigabar-machine.json", R"({"format": "gigabar-machine", "version": 1, "remark": "by hand"})").take();
  }
  Result<Machine> open_tar(test::TarFile entries) const { return open(std::string_view(archive(std::move(entries)))); }
  void expect_refused(test::TarFile entries, const std::string& cause) const {
    const auto machine = open_tar(std::move(entries));
    ASSERT_FALSE(machine.is_ok()) << cause;
    EXPECT_EQ(machine.status(), Status::bad_file) << machine.error().message();
    EXPECT_NE(machine.error().message().find(cause), std::string::npos) << machine.error().message();
    EXPECT_TRUE(is_plain(machine.error().message())) << machine.error().message();
  }
};

TEST_F(HostileTar, OneByHandIsRead) {
  const auto machine = open_tar(test::TarFile().file("proc/cmdline", "quiet").folder("./sys/class/").link("sys/l", "../proc"));
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  EXPECT_EQ(machine->remark(), "by hand");
  EXPECT_EQ(machine->files().word("/sys/l/cmdline"), "quiet");
  EXPECT_TRUE(machine->files().exists("/sys/class"));
  expect_sane_examination(*machine);
}

TEST_F(HostileTar, PathsThatLeadOut) {
  for (const char* path :
       {"/etc/passwd", "../etc/passwd", "sys/../../etc/passwd", "sys//x", "sys/./x", "..", "sys/\x1b[2J", "./../x"})
    expect_refused(test::TarFile().file(path, "x"), *path == '/' ? "has an absolute path" : "has a part that is '.' or '..'");
  std::string deep;
  for (int i = 0; i < 49; ++i) deep += "d/";
  expect_refused(test::TarFile().entry("././@LongLink", 'L', 131).content(deep + deep.substr(0, 32) + "e").file("x", ""),
                 "'d/d/d/");
}

TEST_F(HostileTar, LinksThatLeadOutOrRound) {
  // What a symbolic link says is followed inside of the archive only.
  const auto machine = open_tar(test::TarFile()
                                    .link("proc/cmdline", "/proc/self/environ")
                                    .link("proc/version", "../../../../../../proc/version")
                                    .link("sys/round", "round"));
  ASSERT_TRUE(machine.is_ok()) << machine.error().message();
  for (const char* path : {"/proc/cmdline", "/proc/version", "/sys/round"}) EXPECT_FALSE(machine->files().read(path).is_present());
  expect_refused(test::TarFile().file("a", "x").entry("b", '1', 0, "a"), "'b': is a hard link");
  expect_refused(test::TarFile().entry("b", '1', 0, "/etc/passwd"), "'b': is a hard link");
  expect_refused(test::TarFile().link("a", "/etc").file("a/passwd", "x"), "'a/passwd': lies below something that is not a folder");
  expect_refused(test::TarFile().link("a", "b\nc"), "'a': is no target of a link");
}

TEST_F(HostileTar, EntriesThatNoCaptureHas) {
  for (const char type : {'3', '4', '6'}) expect_refused(test::TarFile().entry("dev/x", type, 0), "'dev/x': is neither a file nor");
  expect_refused(test::TarFile().file("a", "x").file("a", "y"), "'a': is there twice");
  expect_refused(test::TarFile().file("a", "x").folder("a"), "'a': is there twice");
}

TEST_F(HostileTar, SizesBeyondTheFile) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, std::uint64_t{1} << 62, UINT64_MAX})
    expect_refused(test::TarFile().entry("proc/cmdline", '0', bytes), "");
  std::string sparse = test::TarFile().entry("proc/cmdline", 'S', 1).take().substr(0, 512);
  sparse.replace(386, 24,
                 std::string_view("\x80\0\0\0\0\0\x01\0\0\0\0\0"
                                  "00000000001\0",
                                  24));
  sparse.replace(483, 12, std::string_view("\x80\0\0\0\0\0\x01\0\0\0\0\x01", 12));
  expect_refused(test::TarFile().block(sparse).content("x"), "'proc/cmdline': is a sparse file");
}

TEST_F(HostileTar, FoldersWithoutEnd) {
  std::string below;
  for (int i = 0; i < 45; ++i) below += "/d";
  test::TarFile many;
  for (int i = 0; i < 12'000; ++i) many.folder(std::to_string(i) + below);
  expect_refused(std::move(many), "is one file too many");
}

TEST_F(HostileTar, TruncatedArchives) {
  const std::string whole =
      archive(test::TarFile().file("proc/cmdline", std::string(1500, 'x')).link("a", "b").folder("sys/class"));
  // Of the two empty blocks at the end, nothing needs to be there.
  for (std::size_t length = 0; length < whole.size() - 1024; length += 128)
    expect_bad_file(std::string_view(whole).substr(0, length), "of length " + std::to_string(length));
  EXPECT_TRUE(open(std::string_view(whole).substr(0, whole.size() - 1024)).is_ok());
}

TEST_F(HostileTar, WithoutItsDocument) {
  expect_bad_file(test::TarFile().file("proc/cmdline", "x").take(), "no document");
  for (const char* document :
       {"", "{", "[]", R"({"format": "other", "version": 1})", R"({"format": "gigabar-machine", "version": 2})",
        R"({"format": "gigabar-machine", "version": 1, "devices": {"/../x": {}}})"})
    expect_bad_file(test::TarFile().file("gigabar-machine.json", document).take(), document);
  expect_refused(test::TarFile().file("gigabar-answers.json", R"({"gpus": 5})"), "gpus");
}

TEST_F(HostileTar, ItsDocumentIsTheLastFileAndThereOnce) {
  constexpr const char* kDocument = R"({"format": "gigabar-machine", "version": 1})";
  expect_refused(test::TarFile().file("gigabar-machine.json", kDocument), "is there twice");
  expect_refused(test::TarFile().file("gigabar-machine.json", kDocument).file("proc/cmdline", "x"), "is not the last entry");
  expect_bad_file(test::TarFile().link("gigabar-machine.json", kDocument).take(), "a link");
  expect_refused(test::TarFile().link("gigabar-answers.json", "{}"), "'gigabar-answers.json': is no file");
  expect_refused(test::TarFile().file("gigabar-answers.json", "{}").file("gigabar-answers.json", "{}"), "is there twice");
}

TEST_F(HostileTar, WhatIsNoCaptureSaysSo) {
  for (const std::string_view content :
       {std::string_view("\x1f\x8b\x08\0 compressed", 16), std::string_view("# A page"), std::string_view()}) {
    const auto machine = open(content);
    ASSERT_FALSE(machine.is_ok());
    EXPECT_NE(machine.error().message().find("neither a tar file nor JSON; unpack it where it is compressed"), std::string::npos)
        << machine.error().message();
  }
}

TEST_F(HostileTar, NoiseWithTheMagic) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 50; ++i) {
    std::string noise(20'480, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    expect_bad_file(noise.replace(257, 6, "ustar "), "noise");
    test::TarFile damaged;
    damaged.block(noise.substr(0, 512));  // with a good checksum
    expect_bad_file(damaged.take(), "a header of noise");
  }
}

}  // namespace
}  // namespace gigabar
