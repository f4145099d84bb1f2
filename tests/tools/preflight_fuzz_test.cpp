// SPDX-License-Identifier: Apache-2.0
// What comes from outside at random: the text of --require, the file of --baseline, and the names in the metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "fuzz/mutator.hpp"
#include "preflight/preflight.hpp"
#include "preflight_node.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::preflight {
namespace {

using gigabar::test::for_a_while;
using gigabar::test::Mutator;

TEST(PreflightFuzz, Requirements) {
  std::size_t good = 0, bad = 0;
  for_a_while([&](Mutator& mutator) {
    const std::string text =
        mutator.once_in(8) ? mutator.bytes(200) : mutator.changed("nvlink>=18, gdr, host->gpu>=0.8, gpu->gpu>=300GB/s, pci.acs");
    const auto read = parse_requirements(text);
    if (!read) {
      ++bad;
      EXPECT_EQ(read.status(), Status::invalid_argument);
      EXPECT_TRUE(read.error().record().object.starts_with("--require:"));
      EXPECT_FALSE(read.error().record().remedy.empty());
      for (const char letter : read.message()) EXPECT_GE(static_cast<unsigned char>(letter), 0x20) << "a control character";
      return;
    }
    ++good;
    for (const Requirement& requirement : *read) {
      EXPECT_FALSE(requirement.name.empty());
      const bool has_number = requirement.kind == Requirement::Kind::count || requirement.kind == Requirement::Kind::rate;
      EXPECT_EQ(requirement.least > 0, has_number) << requirement.text;
      EXPECT_TRUE(std::isfinite(requirement.least));
      const bool is_share = requirement.kind == Requirement::Kind::rate && !requirement.is_gb_per_s;
      EXPECT_TRUE(!is_share || requirement.least <= 1) << requirement.text;
    }
  });
  EXPECT_GT(good, 0u);
  EXPECT_GT(bad, 0u);
}

TEST(PreflightFuzz, Baselines) {
  const std::string good = R"({"schema": 2, "tool": "survey", "date": "2026-01-01T00:00:00Z", "machine": {"host": "a", "cpu": "c"},
    "passes": {"count": 3, "seconds": 12}, "findings": [{"check": "pci.acs", "subject": "", "verdict": "PASS"}],
    "results": [{"key": "host->gpu0 alone", "unit": "GB/s", "value": 55.2, "min": 54.0, "max": 56.0, "passes": 3},
                {"key": "gpu0->gpu1 alone", "unit": "GB/s", "value": 391.0, "min": 390.0, "max": 392.0, "passes": 3}]})";
  std::size_t read = 0, refused = 0;
  for_a_while([&](Mutator& mutator) {
    const std::string text = mutator.once_in(8) ? mutator.bytes(400) : mutator.changed(good);
    test::Node node(2, 1);
    try {
      node.criteria.baseline = survey::parse_document("a file", text);
      ++read;
    } catch (const CommandFailure& failure) {
      ++refused;
      EXPECT_EQ(failure.exit_status(), kExitBadUsage);
      return;
    }
    for (const auto& [key, figure] : node.criteria.baseline->figures) {
      EXPECT_TRUE(std::isfinite(figure.value) && figure.value > 0 && std::isfinite(figure.range())) << key;
    }
    const Judgement judgement = node.judge();
    EXPECT_TRUE(judgement.state == State::fit || judgement.line.find("the baseline has") != std::string::npos) << judgement.line;
  });
  EXPECT_GT(read, 0u);
  EXPECT_GT(refused, 0u);
}

// That a text is what node_exporter's textfile collector reads: heads, rows of name, labels and number, each once.
void expect_metrics(const std::string& text) {
  ASSERT_TRUE(text.ends_with("\n# EOF\n"));
  std::set<std::string> seen;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    ASSERT_TRUE(line.starts_with("gigabar_preflight_")) << line;
    std::size_t at = line.find_first_of("{ ");
    ASSERT_NE(at, std::string::npos) << line;
    bool is_open = false;
    for (; at < line.size() && (is_open || line[at] != ' '); ++at) {
      if (line[at] == '\\') {
        ASSERT_TRUE(is_open && at + 1 < line.size() && (line[at + 1] == '\\' || line[at + 1] == '"')) << line;
        ++at;
      } else if (line[at] == '"') {
        is_open = !is_open;
      }
    }
    ASSERT_LT(at, line.size()) << line;
    ASSERT_EQ(line[at - 1] == '}', line.find('{') != std::string::npos) << line;
    ASSERT_TRUE(std::isfinite(std::stod(line.substr(at)))) << line;
    ASSERT_TRUE(seen.insert(line.substr(0, at)).second) << "twice: " << line;
  }
  EXPECT_GT(seen.size(), 5u);
}

TEST(PreflightFuzz, Metrics) {
  for_a_while([&](Mutator& mutator) {
    test::Node node(1 + static_cast<int>(mutator.below(3)), mutator.below(1000));
    for (Verdict verdict : {Verdict::fail, Verdict::unknown, Verdict::warn}) {
      node.find(mutator.once_in(2) ? mutator.bytes(30) : mutator.changed("pci.acs"),
                mutator.changed("GPU 0000:10:00.0 and \"mlx5_0\"\n"), verdict);
    }
    Nic nic;
    nic.name = mutator.once_in(2) ? mutator.bytes(20) : "a\\b\"c";
    node.examination.topology.nics.push_back(nic);
    node.find("rdma.port", nic.name, Verdict::fail);
    if (mutator.once_in(2)) node.slow_down(StreamPlace::kHost, 0, 0.1);
    const Judgement judgement = node.judge();
    EXPECT_EQ(judgement.state, State::unfit);
    EXPECT_EQ(judgement.line.find('\n'), std::string::npos);
    expect_metrics(metrics_text(judgement, {12.5, 1.7e9, false}));
  });
}

}  // namespace
}  // namespace gigabar::tool::preflight
