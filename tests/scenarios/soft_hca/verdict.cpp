// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"

namespace gigabar::tool::softhca {
namespace {

// As the queue documents it: the peer's word or its silence, and else this side's fault.
Status status_for(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::flushed:
    case Syndrome::remote_request:
    case Syndrome::remote_access:
    case Syndrome::remote_operation:
    case Syndrome::retries_exceeded:
    case Syndrome::not_ready_retries_exceeded:
    case Syndrome::remote_aborted: return Status::peer_lost;
    default: return Status::device_error;
  }
}

std::uint64_t count_if(const CaseResult& result, bool (*is_meant)(const Operation&)) {
  return static_cast<std::uint64_t>(
      std::count_if(result.not_ok.begin(), result.not_ok.end(), [&](const NotOk& each) { return is_meant(each.operation); }));
}

bool is_full(const Operation& operation) { return !operation.is_posted && operation.first == Status::timed_out; }
bool is_made_good(const Operation& operation) {
  return operation.is_posted && operation.first == Status::timed_out && operation.last == Status::ok;
}
bool is_timed_out(const Operation& operation) { return operation.is_posted && operation.last == Status::timed_out; }

// How an operation ended that was to end otherwise.
std::string unexpected(const NotOk& one) {
  return fmt::format("operation {} of thread {} on queue {} ended {}", one.operation.number, one.thread, one.queue,
                     end_text(one.operation));
}

// Where all must be ok at once, save those that `is_allowed`.
std::string require_ok(const CaseResult& result, bool (*is_allowed)(const Operation&) = nullptr) {
  const auto wrong = std::find_if(result.not_ok.begin(), result.not_ok.end(),
                                  [&](const NotOk& each) { return is_allowed == nullptr || !is_allowed(each.operation); });
  return wrong == result.not_ok.end() ? "" : unexpected(*wrong);
}

// Nobody posts to a queue but one thread, which waits for each operation before the next.
bool is_one_by_one(const Options& options, const Case& one) {
  return units_of_queue(options) == 1 && options.scope == ScopeKind::thread && one.window == 1;
}

std::string judge_lost(const Options& options, const CaseResult& result) {
  if (std::string wrong = require_ok(result, is_made_good); !wrong.empty()) return wrong;
  const std::uint64_t lost = effect_of(result.is.fault.kind, result.faults);
  const std::uint64_t late = count_if(result, is_made_good);
  const std::uint64_t most = lost * result.is.window * units_of_queue(options) * lanes_of_unit(options);
  if (late > most) return fmt::format("{} waits ended timed_out, and {} lost ones explain {}", late, lost, most);
  if (is_one_by_one(options, result.is) && late != lost)
    return fmt::format("{} were lost, and {} waits ended timed_out", lost, late);
  return "";
}

// Operations of a queue that lie whole before the request that fails.
std::uint64_t operations_before(const Options& options, const Case& one) {
  const std::uint64_t post = requests_of_post(options, one.op);
  return (one.fault.value - 1) / post * lanes_of_unit(options);
}

// On a collapsed CQ a later CQE may have taken the place of the one that tells.
std::string judge_error(const Options& options, const CaseResult& result) {
  const bool is_exact = !options.is_collapsed || is_one_by_one(options, result.is);
  const std::uint64_t before = operations_before(options, result.is);
  for (std::size_t i = 0; i < result.queues.size(); ++i) {
    const std::uint64_t ok = result.queues[i].ok_count;
    if (is_exact ? ok != before : ok > before)
      return fmt::format("{} of queue {} ended ok, and {} were before the request that fails", counted(ok, "operation"), i, before);
    if (result.queues[i].statistics.faults.errors != 1) return fmt::format("the request of queue {} did not fail", i);
  }
  const Status status = status_for(options.syndrome);
  bool has_told = false;
  for (const NotOk& one : result.not_ok) {
    has_told = has_told || one.operation.syndrome == options.syndrome;
    const bool is_flushed = !is_exact && one.operation.last == Status::peer_lost;
    if (one.operation.last != status && !is_flushed) return unexpected(one);
  }
  if (is_exact && !has_told) return fmt::format("no operation ended with the syndrome {}", name_of(options.syndrome));
  return "";
}

std::string judge_full_ring(const Options& options, const CaseResult& result) {
  if (std::string wrong = require_ok(result, is_full); !wrong.empty()) return wrong;
  const std::uint64_t post = requests_of_post(options, result.is.op);
  const std::uint64_t room = options.slot_count / post * post;
  for (std::size_t i = 0; i < result.queues.size(); ++i) {
    if (result.queues[i].filled_requests == room) continue;
    return fmt::format("the ring of queue {} took {}, and has room for {}", i, counted(result.queues[i].filled_requests, "request"),
                       room);
  }
  if (count_if(result, is_full) < unit_count(options)) return "not every thread was told that the ring is full";
  return "";
}

std::string judge_stalled_hca(const CaseResult& result) {
  if (std::string wrong = require_ok(result, is_made_good); !wrong.empty()) return wrong;
  if (count_if(result, is_made_good) != result.operations) return "an operation was done while the HCA was stalled";
  return "";
}

std::string judge_queues(const CaseResult& result, bool QueueFacts::* fact, const char* what) {
  if (std::string wrong = require_ok(result); !wrong.empty()) return wrong;
  for (std::size_t i = 0; i < result.queues.size(); ++i) {
    if (!(result.queues[i].*fact)) return fmt::format("queue {}: {}", i, what);
  }
  return "";
}

std::string judge_ends(const Plan& plan, const CaseResult& result) {
  const Options& options = plan.options;
  switch (result.is.fault.kind) {
    case FaultKind::lost_record:
    case FaultKind::lost_doorbell: return judge_lost(options, result);
    case FaultKind::error: return judge_error(options, result);
    case FaultKind::full_ring: return judge_full_ring(options, result);
    case FaultKind::stalled_hca: return judge_stalled_hca(result);
    case FaultKind::wrap: return judge_queues(result, &QueueFacts::has_wrapped, "its index has not wrapped");
    case FaultKind::stalled_consumer:
      return judge_queues(result, &QueueFacts::was_done_unseen, "the HCA had not completed the ring while nobody looked");
    default: return require_ok(result);
  }
}

// A fault that has not shown proves nothing.
std::string judge_effect(const CaseResult& result) {
  const FaultKind kind = result.is.fault.kind;
  if (is_of_hca(kind) && effect_of(kind, result.faults) == 0) return "the fault took no effect; take more iterations (-i)";
  if (kind == FaultKind::reorder && result.overtaken_count == 0) return "no queue overtook another; take more iterations (-i)";
  return "";
}

}  // namespace

std::string ends_text(const CaseResult& result) {
  std::string text;
  for (const auto& [end, count] : result.ends) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", count, end);
  return text;
}

std::string judge(const Plan& plan, const CaseResult& result) {
  if (result.was_interrupted) return "";
  if (result.wrong_count != 0) return "wrong data: " + result.first_wrong;
  if (count_if(result, is_timed_out) != 0) {
    const auto hung =
        std::find_if(result.not_ok.begin(), result.not_ok.end(), [](const NotOk& each) { return is_timed_out(each.operation); });
    return unexpected(*hung) + fmt::format(" after {} s", plan.options.timeout_seconds);
  }
  std::string wrong = judge_ends(plan, result);
  return wrong.empty() ? judge_effect(result) : wrong;
}

}  // namespace gigabar::tool::softhca
