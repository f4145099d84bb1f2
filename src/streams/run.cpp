// SPDX-License-Identifier: Apache-2.0
// run_streams: memory, threads, gate, repeats.
#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/start_thread.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/device.hpp"
#include "gigabar/streams.hpp"
#include "platform/cpu_set.hpp"
#include "platform/numa.hpp"
#include "streams/cuda_session.hpp"
#include "streams/ends.hpp"
#include "streams/links.hpp"
#include "streams/measure.hpp"
#include "streams/plan.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kGateBytes = 4096;
constexpr std::int64_t kCheckAfterStopNs = 500'000'000;  // who stops a run does not wait for all of its memory to be compared

// Keeps the calling thread on the node's CPUs, of those it may use; nothing on a machine without NUMA.
void run_on_node(int node) { (void)keep_this_thread_on(cpus_in_both(cpus_of_numa_node(node), usable_cpus())); }

std::string path_on_cpu(const Transfer& transfer, const Ends& ends, bool is_stand_in) {
  const std::size_t threads = cpu_thread_count(transfer);
  std::string path = counted(threads, "CPU thread");
  const bool is_by_cpu = transfer.executor == StreamExecutor::cpu || transfer.executor == StreamExecutor::flag;
  if (is_by_cpu && ends.mapping() != nullptr) path += text(" through ", name_of(ends.mapping()->backend()));
  if (is_stand_in && transfer.executor != StreamExecutor::cpu) path += text(" playing ", name_of(transfer.executor));
  return path + (is_stand_in ? " [stand-in]" : "");
}

// The threads of one repeat, joined at its end however that comes about. What is thrown in one ends the repeat.
class RepeatThreads : InPlace {
 public:
  explicit RepeatThreads(Repeat& repeat) noexcept : repeat_(repeat) {}
  ~RepeatThreads() {
    if (threads_.empty()) return;
    repeat_.abort();
    static_cast<void>(join());
  }

  // `object`: all of them, for the error of one that cannot be started.
  Result<void> start(const Worker& worker, const std::string& object) {
    return start_thread(threads_.emplace_back(), "run streams", object, [this, &worker] {
      try {
        run_on_node(worker.numa_node);
        worker.body();
      } catch (...) {
        fail(error_of_exception("run streams"));
      }
    });
  }

  Result<void> join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();  // else it was not started
    }
    threads_.clear();
    return std::move(failure_);
  }

 private:
  void fail(Error error) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_ = std::move(error);
    repeat_.abort();
  }

  Repeat& repeat_;
  std::mutex mutex_;
  Result<void> failure_;
  std::vector<std::thread> threads_;
};

class Run : InPlace {
 public:
  Run(const StreamPlan& plan, const StreamOptions& options) : plan_(plan), options_(options), results_(plan) {}
  ~Run();

  Result<void> prepare();
  Result<void> repeat(unsigned number);
  // For good, even where the caller takes it back: what was not prepared must not run.
  bool is_stopped() const {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
      was_stopped_.store(true, std::memory_order_relaxed);
    return was_stopped_.load(std::memory_order_relaxed);
  }
  StreamReport finish();

 private:
  bool is_stand_in() const { return devices_.front().is_stand_in; }
  bool is_carried_by_gpu(const Transfer& transfer) const { return session_ != nullptr && transfer.executor != StreamExecutor::cpu; }
  DeviceCode* code() const { return session_ != nullptr ? session_.get() : &host_side_device_code(); }
  Result<void> prepare_transfer(std::size_t index);
  std::vector<std::unique_ptr<TransferRun>> make_runs() const;
  void watch(unsigned number, std::span<const std::unique_ptr<TransferRun>> runs, const Repeat& repeat);
  void read_links();
  void check(std::span<const std::unique_ptr<TransferRun>> runs);

  const StreamPlan& plan_;
  const StreamOptions& options_;
  std::vector<DeviceInfo> devices_;
  std::unique_ptr<CudaSession> session_;  // null on stand-ins
  std::unique_ptr<HostMemory> gate_;
  std::vector<std::unique_ptr<Ends>> ends_;
  StreamReport report_;
  Results results_;
  mutable std::atomic<bool> was_stopped_ = false;
  bool has_links_ = false;
  bool is_abandoned_ = false;  // something may still be in flight: its memory must not be freed
};

Run::~Run() {
  if (!is_abandoned_) return;
  for (auto& ends : ends_) {
    [[maybe_unused]] const Ends* const kept_for_good = ends.release();
  }
  [[maybe_unused]] const CudaSession* const session = session_.release();
  [[maybe_unused]] const HostMemory* const gate = gate_.release();  // a stream that hangs may still look at it
}

Result<void> Run::prepare() {
  auto known = devices();
  if (!known) return std::move(known).error();
  devices_ = std::move(known).value();
  if (Result<void> good = check_plan(plan_, static_cast<int>(devices_.size())); !good) return good;
  report_.is_stand_in = is_stand_in();
#if GIGABAR_HAS_CUDA  // without it there are stand-ins only
  if (!is_stand_in()) {
    auto session = open_cuda_session(devices_, plan_);
    if (!session) return std::move(session).error();
    session_ = std::move(session).value();
  }
#endif
  auto gate = HostMemory::allocate(kGateBytes);
  if (!gate) return std::move(gate).error();
  gate_ = std::make_unique<HostMemory>(std::move(gate).value());
  for (std::size_t i = 0; i < plan_.transfers.size() && !is_stopped(); ++i) {
    if (Result<void> prepared = prepare_transfer(i); !prepared) return prepared;
  }
  return {};
}

Result<void> Run::prepare_transfer(std::size_t index) {
  const Transfer& transfer = plan_.transfers[index];
  if (is_carried_by_gpu(transfer)) {
    if (Result<void> prepared = session_->prepare(index, transfer); !prepared) return prepared;
  }
  auto ends = Ends::allocate(index, transfer, devices_, report_.warnings, [this] { return is_stopped(); });
  if (!ends) return std::move(ends).error();
  if (is_stopped()) return {};
  ends_.push_back(std::make_unique<Ends>(std::move(ends).value()));
  const Ends& made = *ends_.back();
  if (Result<void> filled = made.fill(code(), [this] { return is_stopped(); }); !filled) return filled;
  TransferReport& told = report_.transfers.emplace_back();
  told.transfer = transfer;
  told.path = is_carried_by_gpu(transfer) ? session_->path_of(index) : path_on_cpu(transfer, made, is_stand_in());
  told.host_numa_node = made.host_numa_node();
  told.host_placement = made.host_placement();
  told.is_verified = plan_.is_verified && moves_data(transfer.executor);
  return {};
}

std::vector<std::unique_ptr<TransferRun>> Run::make_runs() const {
  std::vector<std::unique_ptr<TransferRun>> runs(plan_.transfers.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (report_.transfers[i].error) continue;  // failed in an earlier repeat
    const Transfer& transfer = plan_.transfers[i];
    runs[i] = std::make_unique<TransferRun>(i, transfer, is_carried_by_gpu(transfer) ? 1 : cpu_thread_count(transfer));
  }
  return runs;
}

Result<void> Run::repeat(unsigned number) {
  auto runs = make_runs();
  std::size_t foreground_count = 0;
  for (const auto& run : runs) {
    if (run == nullptr) continue;
    foreground_count += run->transfer.is_background ? 0 : 1;
    if (!plan_.is_verified || !moves_data(run->transfer.executor)) continue;
    if (Result<void> poisoned = ends_[run->index]->poison(code(), [this] { return is_stopped(); }); !poisoned) return poisoned;
  }
  if (foreground_count == 0) return {};  // only background is left
  if (session_ != nullptr) {
    if (Result<void> read = session_->read_clocks(); !read) return read;
  }

  std::vector<Worker> workers;
  Repeat repeat(static_cast<std::uint32_t*>(gate_->address()), foreground_count, plan_.timeout_seconds, options_.stop);
  for (const auto& run : runs) {
    if (run == nullptr || is_carried_by_gpu(run->transfer)) continue;
    const int device = nearest_device(run->transfer);
    const int node = device >= 0 ? devices_[static_cast<std::size_t>(device)].numa_node : ends_[run->index]->host_numa_node();
    add_cpu_workers(*run, *ends_[run->index], repeat, node, workers);
  }
  if (session_ != nullptr) session_->add_workers(runs, ends_, repeat, workers);

  RepeatThreads threads(repeat);
  for (const Worker& worker : workers) {
    if (Result<void> started = threads.start(worker, counted(workers.size(), "thread")); !started) return started;
  }
  if (repeat.open(workers.size())) {
    watch(number, runs, repeat);
  } else {
    repeat.abort();
    for (const auto& run : runs) {
      if (run != nullptr) run->fail(timed_out_record(*run));
    }
  }
  if (Result<void> ended = threads.join(); !ended) {
    is_abandoned_ = session_ != nullptr;
    return ended;
  }
  check(runs);
  results_.add_repeat(runs, report_);
  return {};
}

void Run::read_links() {
  if (has_links_) return;
  has_links_ = true;
  for (std::size_t i = 0; i < plan_.transfers.size(); ++i) {
    const bool uses_peer_access = session_ != nullptr && session_->uses_peer_access(i);
    report_.transfers[i].link = link_of(plan_.transfers[i], devices_, uses_peer_access);
  }
}

// Until every transfer is done: reads the links while they are busy, and tells the progress.
void Run::watch(unsigned number, std::span<const std::unique_ptr<TransferRun>> runs, const Repeat& repeat) {
  read_links();
  std::vector<std::uint64_t> told_bytes(runs.size(), 0);
  std::int64_t told_ns = repeat.opened_ns();
  const auto tell = [&] {
    const std::int64_t at_ns = now_ns();
    std::vector<StreamProgress> all;
    for (const auto& run : runs) {
      if (run == nullptr) continue;
      const Transfer& transfer = run->transfer;
      const std::uint64_t bytes = run->bytes_done.load(std::memory_order_relaxed);
      const bool is_counted = !transfer.is_background && moves_data(transfer.executor);
      all.push_back(
          {run->index, bytes, is_counted ? transfer.iterations * transfer.bytes : 0,
           at_ns > told_ns ? static_cast<double>(bytes - told_bytes[run->index]) / static_cast<double>(at_ns - told_ns) : 0,
           run->is_done()});
      told_bytes[run->index] = bytes;
    }
    told_ns = at_ns;
    options_.progress(number, all);
  };
  const auto is_done = [](const std::unique_ptr<TransferRun>& run) { return run == nullptr || run->is_done(); };
  const std::int64_t interval_ns = std::int64_t{std::max(1U, options_.progress_interval_ms)} * 1'000'000;
  while (!std::all_of(runs.begin(), runs.end(), is_done) && !repeat.is_aborted()) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    if (options_.progress && now_ns() - told_ns >= interval_ns) tell();
  }
  if (options_.progress) tell();
}

void Run::check(std::span<const std::unique_ptr<TransferRun>> runs) {
  const std::int64_t begin_ns = now_ns();
  const GiveUp give_up = [&] { return is_stopped() && now_ns() - begin_ns > kCheckAfterStopNs; };
  for (const auto& run : runs) {
    if (run == nullptr) continue;
    TransferReport& told = report_.transfers[run->index];
    told.error = run->error();
    if (told.error && told.error->status == Status::timed_out && session_ != nullptr) is_abandoned_ = true;
    const auto has_copied = [](const Marks& marks) { return !marks.empty() && marks.back().bytes > 0; };
    const bool has_arrived = std::all_of(run->parts.begin(), run->parts.end(), has_copied);
    if (told.error || !has_arrived) told.is_verified = false;
    if (!told.is_verified) continue;
    if (Result<void> checked = ends_[run->index]->check(code(), give_up); !checked) told.error = checked.record();
    if (told.error || give_up()) told.is_verified = false;
  }
}

StreamReport Run::finish() {
  // Stopped while it was prepared: the rest is told without figures.
  for (std::size_t i = report_.transfers.size(); i < plan_.transfers.size(); ++i) {
    report_.transfers.emplace_back().transfer = plan_.transfers[i];
  }
  report_.was_stopped = is_stopped();
  results_.finish(report_);
  return std::move(report_);
}

}  // namespace

bool StreamReport::is_ok() const noexcept {
  return std::none_of(transfers.begin(), transfers.end(), [](const TransferReport& each) { return each.error.has_value(); });
}

Result<StreamReport> run_streams(const StreamPlan& plan, const StreamOptions& options) try {
  const Uncancelled uncancelled;
  Run run(plan, options);
  if (Result<void> prepared = run.prepare(); !prepared) return std::move(prepared).error();
  for (unsigned i = 0; i < plan.repeats && !run.is_stopped(); ++i) {
    if (Result<void> done = run.repeat(i); !done) return std::move(done).error();
  }
  return run.finish();
} catch (const abi::__forced_unwind&) {
  throw;  // the callback has ended this thread
} catch (...) {
  return error_of_exception("run_streams");
}

}  // namespace gigabar::inline v0
