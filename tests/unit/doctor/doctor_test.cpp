// SPDX-License-Identifier: Apache-2.0
// The doctor as a whole: the table of checks, findings, symptoms, and examine() over small machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/check_ids.hpp"
#include "doctor/check.hpp"
#include "support/temporary_folder.hpp"
#include "unit/doctor/patient.hpp"

namespace gigabar {
namespace {

using doctor::Findings;
using test::to_text;

// ---- the table

TEST(Checks, HaveUniqueIds) {
  std::set<std::string_view> ids;
  for (const CheckInfo& check : checks()) EXPECT_TRUE(ids.insert(check.id).second) << check.id;
  EXPECT_EQ(ids.size(), checks().size());
  EXPECT_FALSE(ids.empty());
}

TEST(Checks, AreThoseThatErrorsOfOtherRoomsName) {
  for (const std::string_view id : check_id::kAll) EXPECT_NE(find_check(id), nullptr) << id;
}

TEST(Checks, HaveCompletePages) {
  for (const CheckInfo& check : checks()) {
    SCOPED_TRACE(check.id);
    for (const std::string_view part :
         {check.id, check.title, check.why, check.what, check.impact, check.confirm, check.remedy, check.source}) {
      EXPECT_FALSE(part.empty());
      EXPECT_EQ(part.find_first_of("\t\r"), std::string_view::npos) << part;
    }
    EXPECT_EQ(check.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._"), std::string_view::npos);
    EXPECT_EQ(check.title.find('\n'), std::string_view::npos);
    EXPECT_TRUE(check.why.ends_with('.')) << check.why;
    EXPECT_EQ(check.is_probe, check.id.starts_with("probe."));
  }
}

TEST(Checks, AreFoundById) {
  for (const CheckInfo& check : checks()) EXPECT_EQ(find_check(check.id), &check);
  for (const std::string_view other : {"", "rdma", "rdma.", "RDMA.GID", "rdma.gid ", "no.such"})
    EXPECT_EQ(find_check(other), nullptr) << other;
}

TEST(Checks, HoldThoseThatUsersAreSentTo) {
  for (const std::string_view id :
       {"drv.loaded", "gpu.rdma", "pci.acs", "iommu.mode", "rdma.dev", "rdma.counters", "lim.memlock", "huge", "probe.loop"}) {
    EXPECT_NE(find_check(id), nullptr) << id;
  }
}

TEST(Verdicts, HaveNames) {
  EXPECT_EQ(name_of(Verdict::pass), "PASS");
  EXPECT_EQ(name_of(Verdict::warn), "WARN");
  EXPECT_EQ(name_of(Verdict::fail), "FAIL");
  EXPECT_EQ(name_of(Verdict::unknown), "UNKNOWN");
  EXPECT_EQ(name_of(Verdict::skip), "SKIP");
}

// ---- findings

SystemFiles files_of(const std::string& json) {
  Result<SystemFiles> files = SystemFiles::of_archive(json);
  if (!files) throw std::runtime_error(files.error().message());
  return std::move(*files);
}

TEST(FindingsTest, KeepReadingsForTheNextFinding) {
  Findings findings("a.check");
  findings.reading("first", " one \n");
  findings.reading("second", "two\nlines");
  findings.say("it", doctor::pass("is well"));
  findings.reading("third", "three");
  findings.say("that", doctor::fail("is not", "mend it", true));
  findings.say("other", doctor::warn("is slow", "speed it up"));
  const std::vector<Finding> all = findings.take();
  ASSERT_EQ(all.size(), 3u);
  ASSERT_EQ(all[0].readings.size(), 2u);
  EXPECT_EQ(all[0].check, "a.check");
  EXPECT_EQ(all[0].subject, "it");
  EXPECT_EQ(all[0].verdict, Verdict::pass);
  EXPECT_EQ(all[0].statement, "is well");
  EXPECT_EQ(all[0].remedy, "");
  EXPECT_EQ(all[0].readings[0].source, "first");
  EXPECT_EQ(all[0].readings[0].value, "one");
  EXPECT_EQ(all[0].readings[1].value, "two lines");
  ASSERT_EQ(all[1].readings.size(), 1u);
  EXPECT_EQ(all[1].readings[0].source, "third");
  EXPECT_EQ(all[1].verdict, Verdict::fail);
  EXPECT_EQ(all[1].remedy, "mend it");
  EXPECT_TRUE(all[1].needs_reboot);
  EXPECT_TRUE(all[2].readings.empty());
  EXPECT_EQ(all[2].verdict, Verdict::warn);
  EXPECT_FALSE(all[2].needs_reboot);
}

TEST(FindingsTest, SayThatACheckSaidNothing) {
  Findings findings("a.check");
  findings.reading("first", "one");
  const std::vector<Finding> all = findings.take();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].verdict, Verdict::unknown);
  EXPECT_NE(all[0].statement.find("no verdict"), std::string::npos);
  EXPECT_FALSE(all[0].remedy.empty());
  EXPECT_EQ(all[0].readings.size(), 1u);
}

TEST(FindingsTest, RememberWhyAFileCouldNotBeRead) {
  const SystemFiles files = files_of(
      R"({"format": "gigabar-machine", "version": 1, "files": {"/proc/a": "value\n"}, "unreadable": {"/proc/b": "permission denied"}})");
  const DriverAnswers answers;
  const Topology topology;
  const doctor::Patient patient{files, answers, topology, false};
  Findings findings("a.check");
  EXPECT_EQ(findings.read(patient, "/proc/a").content, "value\n");
  EXPECT_EQ(findings.read(patient, "/proc/b").state, FileState::unreadable);
  EXPECT_EQ(findings.read(patient, "/proc/c").state, FileState::missing);
  findings.say({}, doctor::skip("enough"));
  const std::vector<Finding> all = findings.take();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].verdict, Verdict::skip);
  ASSERT_EQ(all[0].readings.size(), 3u);
  EXPECT_EQ(all[0].readings[0].source, "/proc/a");
  EXPECT_EQ(all[0].readings[0].value, "value");
  EXPECT_EQ(all[0].readings[1].value, "permission denied");
  EXPECT_EQ(all[0].readings[2].value, "missing");
}

TEST(FindingsTest, JoinWhatIsAlikeAndPutTheGravestFirst) {
  Findings findings("a.check");
  findings.reading("of", "first");
  findings.say("first", doctor::pass("is well"));
  findings.reading("of", "second");
  findings.say("second", doctor::fail("is broken", "mend it"));
  findings.reading("of", "first");
  findings.reading("of", "third");
  findings.say("third", doctor::pass("is well"));
  findings.join_alike("nothing is there");
  const std::vector<Finding> all = findings.take();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].subject, "second");
  EXPECT_EQ(all[1].subject, "first, third");
  ASSERT_EQ(all[1].readings.size(), 2u) << "the same reading is there once";
  EXPECT_EQ(all[1].readings[1].value, "third");
  Findings none("a.check");
  none.say({}, none.join_alike("nothing is there"));
  EXPECT_EQ(to_text(none.take()), "SKIP a.check : nothing is there | \n");
}

TEST(FindingsTest, JoinNamesEightSubjectsAndCountsTheOthers) {
  Findings findings("a.check");
  for (int i = 0; i < 10; ++i) findings.say(std::to_string(i), doctor::pass("is well"));
  findings.join_alike({});
  EXPECT_EQ(findings.take().at(0).subject, "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(FindingsTest, JoinGpusOnlyWhenAllSayTheSame) {
  Findings findings("a.check");
  findings.say({}, doctor::fail("the machine is broken", "mend it"));
  for (const char* const gpu : {"GPU a", "GPU b"}) {
    findings.reading("of", gpu);
    findings.say(gpu, doctor::warn("is slow", "speed it up"));
  }
  findings.join_gpus();
  EXPECT_EQ(findings.count(), 2u);
  findings.say("GPU c", doctor::warn("is slower", "speed it up"));
  findings.join_gpus();
  const std::vector<Finding> all = findings.take();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].subject, "");
  EXPECT_EQ(all[1].subject, "all 2 GPUs");
  EXPECT_EQ(all[1].readings.size(), 2u);
  EXPECT_EQ(all[2].subject, "GPU c");
}

TEST(Words, AreTakenOutOfFiles) {
  const std::string status = "Name:\tbash\nCapEff:\t00ff\nMax locked memory         65536     bytes\nCapEff:\tlater\n";
  EXPECT_EQ(doctor::field_of(status, "CapEff"), "00ff");
  EXPECT_EQ(doctor::field_of(status, "Max locked memory"), "65536     bytes");
  EXPECT_EQ(doctor::field_of(status, "locked"), std::nullopt) << "it does not begin a line";
  EXPECT_EQ(doctor::version_of("6.1.0-28-amd64"), (doctor::Version{6, 1}));
  EXPECT_LT(*doctor::version_of("2.4.9"), (doctor::Version{2, 5}));
  for (const char* const word : {"", "6", "6.", "x.1", ".5"}) EXPECT_FALSE(doctor::version_of(word)) << word;
}

TEST(Words, BecomeStatements) {
  EXPECT_EQ(doctor::list_text({}), "");
  EXPECT_EQ(doctor::list_text({"a"}), "a");
  EXPECT_EQ(doctor::list_text({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(doctor::rounded(15.75, 1), "15.8");
  EXPECT_EQ(doctor::rounded(std::numeric_limits<double>::infinity(), 1), "0.0");
  EXPECT_EQ(doctor::rounded(1e300, 2).size(), 304u);
  EXPECT_EQ(doctor::size_text(std::uint64_t{11} << 19U), "5.5 MiB");
  EXPECT_EQ(doctor::size_text(std::uint64_t{64} << 30U), "64 GiB");
}

TEST(Printable, IsOneShortLineOfText) {
  EXPECT_EQ(doctor::printable("  a b\t\r\n"), "a b");
  EXPECT_EQ(doctor::printable("a\nb\x1b[31m"), "a b [31m");
  EXPECT_EQ(doctor::printable("\xff\xfe"), "??");
  EXPECT_EQ(doctor::printable(std::string_view("x\0y\0", 4)), "x y");
  EXPECT_EQ(doctor::printable(" \n\t"), "");
  EXPECT_EQ(doctor::printable(std::string(300, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(doctor::printable(std::string(10, 'x'), 10), std::string(10, 'x'));
}

TEST(Subjects, NameDevices) {
  Gpu gpu;
  gpu.address = *PciAddress::parse("0000:3b:00.0");
  EXPECT_EQ(doctor::subject_of(gpu), "GPU 0000:3b:00.0");
  EXPECT_EQ(doctor::pci_folder(gpu.address), "/sys/bus/pci/devices/0000:3b:00.0");
}

// ---- symptoms

TEST(Symptoms, AreAListToChooseFrom) {
  ASSERT_GE(symptoms().size(), 12u);
  std::set<std::string_view> texts;
  for (const Symptom& symptom : symptoms()) {
    SCOPED_TRACE(symptom.text);
    EXPECT_TRUE(symptom.program.empty());
    EXPECT_FALSE(symptom.checks.empty());
    EXPECT_FALSE(symptom.means.empty());
    EXPECT_FALSE(symptom.remedy.empty());
    EXPECT_TRUE(texts.insert(symptom.text).second);
  }
  for (const Symptom& message : known_messages()) EXPECT_FALSE(message.program.empty()) << message.text;
}

TEST(Symptoms, AreMatchedByTheirOwnText) {
  for (const Symptom& symptom : symptoms()) {
    const Diagnosis diagnosis = diagnose(symptom.text);
    ASSERT_FALSE(diagnosis.lines.empty()) << symptom.text;
    EXPECT_EQ(diagnosis.lines.front().symptom, &symptom) << symptom.text << "\n" << diagnosis.lines.front().symptom->text;
  }
}

// The check that comes first for what users write.
TEST(Symptoms, AreMatchedByWhatUsersWrite) {
  const std::vector<std::pair<std::string, std::string>> known{
      {"Couldn't allocate MR, errno=14", "mod.peermem"},
      {"ibv_reg_mr() returned NULL: Bad address", "mod.peermem"},
      {"EFAULT", "mod.peermem"},
      {"Couldn't allocate MR errno: 95", "kern.dmabuf"},
      {"ibv_reg_dmabuf_mr failed: Protocol not supported", "kern.dmabuf"},
      {"registration of GPU memory: errno 524", "drv.grdma_topo"},
      {"modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument", "mod.peermem.dmesg"},
      {"Failed status 12: transport retry counter exceeded, vendor err 129", "rdma.gid"},
      {"GPU bandwidth is only HALF of host", "pci.acs"},
      {"GPUDirect is slow", "pci.link"},
      {"we get 1/3 of what host memory gets", "pci.topo"},
      {"latency of small messages is too high", "mod.gdrdrv"},
      {"it works in one direction only", "pci.vendorp2p"},
      {"results are corrupted", "iommu.mode"},
      {"My job hangs at the first allreduce.", "pci.acs"},
      {"ibv_reg_mr failed: Cannot allocate memory", "lim.memlock"},
      {"No IB devices found", "rdma.dev"},
  };
  for (const auto& [sentence, check] : known) {
    const Diagnosis diagnosis = diagnose(sentence);
    ASSERT_FALSE(diagnosis.checks.empty()) << sentence;
    EXPECT_EQ(diagnosis.checks.front(), check) << sentence << " -> " << diagnosis.lines.front().symptom->text;
  }
}

TEST(Symptoms, AreNotMatchedByOtherText) {
  for (const std::string_view sentence : {"", " ", "hello", "errno 145", "errno", "?!", "\xff\xfe\xfd", "xhang", "behalf"}) {
    const Diagnosis diagnosis = diagnose(sentence);
    EXPECT_TRUE(diagnosis.lines.empty()) << sentence << " -> "
                                         << (diagnosis.lines.empty() ? "" : diagnosis.lines.front().symptom->text);
  }
  EXPECT_TRUE(diagnose(std::string(1 << 20, 'a')).lines.empty());
}

// ---- examine()

// A machine without devices, as a folder.
class Examine : public testing::Test {
 protected:
  Examine() {
    folder_.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n");
    folder_.write("proc/meminfo",
                  "MemTotal:  1000 kB\nHugePages_Total:     0\nHugePages_Free:       0\nHugepagesize:       2048 kB\n");
    folder_.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    folder_.write("sys/devices/system/cpu/online", "0\n");
    folder_.write("sys/devices/system/cpu/possible", "0\n");
    folder_.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
    folder_.write("sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
  }

  Machine machine() const {
    Result<Machine> opened = Machine::open(folder_.path());
    if (!opened) throw std::runtime_error(opened.error().message());
    return std::move(*opened);
  }

  // The ids that findings are of, in order, each once.
  static std::vector<std::string> ids_of(const Examination& examination) {
    std::vector<std::string> ids;
    for (const Finding& finding : examination.findings) {
      if (ids.empty() || ids.back() != finding.check) ids.push_back(finding.check);
    }
    return ids;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Examine, RunsEveryCheckInOrder) {
  std::vector<std::string> begun;
  ExamineOptions options;
  options.on_begin = [&begun](const CheckInfo& check) { begun.emplace_back(check.id); };
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_TRUE(examination) << examination.error().message();
  std::vector<std::string> all;
  for (const CheckInfo& check : checks()) all.emplace_back(check.id);
  EXPECT_EQ(begun, all);
  EXPECT_EQ(ids_of(*examination), all) << to_text(examination->findings);
  for (const Finding& finding : examination->findings) {
    EXPECT_FALSE(finding.statement.empty()) << finding.check;
    EXPECT_EQ(finding.statement.find('\n'), std::string::npos) << finding.statement;
    const bool wants_remedy = finding.verdict != Verdict::pass && finding.verdict != Verdict::skip;
    EXPECT_EQ(finding.remedy.empty(), !wants_remedy) << to_text({finding});
  }
}

TEST_F(Examine, TriesNothingOnACapture) {
  const Result<Examination> examination = examine(machine());
  ASSERT_TRUE(examination);
  for (const Finding& finding : examination->findings) {
    if (!finding.check.starts_with("probe.")) continue;
    EXPECT_TRUE(finding.verdict == Verdict::skip || finding.verdict == Verdict::unknown) << to_text({finding});
  }
}

TEST_F(Examine, CountsVerdicts) {
  const Result<Examination> examination = examine(machine());
  ASSERT_TRUE(examination);
  std::size_t sum = 0;
  for (const Verdict verdict : {Verdict::pass, Verdict::warn, Verdict::fail, Verdict::unknown, Verdict::skip})
    sum += examination->count(verdict);
  EXPECT_EQ(sum, examination->findings.size());
  ExamineOptions only;
  only.only = {"huge"};
  const Result<Examination> one = examine(machine(), only);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->count(Verdict::pass), 1u) << to_text(one->findings);
  EXPECT_EQ(one->count(Verdict::fail), 0u);
}

TEST_F(Examine, ChoosesByIdAndGroup) {
  ExamineOptions options;
  options.only = {"huge", "rdma", "lim.memlock"};
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_TRUE(examination) << examination.error().message();
  EXPECT_EQ(ids_of(*examination), (std::vector<std::string>{"rdma.dev", "rdma.port", "rdma.mtu", "rdma.gid", "rdma.qos",
                                                            "rdma.counters", "lim.memlock", "huge"}));
}

TEST_F(Examine, RefusesACheckThatIsNotThere) {
  for (const auto& [wanted, near] : {std::pair<std::string, std::string>("rdma.gids", "rdma.gid, rdma.qos"),
                                     {"rmda", "the groups are"},
                                     {"", "the groups are"}}) {
    ExamineOptions options;
    options.only = {"huge", wanted};
    const Result<Examination> examination = examine(machine(), options);
    ASSERT_FALSE(examination) << wanted;
    EXPECT_EQ(examination.status(), Status::invalid_argument);
    const std::string message = examination.error().message();
    EXPECT_NE(message.find("'" + wanted + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(near), std::string::npos) << message;
  }
}

TEST_F(Examine, NamesHostileIdsInOneLine) {
  ExamineOptions options;
  options.only = {"a\n\x1b[31m" + std::string(5000, 'x')};
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_FALSE(examination);
  EXPECT_EQ(examination.error().message().find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(examination.error().message().size(), 1000u);
}

TEST_F(Examine, LeavesProbesOut) {
  ExamineOptions options;
  options.with_probes = false;
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_TRUE(examination);
  std::vector<std::string> readers;
  for (const CheckInfo& check : checks()) {
    if (!check.is_probe) readers.emplace_back(check.id);
  }
  EXPECT_EQ(ids_of(*examination), readers);
}

TEST_F(Examine, SaysThatAProbeWhichWasNamedIsLeftOut) {
  ExamineOptions options;
  options.with_probes = false;
  options.only = {"probe.copy"};
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_TRUE(examination);
  ASSERT_EQ(examination->findings.size(), 1u);
  EXPECT_EQ(examination->findings[0].verdict, Verdict::skip);
  EXPECT_EQ(examination->findings[0].check, "probe.copy");
}

TEST_F(Examine, SaysWhichChecksTheTimeWasTooShortFor) {
  for (const std::chrono::milliseconds deadline : {std::chrono::milliseconds(0), std::chrono::milliseconds(-5)}) {
    ExamineOptions options;
    options.deadline = deadline;
    options.on_begin = [](const CheckInfo& check) { ADD_FAILURE() << check.id << " was begun"; };
    const Result<Examination> examination = examine(machine(), options);
    ASSERT_TRUE(examination);
    EXPECT_EQ(examination->findings.size(), checks().size());
    EXPECT_EQ(examination->count(Verdict::unknown), checks().size());
    for (const Finding& finding : examination->findings)
      EXPECT_NE(finding.statement.find("time"), std::string::npos) << to_text({finding});
  }
}

TEST_F(Examine, TakesTheLongestDeadline) {
  ExamineOptions options;
  options.only = {"huge"};
  options.deadline = std::chrono::milliseconds::max();
  const Result<Examination> examination = examine(machine(), options);
  ASSERT_TRUE(examination);
  EXPECT_EQ(examination->count(Verdict::pass), 1u) << to_text(examination->findings);
}

TEST_F(Examine, AnEmptyMachineGivesNoPassForWhatItLacks) {
  const test::TemporaryFolder empty;
  empty.write("proc/version", "Linux\n");
  empty.write("sys/kernel/uevent_seqnum", "1\n");
  const Result<Machine> opened = Machine::open(empty.path());
  ASSERT_TRUE(opened) << opened.error().message();
  const Result<Examination> examination = examine(*opened);
  ASSERT_TRUE(examination);
  EXPECT_EQ(examination->count(Verdict::pass), 0u) << to_text(examination->findings);
}

}  // namespace
}  // namespace gigabar
