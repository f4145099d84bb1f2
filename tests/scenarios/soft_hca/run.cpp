// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/run.hpp"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <numeric>
#include <thread>

#include "device/soft_hca/soft_hca.hpp"
#include "scenarios/soft_hca/lanes.hpp"
#include "scenarios/soft_hca/memory_wire.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::softhca {
namespace {

constexpr std::uint64_t kWrap = 65536;
constexpr std::uint64_t kPlantedError = 2;  // the second request

Layout layout_of(const Options& options, const Case& one) {
  const std::uint64_t parts = std::max(options.queue_count, unit_count(options));
  return {one.bytes, std::uint64_t{one.window} * one.slots_of_rounds * lanes_of_unit(options) * parts};
}

soft_hca::QueueOptions queue_options(const Options& options, const Case& one) {
  soft_hca::QueueOptions queue;
  queue.depth = options.slot_count;
  queue.is_collapsed = options.is_collapsed;
  queue.confirms_reads = options.confirms_reads;
  if (one.fault.kind == FaultKind::wrap) queue.first_index = kWrap - one.fault.value;
  return queue;
}

// Operations that the HCA has begun, by queue, and how often one was begun before the earlier posted one of another queue.
struct Order {
  explicit Order(std::uint32_t queue_count) : begun(queue_count) {}
  std::vector<std::atomic<std::uint64_t>> begun;
  std::atomic<std::uint64_t> overtaken_count{0};
};

// A wire to memory that keeps account of the order. The n-th operation of `before` was posted before the n-th of `index`; where the
// two are equal, there is no such queue.
class WatchedWire final : public soft_hca::Wire {
 public:
  WatchedWire(const soft_hca::MemoryTable& peer, Order& order, std::uint32_t index, std::uint32_t before)
      : wire_(peer), order_(&order), index_(index), before_(before) {}
  bool begin(const soft_hca::WireOperation& operation) override {
    if (!wire_.begin(operation)) return false;
    const std::uint64_t begun = ++order_->begun[index_];
    if (before_ != index_ && order_->begun[before_] < begun) ++order_->overtaken_count;
    return true;
  }
  std::optional<soft_hca::Syndrome> poll() override { return wire_.poll(); }

 private:
  soft_hca::MemoryWire wire_;
  Order* order_;
  std::uint32_t index_;
  std::uint32_t before_;
};

class CaseRun {
 public:
  CaseRun(const Plan& plan, const Case& one, const std::atomic<bool>& is_interrupted)
      : plan_(plan),
        options_(plan.options),
        case_(one),
        is_interrupted_(is_interrupted),
        layout_(layout_of(options_, one)),
        order_(options_.queue_count),
        rig_(layout_.block_bytes()) {
    result_.is = one;
    result_.queues.resize(options_.queue_count);
    for (std::uint32_t i = 0; i < options_.queue_count; ++i) add_queue(i);
    fill_guards(rig_);
    make_lanes();
  }

  CaseResult run() {
    auto proxies = take(soft_hca::ProxyThreads::start(rig_.hca, options_.proxy_count));
    warm_up();
    make_faults();
    run_lanes(options_.scope, plan_.sharing, timed_rules(), lanes_);
    look_at_rings();
    recover();
    proxies->stop();  // behind it nothing writes
    if (options_.plant == Plant::guard) lanes_[0].queues[0].slots.spoil_guard(0);
    check_rest();
    count();
    return std::move(result_);
  }

 private:
  // Units divide the queues: a queue is posted to behind the one so many before it.
  void add_queue(std::uint32_t index) {
    const std::uint32_t units = unit_count(options_);
    soft_hca::Wire& wire = wires_.emplace_back(rig_.peer, order_, index, index < units ? index : index - units);
    first_index_.push_back(rig_.add_queue(queue_options(options_, case_), wire).queue.reserved);
  }

  void make_lanes() {
    std::uint64_t place = 0;
    const std::uint64_t places_of_part = std::uint64_t{case_.window} * case_.slots_of_rounds;
    for (std::uint32_t thread = 0; thread < options_.thread_count; ++thread) {
      Lane& lane = lanes_.emplace_back();
      lane.thread = thread;
      const std::uint32_t unit = options_.scope == ScopeKind::block ? 0 : thread;
      for (const std::uint32_t queue : queues_of_unit(options_, unit)) {
        lane.queues.push_back({&rig_.queue(queue), queue, Slots(rig_, case_.op, layout_), place, 0, 0, {}, {}, {}});
        place += places_of_part;
      }
    }
  }

  device::Timeout timeout() const { return {static_cast<std::uint64_t>(options_.timeout_seconds * 1e9)}; }

  Rules rules() const {
    Rules rules;
    rules.op = case_.op;
    rules.rounds = case_.warm_up;
    rules.window = case_.window;
    rules.slots_of_rounds = case_.slots_of_rounds;
    rules.requests_of_operation = requests_of(options_, case_.op);
    rules.timeout = timeout();
    rules.is_interrupted = &is_interrupted_;
    return rules;
  }

  Rules timed_rules() const {
    Rules rules = this->rules();
    const FaultKind kind = case_.fault.kind;
    rules.rounds = case_.iterations;
    rules.is_timed = true;
    rules.waits = kind != FaultKind::full_ring && kind != FaultKind::stalled_consumer;
    rules.fences_reads = kind == FaultKind::late_read && !options_.confirms_reads;
    rules.spoils_data = options_.plant == Plant::data;
    return rules;
  }

  // What does not end ok here stays in the counts, where no fault explains it.
  void warm_up() {
    if (case_.warm_up == 0) return;
    run_lanes(options_.scope, plan_.sharing, rules(), lanes_);
    for (Lane& lane : lanes_) {
      for (LaneQueue& queue : lane.queues) queue.ok_count = 0;
    }
  }

  std::uint64_t requests_before(std::uint32_t queue) { return rig_.queue(queue).reserved - first_index_[queue]; }

  void make_faults() {
    overtaken_before_ = order_.overtaken_count;
    for (std::uint32_t i = 0; i < options_.queue_count; ++i) {
      before_.push_back(requests_before(i));
      soft_hca::Faults faults = hca_faults(case_.fault, options_.syndrome, before_[i]);
      if (options_.plant == Plant::error) faults.error_at_wqe = before_[i] + kPlantedError;
      if (options_.plant == Plant::stall) faults.is_stalled = true;
      error_at_.push_back(faults.error_at_wqe);
      rig_.set_faults(faults, i);
    }
  }

  // Between the posts and the first look at the CQ.
  void look_at_rings() {
    if (case_.fault.kind == FaultKind::stalled_consumer) {
      std::this_thread::sleep_for(std::chrono::milliseconds(case_.fault.value));
      wait_until_idle();
    }
    for (std::uint32_t i = 0; i < options_.queue_count; ++i) {
      const device::Queue& queue = rig_.queue(i);
      QueueFacts& facts = result_.queues[i];
      facts.filled_requests = requests_before(i) - before_[i];
      facts.has_wrapped = queue.reserved / kWrap > first_index_[i] / kWrap;
      const bool is_unseen = queue.completed == first_index_[i] + before_[i];
      facts.was_done_unseen = is_unseen && rig_.statistics(i).work_requests == requests_before(i);
    }
  }

  void wait_until_idle() {
    const std::uint64_t begin_ns = device::now_ns();
    while (!rig_.hca.is_idle() && device::now_ns() - begin_ns < timeout().ns) std::this_thread::yield();
  }

  // --- Recovery: no lane runs any more.

  bool has_open(std::uint32_t index) const {
    for (const Lane& lane : lanes_) {
      for (const LaneQueue& queue : lane.queues) {
        if (queue.queue_index == index && !queue.open.empty()) return true;
      }
    }
    return false;
  }

  void recover() {
    const bool has_plant = options_.plant == Plant::stall;
    for (std::uint32_t i = 0; i < options_.queue_count; ++i) {
      if (!has_plant) rig_.set_faults({}, i);
      if (is_lost(case_.fault.kind) && has_open(i)) ring_again(i);
    }
    for (Lane& lane : lanes_) {
      for (LaneQueue& queue : lane.queues) wait_for_open(lane, queue);
    }
  }

  // A doorbell more: what an earlier one should have told of is told by it.
  void ring_again(std::uint32_t index) {
    device::Ticket ticket;
    static_cast<void>(device::post_nop<Sharing::exclusive>(device::Thread{}, rig_.queue(index), ticket, timeout()));  // waits tell
  }

  void wait_for_open(Lane& lane, LaneQueue& queue) {
    device::Timeout patience = timeout();
    const bool was_waited_for = timed_rules().waits;
    for (Operation& operation : queue.open) {
      operation.last = device::wait<Sharing::exclusive>(device::Thread{}, *queue.queue, operation.ticket, patience);
      if (!was_waited_for) operation.first = operation.last;
      if (operation.last == Status::timed_out) patience = device::Timeout{0};
      const device::QueueError error = device::error_of<Sharing::exclusive>(*queue.queue);
      operation.syndrome =
          operation.last == Status::ok ? Syndrome::none : syndrome_of(operation, error, rules().requests_of_operation);
      if (operation.last == Status::ok) check_done(lane, queue, operation);
      if (operation.first == Status::ok)
        ++queue.ok_count;
      else
        queue.ended.push_back(operation);
    }
    queue.open.clear();
  }

  // --- What nothing was to write

  void check_rest() {
    for (Lane& lane : lanes_) {
      for (const LaneQueue& queue : lane.queues) {
        for (const Operation& operation : queue.ended) check_failed(lane, queue, operation);
      }
    }
    const auto wrong = check_guards(rig_, layout_);
    if (!wrong) return;
    ++result_.wrong_count;
    result_.first_wrong = *wrong;
  }

  // The HCA has done what lies before the request that failed, whatever its posts and waits said. Of one that it may yet do, or
  // have done, nothing is known.
  void check_failed(Lane& lane, const LaneQueue& queue, const Operation& operation) const {
    if (operation.last == Status::ok) return;
    const std::uint64_t error_at = error_at_[queue.queue_index];
    const std::uint64_t request = operation.first_request - first_index_[queue.queue_index] + 1;
    if (operation.is_posted && error_at == 0) return;
    const bool was_done = operation.is_posted && request < error_at;
    const auto wrong = was_done ? queue.slots.check_done(operation.place, operation.number)
                                : queue.slots.check_untouched(operation.place, operation.number);
    if (wrong) complain(lane, queue, operation, *wrong);
  }

  // --- Counting

  void count() {
    for (const Lane& lane : lanes_) {
      for (const LaneQueue& queue : lane.queues) count_queue(lane, queue);
      result_.stale_count += lane.stale_count;
      result_.wrong_count += lane.wrong_count;
      if (result_.first_wrong.empty()) result_.first_wrong = lane.first_wrong;
    }
    for (std::uint32_t i = 0; i < options_.queue_count; ++i) {
      result_.queues[i].statistics = rig_.statistics(i);
      for (const auto& [count, name] : kFaultCounts) result_.faults.*count += result_.queues[i].statistics.faults.*count;
    }
    result_.overtaken_count = order_.overtaken_count - overtaken_before_;
    measure();
    result_.was_interrupted = is_interrupted_.load();
  }

  void count_queue(const Lane& lane, const LaneQueue& queue) {
    result_.operations += queue.ok_count + queue.ended.size();
    result_.queues[queue.queue_index].ok_count += queue.ok_count;
    if (queue.ok_count != 0) result_.ends["ok"] += queue.ok_count;
    for (const Operation& operation : queue.ended) {
      if (operation.last != Status::ok) ++result_.failed_count;
      ++result_.ends[end_text(operation)];
      result_.not_ok.push_back({lane.thread, queue.queue_index, operation});
    }
  }

  // Units work at the same time, each for the sum of its samples: what all have done over the mean of those sums.
  void measure() {
    std::vector<std::uint64_t> samples_ns;
    std::uint64_t operations = 0;
    for (const Lane& lane : lanes_) {
      samples_ns.insert(samples_ns.end(), lane.samples_ns.begin(), lane.samples_ns.end());
      operations += lane.samples_ns.size() * case_.window * lane.queues.size() * lanes_of_unit(options_);
    }
    const auto sum_ns = static_cast<double>(std::accumulate(samples_ns.begin(), samples_ns.end(), std::uint64_t{0}));
    constexpr double kNsPerUs = 1000.0;
    if (sum_ns > 0) result_.million_per_s = static_cast<double>(operations) * unit_count(options_) * kNsPerUs / sum_ns;
    result_.summary = summarize(samples_ns, 1.0);
  }

  const Plan& plan_;
  const Options& options_;
  const Case case_;
  const std::atomic<bool>& is_interrupted_;
  const Layout layout_;
  Order order_;
  std::deque<WatchedWire> wires_;
  TwoSides rig_;
  std::deque<Lane> lanes_;
  std::vector<std::uint64_t> first_index_;  // by queue
  std::vector<std::uint64_t> before_;       // work requests of the warm-up
  std::vector<std::uint64_t> error_at_;     // 0: none fails
  std::uint64_t overtaken_before_ = 0;
  CaseResult result_;
};

}  // namespace

std::string end_text(const Operation& operation) {
  std::string first(name_of(operation.first));
  if (!operation.is_posted) return first + " (not posted)";
  if (operation.syndrome != Syndrome::none) return fmt::format("{} ({})", name_of(operation.last), name_of(operation.syndrome));
  if (operation.first == operation.last) return first;
  return fmt::format("{}, then {}", first, name_of(operation.last));
}

CaseResult run_case(const Plan& plan, const Case& one, const std::atomic<bool>& is_interrupted) {
  return CaseRun(plan, one, is_interrupted).run();
}

}  // namespace gigabar::tool::softhca
