// SPDX-License-Identifier: Apache-2.0
#include "softhca/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

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

Json to_json(const QueueFacts& facts) {
  const soft_hca::QueueStatistics& statistics = facts.statistics;
  return {{"ok", facts.ok_count},    {"work_requests", statistics.work_requests}, {"doorbells", statistics.doorbells},
          {"cqes", statistics.cqes}, {"error_cqes", statistics.error_cqes},       {"has_wrapped", facts.has_wrapped}};
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

// Rows come one by one: a column of names is as wide as the longest.
template <class Of>
std::string names_form(const Plan& plan, const Of& of) {
  std::size_t width = 0;
  for (const Case& one : plan.cases) width = std::max(width, of(one).size());
  return fmt::format("{{:<{}}}", width);
}

}  // namespace

Row row_of(const Plan& plan, const CaseResult& result, const std::string& complaint) {
  const Options& options = plan.options;
  const auto convert = [](const auto& one) { return to_json(one); };
  const std::span not_ok = std::span(result.not_ok).first(std::min(result.not_ok.size(), kMaxListed));
  Row row;
  row.add("op", name_of(result.is.op), "# op", names_form(plan, [](const Case& one) { return name_of(one.op); }));
  row.add("bytes", result.is.bytes, "bytes").add("queues", options.queue_count, "queues");
  row.add("threads", options.thread_count, "threads").add("scope", name_of(options.scope)).add("sharing", name_of(plan.sharing));
  row.add("completions", options.is_collapsed ? "collapsed" : "ordinary").add("confirms_reads", options.confirms_reads);
  row.add("slots", options.slot_count).add("proxies", options.proxy_count).add("window", result.is.window);
  row.add("iterations", result.is.iterations).add("warm_up", result.is.warm_up).add("timeout_seconds", options.timeout_seconds);
  row.add("operations", result.operations, "operations").add("failed", result.failed_count, "failed");
  row.add("ends", result.ends).add("not_ok", list_of(not_ok, convert)).merge(tool::to_json(result.summary));
  row.show("p50 (us)", figure_text(result, result.summary.p50_us)).show("p99 (us)", figure_text(result, result.summary.p99_us));
  row.add("million_per_s", result.million_per_s).show("M/s", figure_text(result, result.million_per_s));
  row.add("fault", fault_to_json(options, result));
  row.show("fault", name_of(result.is.fault), names_form(plan, [](const Case& one) { return name_of(one.fault); }));
  row.add("by_queue", list_of(result.queues, convert)).add("wrong_count", result.wrong_count);
  row.add("is_as_expected", result.was_interrupted ? Json() : Json(complaint.empty()));
  if (!complaint.empty()) row.add("complaint", complaint);
  row.show("Verdict", verdict_text(result, complaint), "{:<}");
  return row;
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

}  // namespace gigabar::tool::softhca
