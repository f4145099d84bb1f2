// SPDX-License-Identifier: Apache-2.0
// latency, bw, bibw, multi-lat, mbw-mr without ranks: from measurements to figures, and what is printed of them.
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ranks/measure.hpp"
#include "tools/ranks_support.hpp"

namespace gigabar::tool::ranks {
namespace {

// --- Results ---------------------------------------------------------------------------------------------------------------------

Measurement measurement(std::vector<std::uint64_t> samples_us, const std::string& path) {
  Measurement result;
  for (const std::uint64_t sample : samples_us) result.samples_ps.push_back(sample * 1'000'000);
  result.path.text = path;
  return result;
}

TEST(RanksResults, LatencyIsTheMeanOfSingleSamples) {
  const std::vector<Measurement> by_rank = {measurement({1, 2, 3, 10}, "local bar"), measurement({}, "local bar")};
  const SizeResult result = combine(plan_of(Measure::latency), 8, 1, by_rank);
  EXPECT_DOUBLE_EQ(result.figure, 4.0);
  EXPECT_DOUBLE_EQ(result.p50, 2.0);
  EXPECT_DOUBLE_EQ(result.p99, 10.0);
  EXPECT_EQ(result.path_text, "local bar");
  EXPECT_EQ(result.wrong_count, 0U);
}

TEST(RanksResults, PathsThatDifferAreBothTold) {
  const Plan plan = plan_of(Measure::many_latencies);
  const std::vector<Measurement> by_rank = {measurement({1}, "local bar"), measurement({1}, "verbs gdr (mlx5_0/1)"),
                                            measurement({}, "local p2p"), measurement({}, "local p2p")};
  EXPECT_EQ(combine(plan, 8, 2, by_rank).path_text, "local bar + verbs gdr (mlx5_0/1), back local p2p");
}

TEST(RanksResults, BandwidthIsAllBytesOverTheMeanTime) {
  // Windows of 64 messages of 1000 bytes; 100 us each: 640 MB/s.
  const std::vector<Measurement> by_rank = {measurement({100, 100}, "verbs staged (rxe0/1)"), measurement({}, "")};
  const SizeResult one_way = combine(plan_of(Measure::bandwidth), 1000, 1, by_rank);
  EXPECT_DOUBLE_EQ(one_way.figure, 640.0);
  EXPECT_DOUBLE_EQ(one_way.p50, 640.0);
  EXPECT_DOUBLE_EQ(one_way.messages_per_s, 640'000.0);
  EXPECT_EQ(one_way.path_text, "verbs staged (rxe0/1)");
  EXPECT_DOUBLE_EQ(combine(plan_of(Measure::both_ways), 1000, 1, by_rank).figure, 1280.0) << "both directions count";
}

TEST(RanksResults, PairsAddUp) {
  const std::vector<Measurement> by_rank = {measurement({100, 100}, "a"), measurement({100, 300}, "a"), measurement({}, ""),
                                            measurement({}, "")};
  const SizeResult result = combine(plan_of(Measure::many_bandwidths), 1000, 2, by_rank);
  EXPECT_DOUBLE_EQ(result.figure, 4 * 64000.0 / 300.0) << "four windows over the mean of 200 and 400 us";
  EXPECT_EQ(result.pair_mb_per_s, (std::vector<double>{640.0, 320.0}));
  EXPECT_DOUBLE_EQ(result.p99, 64000.0 / 300.0);
}

TEST(RanksResults, ThreadsAddUpUntilTheLastIsDone) {
  Plan plan = plan_of(Measure::many_bandwidths);
  plan.options.thread_count = 2;
  const std::vector<Measurement> by_rank = {joined({measurement({100, 100}, "a"), measurement({100, 300}, "b")}),
                                            joined({measurement({}, ""), measurement({}, "")})};
  const SizeResult result = combine(plan, 1000, 1, by_rank);
  EXPECT_DOUBLE_EQ(result.figure, 4 * 64000.0 / 400.0) << "four windows until the second thread was done";
  EXPECT_DOUBLE_EQ(result.p50, 640.0) << "of single windows";
  EXPECT_EQ(result.path_text, "a + b");
  EXPECT_NE(title_lines(plan, "1.2.3", 1).find("[ window size: 64 ] [ threads: 2 ]"), std::string::npos);
}

TEST(RanksResults, WrongDataOfAThreadIsTheRanks) {
  std::vector<Measurement> threads = {measurement({1}, "a"), measurement({1}, "a"), measurement({1}, "a")};
  threads[1].wrong_count = 2;
  threads[1].first_wrong = "offset 4";
  threads[2].wrong_count = 1;
  threads[2].first_wrong = "offset 8";
  const Measurement all = joined(threads);
  EXPECT_EQ(all.wrong_count, 3U);
  EXPECT_EQ(all.first_wrong, "offset 4");
  EXPECT_EQ(all.samples_ps.size(), 3U);
  EXPECT_EQ(all.path.text, "a");
}

TEST(RanksResults, WrongDataIsTheRanksWhoFoundIt) {
  std::vector<Measurement> by_rank = {measurement({1}, "a"), measurement({}, "a")};
  by_rank[1].wrong_count = 3;
  by_rank[1].first_wrong = "offset 4";
  const SizeResult result = combine(plan_of(Measure::latency), 8, 1, by_rank);
  EXPECT_EQ(result.wrong_count, 3U);
  EXPECT_EQ(result.first_wrong, "rank 1: offset 4");
}

TEST(RanksResults, RatioSaysHowManyTimesBetter) {
  SizeResult result;
  SizeResult other;
  result.p50 = 2;
  other.p50 = 6;
  EXPECT_DOUBLE_EQ(ratio_of(Measure::latency, result, other), 3.0);
  EXPECT_DOUBLE_EQ(ratio_of(Measure::bandwidth, other, result), 3.0);
  result.p50 = 0;
  EXPECT_DOUBLE_EQ(ratio_of(Measure::latency, result, other), 0.0);
}

TEST(RanksResults, TravelUnchanged) {
  Measurement sent = measurement({1, 2, 3'000'000'000}, "local p2p");
  sent.path.detail = {{"chunks", 4}};
  sent.wrong_count = 2;
  sent.first_wrong = "offset 4";
  const auto received = decode(encode(sent));
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->samples_ps, sent.samples_ps);
  EXPECT_EQ(received->path.text, "local p2p");
  EXPECT_EQ(received->path.detail, sent.path.detail);
  EXPECT_EQ(received->wrong_count, 2U);
  EXPECT_EQ(received->first_wrong, "offset 4");
  sent.path.text = "local\x1b[2Jp2p\n";
  EXPECT_EQ(decode(encode(sent))->path.text, "local?[2Jp2p ") << "it goes to a terminal";
}

TEST(RanksResults, OfAnotherProcessAreNotTrusted) {
  EXPECT_FALSE(decode("").has_value());
  const auto refuse = [](const Json& json) {
    std::string bytes;
    Json::to_cbor(json, bytes);
    EXPECT_FALSE(decode(bytes).has_value()) << json.dump();
  };
  refuse(Json::array());
  refuse(Json::object());
  const Json good = {{"samples_ps", {1}}, {"path", ""}, {"detail", Json::object()}, {"wrong_count", 0}, {"first_wrong", ""}};
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    refuse(bad);
    bad[key] = -1;
    refuse(bad);
  }
  Json bad = good;
  bad["samples_ps"] = {1, "x"};
  refuse(bad);
  // Every cut and many changed bytes: an answer or nothing, never more.
  const std::string bytes = encode(measurement({1, 2, 3}, "local p2p"));
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(decode(bytes.substr(0, length)).has_value());
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] = static_cast<char>(random());
    changed[random() % changed.size()] = static_cast<char>(random());
    decode(changed);
  }
}

// --- What is printed -------------------------------------------------------------------------------------------------------------

OperationReport report_of(TransportKind transport, TransferPath path, const Words& rails) {
  OperationReport report;
  report.transport = transport;
  report.path = path;
  for (const std::string& rail : rails) report.rails.push_back({rail, 1});
  return report;
}

TEST(RanksPaths, AreNamedInFewWords) {
  EXPECT_EQ(path_text(report_of(TransportKind::local, TransferPath::p2p, {"shared memory"})), "local p2p");
  EXPECT_EQ(path_text(report_of(TransportKind::verbs, TransferPath::staged, {"rxe0/1"})), "verbs staged (rxe0/1)");
  EXPECT_EQ(path_text(report_of(TransportKind::verbs, TransferPath::gdr, {"a/1", "b/1"})), "verbs gdr (a/1, b/1)");
  EXPECT_EQ(path_text(report_of(TransportKind::local, TransferPath::none, {})), "local");
  EXPECT_EQ(path_text({}), "none");
}

TEST(RanksPaths, OfSeveralOperationsStandOnceEach) {
  const std::vector<OperationReport> reports = {report_of(TransportKind::verbs, TransferPath::gdr, {"a/1"}),
                                                report_of(TransportKind::verbs, TransferPath::gdr, {"b/1"}),
                                                report_of(TransportKind::verbs, TransferPath::gdr, {"a/1"})};
  const PathUse use = path_use_of(reports);
  EXPECT_EQ(use.text, "verbs gdr (a/1) + verbs gdr (b/1)");
  EXPECT_EQ(use.detail["all"].size(), 2U);
  EXPECT_EQ(use.detail["rails"][0]["rail"], "a/1");
  EXPECT_EQ(path_use_of({}).text, "");
}

std::string column_line(const Plan& plan) {
  const SizeResult nothing;
  const std::string text = row_of(plan, nothing, plan.options.is_compared ? &nothing : nullptr).table_text();
  return text.substr(0, text.find('\n') + 1);
}

std::string row(const Plan& plan, const SizeResult& result, const SizeResult* other) {
  const std::string text = row_of(plan, result, other).table_text();
  return text.substr(text.find('\n') + 1);
}

// Up to a width, what OSU's programs print.
TEST(RanksTable, BeginsWithOsusColumns) {
  EXPECT_TRUE(column_line(plan_of(Measure::latency)).starts_with("# Size          Latency (us) "));
  EXPECT_TRUE(column_line(plan_of(Measure::many_latencies)).starts_with("# Size          Latency (us) "));
  EXPECT_TRUE(column_line(plan_of(Measure::bandwidth)).starts_with("# Size      Bandwidth (MB/s) "));
  EXPECT_TRUE(column_line(plan_of(Measure::both_ways)).starts_with("# Size      Bandwidth (MB/s) "));
  EXPECT_TRUE(column_line(plan_of(Measure::many_bandwidths)).starts_with("# Size                  MB/s        Messages/s "));
  SizeResult result;
  result.bytes = 4194304;
  result.figure = 1234.567;
  result.messages_per_s = 99.994;
  EXPECT_TRUE(row(plan_of(Measure::latency), result, nullptr).starts_with("4194304              1234.57"));
  EXPECT_TRUE(
      row(plan_of(Measure::many_bandwidths), result, nullptr).starts_with("4194304              1234.57             99.99"));
}

TEST(RanksTable, ColumnsStandUnderTheirHeadings) {
  for (const bool is_compared : {false, true}) {
    Plan plan = plan_of(Measure::latency);
    plan.options.is_compared = is_compared;
    plan.options.is_checked = true;
    SizeResult result;
    result.p50 = 1.5;
    result.p99 = 2.5;
    result.path_text = "local p2p";
    SizeResult other;
    other.p50 = 3;
    other.path_text = "local staged";
    const std::string heading = column_line(plan);
    const std::string line = row(plan, result, is_compared ? &other : nullptr);
    const auto end_of = [](const std::string& text, const std::string& part) { return text.find(part) + part.size(); };
    EXPECT_EQ(end_of(heading, "p50 (us)"), end_of(line, "1.50"));
    EXPECT_EQ(end_of(heading, "p99 (us)"), end_of(line, "2.50"));
    EXPECT_EQ(end_of(heading, "Validation"), end_of(line, "Pass"));
    EXPECT_EQ(heading.find("Path"), line.find("local p2p"));
    if (!is_compared) continue;
    EXPECT_EQ(end_of(heading, "p50 without"), end_of(line, "3.00"));
    EXPECT_EQ(end_of(heading, "Ratio"), line.find("  local p2p"));
    EXPECT_EQ(heading.find("Path without"), line.find("local staged"));
  }
}

TEST(RanksTable, SaysWhenDataAreWrong) {
  Plan plan = plan_of(Measure::latency);
  plan.options.is_checked = true;
  SizeResult result;
  result.wrong_count = 1;
  EXPECT_NE(row(plan, result, nullptr).find("Fail"), std::string::npos);
}

TEST(RanksTable, TitlesAreComments) {
  Options options = options_of(Measure::many_bandwidths);
  options.accelerator = "cuda";
  options.places = {"D", "H"};
  const std::string lines = title_lines(make_plan(options), "1.2.3", 3);
  expect_words(lines, {"# Gigabar 1.2.3 Multiple Bandwidth / Message Rate Test\n",
                       "# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n", "# [ pairs: 3 ] [ window size: 64 ]\n"});
  for (std::size_t line = 0; line < lines.size(); line = lines.find('\n', line) + 1) EXPECT_EQ(lines[line], '#');
}

TEST(RanksDocument, HasEveryFigure) {
  const std::vector<Measurement> by_rank = {measurement({100, 200}, "a"), measurement({}, "")};
  const Plan plan = plan_of(Measure::bandwidth, Kind::write);
  const Json json = row_of(plan, combine(plan, 1000, 1, by_rank), nullptr).document();
  for (const char* key :
       {"measure",  "kind",         "bytes",        "iterations",     "warm_up",       "pairs",       "window",
        "mb_per_s", "p50_mb_per_s", "p99_mb_per_s", "messages_per_s", "pair_mb_per_s", "samples",     "p50_us",
        "p99_us",   "mean_us",      "path_text",    "path",           "is_checked",    "wrong_count", "threads"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["measure"], "bw");
  EXPECT_EQ(json["kind"], "write");
  EXPECT_TRUE(json["back_path"].is_null());
  const Plan latency = plan_of(Measure::latency);
  EXPECT_FALSE(row_of(latency, combine(latency, 1, 1, by_rank), nullptr).document().contains("mb_per_s"));
}

}  // namespace
}  // namespace gigabar::tool::ranks
