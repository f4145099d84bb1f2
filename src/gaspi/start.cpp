// SPDX-License-Identifier: Apache-2.0
// Joining the job and leaving it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/blocked_signals.hpp"
#include "base/undo.hpp"
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// The library's own functions for this are not part of its public interface.
std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// What the first failure of a start is called.
gaspi_return_t code_of_start(const Error& error) {
  const gaspi_return_t otherwise = code_of(error, "gaspi_proc_init");
  switch (error.status()) {
    case Status::invalid_argument:
    case Status::out_of_range: return GASPI_ERR_ENV;
    case Status::unavailable: return GASPI_ERR_DEVICE;
    case Status::no_permission:
    case Status::peer_lost: return GASPI_ERR_SN;
    case Status::busy: return GASPI_ERR_SN_PORT;
    default: return otherwise;
  }
}

// One host name for each rank, a line each.
std::vector<std::string> hosts_of(const std::optional<std::string>& path) {
  std::vector<std::string> hosts;
  if (!path) return hosts;
  std::ifstream file(*path);
  for (std::string line, host; std::getline(file, line);) {
    if (std::istringstream(line) >> host) hosts.push_back(host);
  }
  return hosts;
}

// GASPI_SOCKET counts the ranks of a host: its GPUs go round.
void choose_device(const std::string& socket, FabricOptions& options) {
  process().socket = number_of(socket);
  const auto found = devices();
  if (process().socket && found && !found->empty()) options.device = static_cast<int>(*process().socket % found->size());
}

// Of GASPI's own variables, where no other launcher has set its own. ENV: one is missing or makes no sense.
gaspi_return_t read_environment(const gaspi_config_t& config, FabricOptions& options) {
  const auto rank_text = environment("GASPI_RANK");
  if (!rank_text || environment("RANK") || environment("PMIX_RANK")) return GASPI_SUCCESS;
  const std::vector<std::string> hosts = hosts_of(environment("GASPI_MFILE"));
  const auto count_text = environment("GASPI_NRANKS");
  const auto count = count_text ? number_of(*count_text) : std::optional<unsigned>(hosts.size());
  const auto rank = number_of(*rank_text);
  const auto master = environment("GASPI_MASTER");
  if (!rank || !count || *rank >= *count || *count > 65535 || (!master && hosts.empty())) {
    std::fprintf(stderr,
                 "gaspi_proc_init: GASPI_RANK=%s, GASPI_NRANKS=%s, GASPI_MASTER=%s and %zu hosts in GASPI_MFILE name no job: set "
                 "rank, number of ranks and the host of rank 0, or start the program with gaspi_run\n",
                 rank_text->c_str(), count_text.value_or("").c_str(), master.value_or("").c_str(), hosts.size());
    return GASPI_ERR_ENV;
  }
  options.rank = rank;
  options.rank_count = count;
  options.master_address = master ? *master : hosts.front();
  if (const auto socket = environment("GASPI_SOCKET")) choose_device(*socket, options);
  if (!environment("GIGABAR_MASTER_PORT")) options.master_port = static_cast<std::uint16_t>(config.sn_port);
  return GASPI_SUCCESS;
}

// In a thread: a call may have less time than it takes to join, and the next call finds how far it came. What the fabric gets is
// not the time of the call, unless some call's was longer than its own: a rank that comes later than connect_timeout counts as
// lost.
gaspi_return_t start_to_join(Process& all, const Timeout& timeout) {
  FabricOptions options;
  if (const gaspi_return_t read = read_environment(all.config, options); read != GASPI_SUCCESS) return read;
  if (all.config.user_net != 0) {
    const bool is_rdma = all.config.network == GASPI_IB || all.config.network == GASPI_ROCE;
    options.transports = is_rdma ? std::vector{TransportKind::local, TransportKind::verbs}
                                 : std::vector{TransportKind::local, TransportKind::ucx, TransportKind::tcp};
  }
  all.longest_join_ns = std::max(all.longest_join_ns, timeout.ns());
  if (all.longest_join_ns > options.connect_timeout.ns())
    options.connect_timeout = Timeout(std::chrono::nanoseconds(all.longest_join_ns));
  // A program that gives up and ends must not take the libraries away below the thread, whose own time is bounded.
  static const int at_exit = std::atexit([] {
    if (process().joining_process == ::getpid() && process().joining.valid()) process().joining.wait();
  });
  static_cast<void>(at_exit);
  const BlockedSignals blocked;
  try {
    all.joining = std::async(std::launch::async, [options] { return Fabric::open(options); });
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "gaspi_proc_init: a thread that joins the job cannot be started: %s: raise the limit (ulimit -u)\n",
                 error.what());
    return GASPI_ERROR;
  }
  all.joining_process = ::getpid();
  return GASPI_SUCCESS;
}

bool has_joined(const std::future<Result<Fabric>>& joining, const Timeout& timeout) {
  if (!timeout.is_forever()) return joining.wait_for(std::chrono::nanoseconds(timeout.ns())) == std::future_status::ready;
  joining.wait();
  return true;
}

gaspi_return_t open_fabric(Process& all, const Timeout& timeout) {
  const Remaining time(timeout);
  for (;;) {
    if (!all.joining.valid()) {
      if (const gaspi_return_t refused = start_to_join(all, time.left()); refused != GASPI_SUCCESS) return refused;
    }
    if (all.joining_process != ::getpid()) {
      std::fprintf(stderr,
                   "gaspi_proc_init: this process is the child of one that is joining a job: fork before gaspi_proc_init\n");
      return GASPI_ERROR;
    }
    if (!has_joined(all.joining, time.left())) return GASPI_TIMEOUT;
    Result<Fabric> opened = all.joining.get();
    if (opened) {
      all.fabric.emplace(std::move(*opened));
      return GASPI_SUCCESS;
    }
    if (opened.status() != Status::timed_out) return code_of_start(opened.error());
  }
}

void make_tables(Process& all) {
  all.rank = all.fabric->rank();
  all.rank_count = all.fabric->rank_count();
  all.peers = std::vector<PeerKnown>(all.rank_count);
  auto everyone = std::make_unique<GroupState>();
  everyone->exists = true;
  everyone->is_committed = all.config.build_infrastructure != GASPI_TOPOLOGY_NONE;
  for (Rank rank = 0; rank < all.rank_count; ++rank) everyone->ranks.push_back(rank);
  all.groups.push_back(std::move(everyone));
  for (unsigned queue = 0; queue < kProgramQueues; ++queue) {
    all.queues[queue].exists = queue < all.config.queue_num;
    all.queues[queue].posted = 0;
    all.queues[queue].failure.reset();
  }
}

gaspi_return_t build(Process& all, const Remaining& time) {
  if (all.config.build_infrastructure == GASPI_TOPOLOGY_NONE) return GASPI_SUCCESS;
  if (all.config.build_infrastructure == GASPI_TOPOLOGY_STATIC) {
    for (Rank rank = 0; rank < all.rank_count; ++rank) {
      const Result<void> connected = all.fabric->connect(rank, time.left());
      if (!connected) return code_of_start(connected.error());
    }
  }
  const Result<void> met = all.fabric->barrier({}, time.left());
  return met ? GASPI_SUCCESS : code_of_start(met.error());
}

void forget_everything(Process& all) {
  set_device(all, nullptr);
  all.is_of_device = {};
  all.fabric.reset();  // before the memory that it may touch
  all.control.reset();
  for (Segment& segment : all.segments) segment.clear();
  for (Queue& queue : all.queues) queue.exists = false;
  all.groups.clear();
  all.next_context = kFirstContext;
  all.peers.clear();
  all.socket.reset();
}

// Other threads that delete segments are at the fabric without the mutex. False: `timeout` was too short for them.
bool wait_for_deletes(Process& all, std::unique_lock<std::mutex>& lock, const Timeout& timeout) {
  const auto is_none_going = [&] { return std::ranges::none_of(all.segments, &Segment::is_going); };
  if (!timeout.is_forever()) return all.has_left.wait_for(lock, std::chrono::nanoseconds(timeout.ns()), is_none_going);
  all.has_left.wait(lock, is_none_going);
  return true;
}

// The fabric, the tables and the control thread: all or nothing.
gaspi_return_t enter(Process& all, const Timeout& timeout) {
  if (const gaspi_return_t opened = open_fabric(all, timeout); opened != GASPI_SUCCESS) return opened;
  Undo leave([&] { forget_everything(all); });
  make_tables(all);
  if (Result<void> started = start_control(all); !started) return code_of_start(started.error());
  leave.call_off();
  if (all.config.net_info == 0) return GASPI_SUCCESS;
  for (const Setting& one : all.fabric->settings())
    std::printf("%s = %s (%s)\n", one.name.c_str(), one.value.c_str(), one.source.c_str());
  return GASPI_SUCCESS;
}

}  // namespace

gaspi_return_t pgaspi_proc_init(const gaspi_timeout_t timeout_ms) {
  return guarded([&]() -> gaspi_return_t {
    Process& all = process();
    const std::scoped_lock lock(all.mutex);
    if (all.is_ready) return GASPI_ERR_INITED;
    const Remaining time(timeout_of(timeout_ms));
    // After a time-out the same call goes on with the fabric of the call before.
    if (!all.fabric) {
      if (const gaspi_return_t entered = enter(all, time.left()); entered != GASPI_SUCCESS) return entered;
    }
    if (const gaspi_return_t built = build(all, time); built != GASPI_SUCCESS) {
      if (built == GASPI_TIMEOUT) return built;
      stop_control(all);  // a rank is lost: nothing could end that fabric
      forget_everything(all);
      return built;
    }
    all.is_ready.store(true, std::memory_order_release);
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_proc_init);

gaspi_return_t pgaspi_proc_term(const gaspi_timeout_t timeout_ms) {
  return guarded([&]() -> gaspi_return_t {
    Process& all = process();
    const Remaining time(timeout_of(timeout_ms));
    const auto turn = lock_within(all.device_turn, time.left());
    if (!turn) return GASPI_TIMEOUT;
    if (!all.is_ready) return GASPI_ERR_NOINIT;
    raise_arrived();
    if (const Result<void> ended = close_device(all, time.left()); !ended) return code_of(ended.error(), "gaspi_proc_term");
    std::unique_lock lock(all.mutex);
    if (!wait_for_deletes(all, lock, time.left())) return GASPI_TIMEOUT;
    stop_control(all);
    const Result<void> closed = all.fabric->close(time.left());
    if (closed.status() == Status::timed_out) {
      if (Result<void> started = start_control(all); !started) return code_of(started.error(), "gaspi_proc_term");
      return GASPI_TIMEOUT;
    }
    all.is_ready = false;
    drop_awaited_reads();
    const gaspi_return_t code = closed ? GASPI_SUCCESS : code_of(closed.error(), "gaspi_proc_term");
    forget_everything(all);
    return code;
  });
}
GASPI_NAMED(gaspi_proc_term);

gaspi_return_t pgaspi_proc_rank(gaspi_rank_t* const rank) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  return store(rank, process().rank);
}
GASPI_NAMED(gaspi_proc_rank);

gaspi_return_t pgaspi_proc_num(gaspi_rank_t* const proc_num) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  return store(proc_num, process().rank_count);
}
GASPI_NAMED(gaspi_proc_num);

gaspi_return_t pgaspi_initialized(gaspi_number_t* const initialized) { return store(initialized, is_ready() ? 1U : 0U); }
GASPI_NAMED(gaspi_initialized);

gaspi_return_t pgaspi_proc_local_rank(gaspi_rank_t* const local_rank) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  return store(local_rank, process().socket.value_or(process().fabric->local_rank()));
}
GASPI_NAMED(gaspi_proc_local_rank);

gaspi_return_t pgaspi_proc_local_num(gaspi_rank_t* const local_num) {
  return when_ready([&]() -> gaspi_return_t {
    if (local_num == nullptr) return GASPI_ERR_NULLPTR;
    Process& all = process();
    for (Rank rank = 0; rank < all.rank_count; ++rank) {
      const Result<void> connected = all.fabric->connect(rank, timeout_of(all.config.sn_timeout));
      if (!connected) return code_of(connected.error(), "gaspi_proc_local_num");
    }
    unsigned count = 1;
    for (const PeerState& peer : all.fabric->peers()) count += peer.is_same_host && peer.rank != all.rank ? 1 : 0;
    return store(local_num, count);
  });
}
GASPI_NAMED(gaspi_proc_local_num);
