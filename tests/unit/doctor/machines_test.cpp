// SPDX-License-Identifier: Apache-2.0
// Constructed machines (tests/sysroots): what topology and doctor say of each, line by line, and that it does not matter whether
// they are given as an archive, as a folder, or as an archive of what a capture would have kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/topology.hpp"
#include "platform/system_archive.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

namespace fs = std::filesystem;

const fs::path kArchives = GIGABAR_SYSROOTS;           // made by tests/sysroots/build.py
const fs::path kExpected = GIGABAR_SYSROOTS_EXPECTED;  // in the source tree
constexpr const char* kTopologySuffix = ".topology.txt";

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path << " cannot be opened";
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

void write(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << content;
  ASSERT_TRUE(file.flush()) << path << " cannot be written";
}

// The machines are the archives: one without expected verdicts fails.
std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kArchives)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Lines of an expectation without remarks.
std::vector<std::string> expected_lines(const std::string& file_name) {
  std::istringstream content(content_of(kExpected / file_name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(content, line);) {
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  return lines;
}

std::string line_of(const Finding& finding) {
  std::string line(name_of(finding.verdict));
  line += " " + finding.check;
  if (!finding.subject.empty()) line += " " + finding.subject;
  return line;
}

std::vector<std::string> lines_of(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  lines.reserve(findings.size());
  for (const Finding& finding : findings) lines.push_back(line_of(finding));
  return lines;
}

// What the program said behind a line, for a reader of the difference.
std::string explanation(const std::vector<Finding>& findings, const std::string& line) {
  std::string text;
  for (const Finding& finding : findings) {
    if (line_of(finding) != line) continue;
    text += "\n        " + finding.statement;
    for (const Reading& reading : finding.readings) text += "\n          " + reading.source + " = " + reading.value;
  }
  return text;
}

// Empty when both have the same lines in the same order.
std::string difference(const std::vector<std::string>& expected, const std::vector<std::string>& actual,
                       const std::vector<Finding>& findings = {}) {
  if (expected == actual) return {};
  std::map<std::string, int> counts;
  for (const std::string& line : expected) ++counts[line];
  for (const std::string& line : actual) --counts[line];
  std::string text;
  for (const auto& [line, count] : counts) {
    if (count > 0) text += "\n  - " + line + "   (expected, not said)";
    if (count < 0) text += "\n  + " + line + "   (said, not expected)" + explanation(findings, line);
  }
  return text.empty() ? "\n  the same lines in another order" : text;
}

void write_for_review(const std::string& file_name, const std::vector<std::string>& lines) {
  const char* const folder = std::getenv("GIGABAR_WRITE_EXPECTED");
  if (folder == nullptr) return;
  std::string content;
  for (const std::string& line : lines) content += line + "\n";
  write(fs::path(folder) / file_name, content);
}

Examination examine_without_probes(const Machine& machine) {
  ExamineOptions options;
  options.with_probes = false;
  Result<Examination> examination = examine(machine, options);
  EXPECT_TRUE(examination) << examination.error().message();
  return examination ? std::move(*examination) : Examination{};
}

Machine opened(const fs::path& path) {
  Result<Machine> machine = Machine::open(path.string());
  EXPECT_TRUE(machine) << machine.error().message();
  return machine ? *machine : Machine::here();
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(3);
  text << value;
  return std::move(text).str();
}

std::string gpu_line(const Topology& topology, int index) {
  const Gpu& gpu = topology.gpus[static_cast<std::size_t>(index)];
  std::string line =
      "GPU " + gpu.address.to_string() + " node " + std::to_string(gpu.numa_node) + (gpu.is_coherent ? " coherent" : "");
  line += " | NICs:";
  for (int other = 0; other < static_cast<int>(topology.nics.size()); ++other) {
    const Route route = route_between(topology, {Endpoint::Kind::gpu, index}, {Endpoint::Kind::nic, other});
    line += " " + short_name(route.relation, route.nvlink_count);
  }
  line += " | GPUs:";
  for (int other = 0; other < static_cast<int>(topology.gpus.size()); ++other) {
    const Route route = route_between(topology, {Endpoint::Kind::gpu, index}, {Endpoint::Kind::gpu, other});
    line += " " + short_name(route.relation, route.nvlink_count);
  }
  return line;
}

std::string nearest_line(const Topology& topology, int index) {
  std::string line = "nearest to " + topology.gpus[static_cast<std::size_t>(index)].address.to_string() + ":";
  const std::vector<int> nics = nearest_nics(topology, index);
  for (const int nic : nics) line += " " + topology.nics[static_cast<std::size_t>(nic)].name;
  if (nics.empty()) return line + " none";
  const Route route = route_between(topology, {Endpoint::Kind::gpu, index}, {Endpoint::Kind::nic, nics.front()});
  line += " | " + (route.gb_per_s ? number(*route.gb_per_s) : "?") + " GB/s, " + route.bottleneck;
  return line;
}

// Facts of the topology, a line for each NUMA node, NIC and GPU.
std::vector<std::string> topology_lines(const Topology& topology) {
  std::vector<std::string> lines;
  for (const NumaNode& node : topology.numa_nodes) {
    lines.push_back("node " + std::to_string(node.index) + " package " + std::to_string(node.package) + " with " +
                    std::to_string(node.cpus.size()) + " CPUs and " + std::to_string(node.memory_bytes >> 30) + " GiB");
  }
  for (const Nic& nic : topology.nics) {
    lines.push_back("NIC " + nic.name + " of " + nic.driver + " node " + std::to_string(nic.numa_node) + " " +
                    number(nic.rate_gbit_per_s()) + " Gb/s");
  }
  for (int index = 0; index < static_cast<int>(topology.gpus.size()); ++index) lines.push_back(gpu_line(topology, index));
  for (int index = 0; index < static_cast<int>(topology.gpus.size()); ++index) lines.push_back(nearest_line(topology, index));
  for (const std::string& note : topology.notes) lines.push_back("note " + note);
  return lines;
}

std::string bytes_of_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned buffer = 0;
  int bits = 0;
  for (const char letter : text) {
    const std::size_t value = letters.find(letter);
    if (value == std::string::npos) break;
    buffer = (buffer << 6 | static_cast<unsigned>(value)) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(buffer >> bits & 0xff);
    }
  }
  return bytes;
}

// Files, links, folders and answers of an archive as a folder; device nodes cannot be made without privileges.
void unpack(const nlohmann::json& archive, const fs::path& root) {
  for (const auto& [path, value] : archive.at("files").items()) {
    write(root.string() + path,
          value.is_string() ? value.get<std::string>() : bytes_of_base64(value.at("base64").get<std::string>()));
  }
  for (const auto& [path, target] : archive.at("links").items()) {
    fs::create_directories(fs::path(root.string() + path).parent_path());
    fs::create_symlink(target.get<std::string>(), root.string() + path);
  }
  for (const auto& folder : archive.at("folders")) fs::create_directories(root.string() + folder.get<std::string>());
  write(root / "gigabar-answers.json", archive.at("answers").dump());
}

class ConstructedMachine : public testing::TestWithParam<std::string> {
 protected:
  fs::path archive() const { return kArchives / (GetParam() + ".json"); }
};

TEST_P(ConstructedMachine, gets_the_expected_verdicts) {
  const Machine machine = opened(archive());
  EXPECT_FALSE(machine.is_live());
  const Examination examination = examine_without_probes(machine);
  const std::vector<std::string> lines = lines_of(examination.findings);
  write_for_review(GetParam() + ".txt", lines);
  const std::string wrong = difference(expected_lines(GetParam() + ".txt"), lines, examination.findings);
  EXPECT_TRUE(wrong.empty()) << GetParam() << ":" << wrong;
}

TEST_P(ConstructedMachine, has_the_expected_topology) {
  const Result<Topology> topology = discover_topology(opened(archive()));
  ASSERT_TRUE(topology) << topology.error().message();
  const std::vector<std::string> lines = topology_lines(*topology);
  write_for_review(GetParam() + kTopologySuffix, lines);
  const std::string wrong = difference(expected_lines(GetParam() + kTopologySuffix), lines);
  EXPECT_TRUE(wrong.empty()) << GetParam() << ":" << wrong;
}

TEST_P(ConstructedMachine, says_whether_it_ever_ran) {
  const std::string remark = opened(archive()).remark();
  if (GetParam().starts_with("captured_")) {
    EXPECT_NE(remark.find("Captured"), std::string::npos) << remark;
    return;
  }
  EXPECT_NE(remark.find("Constructed"), std::string::npos) << remark;
  EXPECT_NE(remark.find("never ran"), std::string::npos) << remark;
}

// Processor time: other tests run beside this one.
TEST_P(ConstructedMachine, opens_quickly) {
  const std::clock_t begin = std::clock();
  opened(archive());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, GIGABAR_MOST_OPEN_SECONDS);
}

// Whatever a check reads must be among what a capture keeps, or it would judge a captured machine differently from a live one.
TEST_P(ConstructedMachine, loses_nothing_that_matters_in_a_capture) {
  const Machine machine = opened(archive());
  const ArchiveHead head{machine.remark(), "2025-11-03T00:00:00Z", machine.answers()};
  const test::TemporaryFolder folder;
  write(fs::path(folder.path()) / "again.tar", write_archive(machine.files(), head).value());
  const Examination again = examine_without_probes(opened(fs::path(folder.path()) / "again.tar"));
  const Examination first = examine_without_probes(machine);
  const std::string wrong = difference(lines_of(first.findings), lines_of(again.findings), again.findings);
  EXPECT_TRUE(wrong.empty()) << GetParam() << ":" << wrong;
  EXPECT_EQ(topology_lines(first.topology), topology_lines(again.topology));
}

// A verdict that is no good news without a way out helps nobody.
TEST_P(ConstructedMachine, gives_a_remedy_for_whatever_is_wrong) {
  for (const Finding& finding : examine_without_probes(opened(archive())).findings) {
    const bool is_fine = finding.verdict == Verdict::pass || finding.verdict == Verdict::skip;
    EXPECT_EQ(finding.remedy.empty(), is_fine) << line_of(finding) << ": " << finding.statement;
    EXPECT_FALSE(finding.statement.empty()) << line_of(finding);
  }
}

INSTANTIATE_TEST_SUITE_P(Sysroots, ConstructedMachine, testing::ValuesIn(machine_names()),
                         [](const testing::TestParamInfo<std::string>& machine) { return machine.param; });

class UnpackedMachine : public testing::TestWithParam<std::string> {};

// Both without device nodes and without the files that the one who captured could not read: root can read whatever a test makes.
TEST_P(UnpackedMachine, gets_the_same_verdicts_as_its_archive) {
  nlohmann::json archive = nlohmann::json::parse(content_of(kArchives / (GetParam() + ".json")));
  archive["devices"] = nlohmann::json::object();
  archive["unreadable"] = nlohmann::json::object();
  const test::TemporaryFolder folder;
  unpack(archive, fs::path(folder.path()) / "tree");
  write(fs::path(folder.path()) / "packed.json", archive.dump());
  const Examination of_folder = examine_without_probes(opened(fs::path(folder.path()) / "tree"));
  const Examination of_archive = examine_without_probes(opened(fs::path(folder.path()) / "packed.json"));
  EXPECT_GT(of_archive.findings.size(), 30U);
  const std::string wrong = difference(lines_of(of_archive.findings), lines_of(of_folder.findings), of_folder.findings);
  EXPECT_TRUE(wrong.empty()) << GetParam() << ", archive against folder:" << wrong;
  EXPECT_EQ(topology_lines(of_archive.topology), topology_lines(of_folder.topology));
}

INSTANTIATE_TEST_SUITE_P(Sysroots, UnpackedMachine, testing::Values("acs_redirect", "grace_hopper"),
                         [](const testing::TestParamInfo<std::string>& machine) { return machine.param; });

TEST(ConstructedMachines, are_at_least_ten) { EXPECT_GE(machine_names().size(), 10U); }

}  // namespace
}  // namespace gigabar
