// SPDX-License-Identifier: Apache-2.0
// The checks over machines that were changed at random: each comes to a verdict in bounded time and speaks plain text.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "doctor/check.hpp"
#include "fuzz/mutator.hpp"
#include "fuzz/small_machine.hpp"
#include "gigabar/doctor.hpp"
#include "platform/system_archive.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

using Json = nlohmann::json;
using test::for_a_while;
using test::Mutator;

bool is_plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char letter) { return static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f; });
}

void expect_sane(const doctor::Check& check, const std::vector<Finding>& findings) {
  EXPECT_FALSE(findings.empty()) << check.info.id;
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.check, check.info.id);
    EXPECT_FALSE(finding.statement.empty()) << check.info.id;
    EXPECT_TRUE(is_plain(finding.statement)) << check.info.id << ": " << finding.statement;
    EXPECT_TRUE(is_plain(finding.subject)) << check.info.id << ": " << finding.subject;
    EXPECT_TRUE(is_plain(finding.remedy)) << check.info.id << ": " << finding.remedy;
    const bool is_settled = finding.verdict == Verdict::pass || finding.verdict == Verdict::skip;
    EXPECT_NE(finding.remedy.empty(), !is_settled) << check.info.id << ": " << finding.statement;
    for (const Reading& reading : finding.readings) EXPECT_TRUE(is_plain(reading.source + reading.value)) << check.info.id;
  }
}

// The files and the answers change; the topology is that of the machine as it was, or nothing. False: the document was refused as a
// whole, and no check ran.
bool run_checks(const Json& document, const Topology& topology) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto archive = read_archive(text);
  if (!archive) return false;
  const doctor::Patient patient{archive->files, archive->head.answers, topology, false};
  for (const doctor::Check& check : doctor::all_checks()) {
    if (check.info.is_probe) continue;
    doctor::Findings findings(check.info.id);
    const auto begin = std::chrono::steady_clock::now();
    check.run(patient, findings);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << check.info.id;
    expect_sane(check, findings.take());
  }
  return true;
}

// How many of the changed machines were looked at: of those that are refused nothing is learned.
struct Tally {
  unsigned changed_count = 0;
  unsigned seen_count = 0;
  void add(bool was_seen) {
    ++changed_count;
    seen_count += was_seen ? 1 : 0;
  }
  ~Tally() {
    EXPECT_GE(seen_count * 4, changed_count) << seen_count << " of " << changed_count << " changed machines were looked at";
  }
};

Result<Topology> topology_of(const Json& document) {
  const test::TemporaryFolder folder;
  folder.write("machine.json", document.dump(-1, ' ', false, Json::error_handler_t::replace));
  const auto machine = Machine::open(folder.path() + "/machine.json");
  if (!machine) return machine.error();
  return discover_topology(*machine);
}

TEST(ChecksFuzz, OverChangedMachines) {
  const Json whole = test::SmallMachine().document();
  const auto topology = topology_of(whole);
  // Without hwloc there is none; the checks say so.
  const Topology known = topology ? *topology : Topology{};
  ASSERT_TRUE(run_checks(whole, known));
  Tally tally;
  for_a_while([&](Mutator& mutator) {
    Json document = whole;
    for (auto& [path, value] : document["files"].items()) {
      if (mutator.once_in(12) && value.is_string()) value = mutator.changed(value.get<std::string>(), 2);
    }
    for (std::size_t left = mutator.below(3); left > 0; --left) mutator.change(document["answers"]);
    if (mutator.once_in(4)) mutator.change(document["links"]);
    if (mutator.once_in(4)) mutator.change(document["devices"]);
    tally.add(run_checks(document, mutator.once_in(8) ? Topology{} : known));
  });
}

TEST(TopologyFuzz, OverChangedMachines) {
  const Json whole = test::SmallMachine().document();
#if GIGABAR_HAS_HWLOC
  ASSERT_TRUE(topology_of(whole));
  Tally tally;
#endif
  for_a_while([&](Mutator& mutator) {
    Json document = whole;
    for (auto& [path, value] : document["files"].items()) {
      if (mutator.once_in(12) && value.is_string()) value = mutator.changed(value.get<std::string>(), 2);
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto topology = topology_of(document);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
#if GIGABAR_HAS_HWLOC
    tally.add(topology.is_ok());
#endif
    if (!topology) return;
    // Indexes are of things that are there, and every route between two ends can be asked for.
    for (std::size_t i = 0; i < topology->pci.size(); ++i) EXPECT_LT(topology->pci[i].parent, static_cast<int>(i));
    for (int gpu = -1; gpu <= static_cast<int>(topology->gpus.size()); ++gpu) {
      for (int nic = -1; nic <= static_cast<int>(topology->nics.size()); ++nic) {
        const Route route = route_between(*topology, {Endpoint::Kind::gpu, gpu}, {Endpoint::Kind::nic, nic});
        EXPECT_FALSE(short_name(route.relation, route.nvlink_count).empty());
        EXPECT_TRUE(is_plain(route.bottleneck)) << route.bottleneck;
      }
      for (const int nic : nearest_nics(*topology, gpu, false)) EXPECT_LT(nic, static_cast<int>(topology->nics.size()));
    }
    for (const Nic& nic : topology->nics) EXPECT_TRUE(is_plain(nic.name)) << nic.name;
  });
}

TEST(SymptomsFuzz, AnySentence) {
  for_a_while([&](Mutator& mutator) {
    const std::span<const Symptom> from = mutator.once_in(4) ? symptoms() : known_messages();
    std::string text(from[mutator.below(from.size())].text);
    while (!mutator.once_in(3)) text += (mutator.once_in(2) ? "\n" : " ") + std::string(from[mutator.below(from.size())].text);
    text = mutator.once_in(8) ? mutator.bytes(4096) : mutator.changed(text, 8);
    const Diagnosis diagnosis = diagnose(text);
    const auto line_count = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    EXPECT_LE(diagnosis.lines.size(), 4u);
    for (const TellingLine& line : diagnosis.lines) {
      EXPECT_TRUE(is_plain(line.text)) << line.text;
      EXPECT_LE(line.text.size(), 200u);
      EXPECT_TRUE(line.number >= 1 && line.number <= line_count) << line.number;
    }
    for (const std::string_view check : diagnosis.checks) EXPECT_NE(find_check(check), nullptr) << check;
  });
}

}  // namespace
}  // namespace gigabar
