// Opening, closing, and who moves things on.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "fabric/bytes.hpp"
#include "fabric/engine.hpp"
#include "gigabar/mapping.hpp"
#include "platform/cpu_set.hpp"

namespace gigabar::fabric {
namespace {

// After kSpinNs of polling without giving the processor away.
constexpr std::int64_t kYieldNs = 1'000'000;  // a waiting thread lets others run so long before it sleeps
// After that long without a poll of the program's the engine's own thread polls. A program that waits long, or polls every
// millisecond by itself, is disturbed less and less often.
constexpr int kLeastNapMs = 1;
constexpr int kMostNapMs = 8;
constexpr std::int64_t kPostingPollNs = 200'000;
constexpr std::int64_t kMostSleepNs = 100'000'000;
constexpr std::int64_t kConnectingSleepNs = 5'000'000;  // cards that are awaited tell nobody
constexpr unsigned kPollsPerChannelPoll = 1024;         // channels cost a system call; nothing on them is urgent
constexpr std::size_t kRecords = 4096;

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const FabricOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  if (Outcome started = engine->start(options); !started) return std::move(started).take_error();
  return engine;
}

Outcome Engine::start(const FabricOptions& options) {
  generation_ = gigabar::detail::process_generation;
  auto settings = find_settings(options);
  if (!settings) return std::move(settings).error();
  settings_ = std::move(*settings);
  auto job = find_job(options);
  if (!job) return std::move(job).error();
  job_ = std::move(*job);
  const std::int64_t deadline_ns = now_ns() + settings_.connect_timeout_ns;
  if (Outcome chosen = choose_device(); !chosen) return chosen;
  if (Outcome opened = open_transports(); !opened) return opened;
  take_tuned_limits();
  auto wireup = Wireup::open(job_);
  if (!wireup) return std::move(wireup).error();
  wireup_ = std::move(*wireup);
  auto directory = open_directory(job_, deadline_ns);
  if (!directory) return std::move(directory).error();
  directory_ = std::move(*directory);
  card_ = make_card();
  if (Outcome published = directory_->publish(card_); !published) return published;

  records_.resize(kRecords);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) {
    const int code = errno;
    return make_error(status_of_errno(code), "fabric open", "epoll", "no descriptor to sleep on", "raise the limit of open files",
                      errno_code(code));
  }
  const auto watch = [&](int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    if (descriptor >= 0) epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
  };
  watch(wake_);
  watch(wireup_->wake_descriptor());
  watch(directory_->wake_descriptor());
  for (const OpenTransport& open : transports_) watch(open.transport->wake_descriptor());
  is_open_ = true;
  if (settings_.progress_thread && job_.rank_count > 1) thread_ = std::thread([this] { run_thread(); });
  return {};
}

Engine::~Engine() {
  if (belongs_to_this_process()) {
    {
      const Lock guard = lock();
      is_stopping_ = true;
      wake_thread();
    }
    if (thread_.joinable()) thread_.join();
    for (auto& [rank, peer] : peers_) drop_links(*peer);
    bury();
  } else if (thread_.joinable()) {
    thread_.detach();  // it runs in the parent
  }
  links_.clear();
  // What holds memory of the transports goes before them.
  recent_peer_ = nullptr;
  recent_segment_ = nullptr;
  mapped_segments_.clear();
  peers_.clear();
  segments_.clear();
  transports_.clear();
  if (wake_ >= 0) ::close(wake_);
  if (epoll_ >= 0) ::close(epoll_);
}

std::string Engine::make_card() const {
  ByteWriter writer;
  writer.number(kEngineVersion).string(wireup_->card()).number(static_cast<std::uint8_t>(transports_.size()));
  for (const OpenTransport& open : transports_) {
    writer.number(static_cast<std::uint8_t>(open.kind)).string(open.transport->card());
  }
  return writer.take();
}

void Engine::bury() { graveyard_.clear(); }

// --- Moving on -------------------------------------------------------------------------------------------------------------------

bool Engine::poll_channels() {
  bool has_changed = wireup_->poll(*this);
  for (const Rank rank : std::exchange(unwanted_, {})) wireup_->disconnect(rank);
  if (!connecting_.empty()) {
    const std::vector<Peer*> peers = connecting_;
    for (Peer* peer : peers) go_on_connecting(*peer);
  }
  // Rank 0 keeps the directory for the others.
  if (!directory_) return has_changed;
  if (const Outcome polled = directory_->poll(); !polled) log(LogLevel::debug, polled.message());
  return has_changed;
}

bool Engine::progress() {
  bool has_changed = false;
  for (const OpenTransport& open : transports_) has_changed |= open.transport->poll(*this);
  if (++polls_ % kPollsPerChannelPoll == 0 || !connecting_.empty()) has_changed |= poll_channels();
  if (!staging_ops_.empty() || !in_copies_.empty()) has_changed |= poll_copies();
  if (!busy_.empty()) {
    const std::vector<Peer*> peers = std::exchange(busy_, {});
    for (Peer* peer : peers) peer->is_listed = false;
    for (Peer* peer : peers) advance(*peer);
  }
  while (!doomed_.empty()) {
    // In order: what came first is the cause, what followed its consequence.
    const auto doomed = std::exchange(doomed_, {});
    for (const auto& [peer, error] : doomed) lose(*peer, error);
    has_changed = true;
  }
  if (!graveyard_.empty()) bury();
  if (has_changed) ++changes_;
  if (sleeper_count_ != 0 && changes_ != told_changes_) {
    told_changes_ = changes_;
    changed_.notify_all();
  }
  return has_changed;
}

bool Engine::arm_all() {
  // Operations that wait for room in a link, and copies, tell nobody when they can go on.
  if (!busy_.empty() || has_copies_under_way()) return false;
  for (const OpenTransport& open : transports_) {
    if (!open.transport->arm()) return false;
  }
  is_armed_ = true;
  return true;
}

void Engine::sleep_until(std::int64_t deadline_ns) {
  const std::int64_t left_ns = std::clamp<std::int64_t>(deadline_ns - now_ns(), 0, kMostSleepNs);
  epoll_event events[4];
  if (epoll_wait(epoll_, events, 4, static_cast<int>((left_ns + 999'999) / 1'000'000)) > 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
  }
}

void Engine::wake_thread() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

// Sleeps a little, unless somebody asks for this thread.
void Engine::nap(int milliseconds) {
  pollfd wake{wake_, POLLIN, 0};
  if (::poll(&wake, 1, milliseconds) <= 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
}

// Whether threads of the program poll, or did since this was asked last.
bool Engine::is_polled_by_others(std::uint32_t& seen_waits) const noexcept {
  const std::uint32_t waits = waits_.load(std::memory_order_relaxed);
  if (pollers_.load(std::memory_order_relaxed) != 0) {
    seen_waits = waits;
    return true;
  }
  return std::exchange(seen_waits, waits) != waits && !is_handed_over_.load(std::memory_order_relaxed);
}

// While threads of the program poll, this one only looks now and then whether they still do.
void Engine::run_thread() {
  settle_this_thread("gigabar-fabric", placement_.cpus);
  std::uint32_t seen_waits = 0;
  int nap_ms = kLeastNapMs;
  while (true) {
    const std::uint32_t waits_before = seen_waits;
    if (is_polled_by_others(seen_waits)) {
      const bool is_busy =
          pollers_.load(std::memory_order_relaxed) != 0 || seen_waits - waits_before >= static_cast<unsigned>(nap_ms);
      nap_ms = is_busy ? std::min(2 * nap_ms, kMostNapMs) : kLeastNapMs;
      nap(nap_ms);
      if (is_stopping_) return;
      continue;
    }
    nap_ms = kLeastNapMs;
    bool is_armed = false, has_connecting = false, has_changed = false;
    {
      const Lock guard = lock();
      if (is_stopping_) return;
      has_changed = progress();
      polls_ = kPollsPerChannelPoll - 1;
      if (progress()) {
        has_changed = true;
      } else {
        is_armed = arm_all();
      }
      has_connecting = !connecting_.empty();
    }
    if (is_armed) {
      sleep_until(now_ns() + (has_connecting ? kConnectingSleepNs : kMostSleepNs));
      const Lock guard = lock();
      is_armed_ = is_woken_ = false;
      if (poll_channels()) ++changes_;
    } else if (!has_changed) {
      // Only then: where more threads want to run than there are processors, each yield costs a round of all of them.
      sched_yield();
    }
  }
}

namespace {

// Of counters that are written under the lock.
void add(std::atomic<std::uint32_t>& counter, std::uint32_t number) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
}

}  // namespace

// The engine's thread sleeps on descriptors that do not tell what is polled for now; it must find out that somebody polls.
void Engine::take_over_polling() noexcept {
  add(waits_, 1);
  is_handed_over_.store(false, std::memory_order_relaxed);
  if (is_armed_ && !std::exchange(is_woken_, true)) wake_thread();
}

// A thread that posts much and waits seldom moves things on now and then, and the engine's own leaves it alone.
void Engine::poll_between_posts(std::int64_t now) {
  if (now - polled_between_posts_ns_ < kPostingPollNs) return;
  polled_between_posts_ns_ = now;
  take_over_polling();
  progress();
}

Engine::Waiter::Waiter(Engine& engine, const Timeout& timeout) noexcept
    : engine_(engine),
      timeout_ns_(timeout.is_forever() || timeout.ns() > INT64_MAX / 2 ? INT64_MAX : timeout.ns()),
      seen_changes_(engine.changes_) {
  add(engine_.pollers_, 1);
  engine_.take_over_polling();
}

Engine::Waiter::~Waiter() { add(engine_.pollers_, ~std::uint32_t{0}); }

void Engine::Waiter::begin(std::int64_t now) noexcept {
  deadline_ns_ = timeout_ns_ == INT64_MAX ? INT64_MAX : now + timeout_ns_;
  last_change_ns_ = now;
}

bool Engine::Waiter::go_on(Lock& lock) {
  if (engine_.changes_ != seen_changes_) {
    seen_changes_ = engine_.changes_;
    has_changed_ = true;
  }
  if (++turns_ % engine_.polls_per_look_ != 0) return true;
  const std::int64_t now = now_ns();
  if (deadline_ns_ == 0) begin(now);
  if (now >= deadline_ns_) return false;
  if (std::exchange(has_changed_, false)) last_change_ns_ = now;
  if (now - last_change_ns_ < engine_.spin_ns_) {
    // Others get their turn: another thread of the program may wait for the lock.
    lock.unlock();
    lock.lock();
    return true;
  }
  if (now - last_change_ns_ <= kYieldNs) {
    lock.unlock();
    sched_yield();
    lock.lock();
    return true;
  }
  engine_.sleep(lock, deadline_ns_);
  return true;
}

// Sleeps until something may have happened. Where there is a thread of the engine, it is the one that sleeps on the descriptors: of
// two that sleep there, an event would wake only one.
void Engine::sleep(Lock& lock, std::int64_t deadline_ns) {
  if (thread_.joinable()) {
    add(pollers_, ~std::uint32_t{0});
    is_handed_over_.store(pollers_.load(std::memory_order_relaxed) == 0, std::memory_order_relaxed);
    // It naps because this thread polled, or sleeps although this thread's polls took the wish to be woken back.
    wake_thread();
    ++sleeper_count_;
    changed_.wait_for(lock, std::chrono::nanoseconds(std::clamp<std::int64_t>(deadline_ns - now_ns(), 0, kMostSleepNs)));
    --sleeper_count_;
    add(pollers_, 1);
    is_handed_over_.store(false, std::memory_order_relaxed);
    return;
  }
  if (poll_channels() || !arm_all()) return;
  lock.unlock();
  sleep_until(std::min(deadline_ns, now_ns() + (connecting_.empty() ? kMostSleepNs : kConnectingSleepNs)));
  lock.lock();
  is_armed_ = is_woken_ = false;
  poll_channels();
}

FabricStatistics Engine::statistics() const {
  FabricStatistics statistics = statistics_;
  statistics.refused_strangers = wireup_->refusals().total() + (directory_ ? directory_->refused_count() : 0);
  return statistics;
}

std::vector<PeerState> Engine::peers() const {
  std::vector<PeerState> states;
  for (const auto& [rank, peer] : peers_) {
    PeerState state;
    state.rank = rank;
    state.is_connected = peer->state == Peer::State::ready;
    state.is_broken = peer->state == Peer::State::lost;
    state.is_same_host = peer->identity.is_same_host;
    if (peer->why) state.why = peer->why->message();
    if (peer->transport != nullptr) state.transport = peer->transport->kind();
    state.memory_bytes = sizeof(Peer) + (peer->is_self ? 0 : wireup_->memory_bytes(rank));
    for (const Rail& rail : peer->rails) {
      state.rails.push_back(rail.link->rail());
      state.memory_bytes += rail.link->memory_bytes();
    }
    if (peer->self_end) state.memory_bytes += peer->self_end->memory_bytes();
    if (peer->staging_in) state.memory_bytes += peer->staging_in->memory.bytes();
    if (peer->staging_out) state.memory_bytes += peer->staging_out->memory.bytes();
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace gigabar::fabric
