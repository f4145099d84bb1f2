// SPDX-License-Identifier: Apache-2.0
#include "softhca/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/soft_hca/verdict.hpp"

namespace gigabar::tool::softhca {
namespace {

constexpr std::size_t kMaxListed = 1000;

// A dash where nothing was measured: every round had a fault.
std::string figure_text(const CaseResult& result, double value) {
  if (result.summary.sample_count == 0) return "-";
  return value < 1 ? fmt::format("{:.3g}", value) : fmt::format("{:.2f}", value);
}

std::string verdict_text(const CaseResult& result, const std::string& complaint) {
  if (result.was_interrupted) return "-";
  return complaint.empty() ? "Pass" : "Fail";
}

Json to_json(const soft_hca::FaultCounts& counts) {
  return {{"lost_doorbells", counts.lost_doorbells},
          {"lost_records", counts.lost_records},
          {"late_records", counts.late_records},
          {"late_reads", counts.late_reads},
          {"errors", counts.errors},
          {"polls_sat_out", counts.polls_sat_out},
          {"polls_stalled", counts.polls_stalled}};
}

Json to_json(const NotOk& one) {
  const Operation& operation = one.operation;
  Json json = {{"thread", one.thread},
               {"queue", one.queue},
               {"operation", operation.number},
               {"is_posted", operation.is_posted},
               {"first", name_of(operation.first)},
               {"last", name_of(operation.last)}};
  json["syndrome"] = operation.syndrome == Syndrome::none ? Json() : Json(name_of(operation.syndrome));
  return json;
}

Json queues_to_json(const CaseResult& result) {
  Json queues = Json::array();
  for (const QueueFacts& facts : result.queues) {
    const soft_hca::QueueStatistics& statistics = facts.statistics;
    queues.push_back({{"ok", facts.ok_count},
                      {"work_requests", statistics.work_requests},
                      {"doorbells", statistics.doorbells},
                      {"cqes", statistics.cqes},
                      {"error_cqes", statistics.error_cqes},
                      {"has_wrapped", facts.has_wrapped}});
  }
  return queues;
}

Json fault_to_json(const Options& options, const CaseResult& result) {
  const Fault& fault = result.is.fault;
  if (fault.kind == FaultKind::none) return {};
  Json json = {{"kind", name_of(fault.kind)},
               {"value", fault.value},
               {"injected", to_json(result.faults)},
               {"expected", expectation_of(fault.kind, options.confirms_reads)}};
  if (fault.kind == FaultKind::error) json["syndrome"] = name_of(options.syndrome);
  if (fault.kind == FaultKind::reorder) json["overtaken"] = result.overtaken_count;
  if (fault.kind == FaultKind::late_read) json["early_reads"] = result.stale_count;
  return json;
}

Json not_ok_to_json(const CaseResult& result) {
  Json list = Json::array();
  const std::size_t count = std::min(result.not_ok.size(), kMaxListed);
  for (std::size_t i = 0; i < count; ++i) list.push_back(to_json(result.not_ok[i]));
  return list;
}

}  // namespace

// Rows come one by one: the headings are as wide as the widest entry.
TextTable make_table(const Plan& plan) {
  std::size_t op_width = 4;
  std::size_t fault_width = 5;
  for (const Case& one : plan.cases) {
    op_width = std::max(op_width, name_of(one.op).size());
    fault_width = std::max(fault_width, name_of(one.fault).size());
  }
  return TextTable({{fmt::format("{:<{}}", "# op", op_width), true},
                    {"bytes"},
                    {"queues"},
                    {"threads"},
                    {"operations"},
                    {"failed"},
                    {"p50 (us)"},
                    {"p99 (us)"},
                    {"M/s"},
                    {fmt::format("{:<{}}", "fault", fault_width), true},
                    {"Verdict", true}});
}

std::vector<std::string> row_of(const Options& options, const CaseResult& result, const std::string& complaint) {
  return {std::string(name_of(result.is.op)),
          std::to_string(result.is.bytes),
          std::to_string(options.queue_count),
          std::to_string(options.thread_count),
          std::to_string(result.operations),
          std::to_string(result.failed_count),
          figure_text(result, result.summary.p50_us),
          figure_text(result, result.summary.p99_us),
          figure_text(result, result.million_per_s),
          name_of(result.is.fault),
          verdict_text(result, complaint)};
}

std::string fault_line(const Options& options, const CaseResult& result) {
  const Fault& fault = result.is.fault;
  std::string text = name_of(fault) + ": ";
  const std::string effect = effect_text(fault.kind, result.faults);
  if (!effect.empty()) text += effect + "; ";
  if (fault.kind == FaultKind::reorder) text += fmt::format("overtaken: {}; ", result.overtaken_count);
  if (fault.kind == FaultKind::late_read) text += fmt::format("ended before their data: {}; ", result.stale_count);
  return text + fmt::format("{}; expected: {}", ends_text(result), expectation_of(fault.kind, options.confirms_reads));
}

Json to_json(const Plan& plan, const CaseResult& result, const std::string& complaint) {
  const Options& options = plan.options;
  Json json = {{"op", name_of(result.is.op)},
               {"bytes", result.is.bytes},
               {"queues", options.queue_count},
               {"threads", options.thread_count},
               {"scope", name_of(options.scope)},
               {"sharing", name_of(plan.sharing)},
               {"completions", options.is_collapsed ? "collapsed" : "ordinary"},
               {"confirms_reads", options.confirms_reads},
               {"slots", options.slot_count},
               {"proxies", options.proxy_count},
               {"window", result.is.window},
               {"iterations", result.is.iterations},
               {"warm_up", result.is.warm_up},
               {"timeout_seconds", options.timeout_seconds},
               {"operations", result.operations},
               {"failed", result.failed_count},
               {"ends", result.ends},
               {"not_ok", not_ok_to_json(result)}};
  json.update(tool::to_json(result.summary));
  json["million_per_s"] = result.million_per_s;
  json["fault"] = fault_to_json(options, result);
  json["by_queue"] = queues_to_json(result);
  json["wrong_count"] = result.wrong_count;
  json["is_as_expected"] = result.was_interrupted ? Json() : Json(complaint.empty());
  if (!complaint.empty()) json["complaint"] = complaint;
  return json;
}

}  // namespace gigabar::tool::softhca
