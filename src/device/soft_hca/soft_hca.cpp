// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/soft_hca.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/ranges.hpp"
#include "base/start_thread.hpp"

namespace gigabar::soft_hca {

// --- Memory ----------------------------------------------------------------------------------------------------------------------

Result<std::uint32_t> MemoryTable::register_memory(const MemoryRange& range) {
  const bool wraps = range.device_address + range.bytes < range.device_address;
  if (range.cpu == nullptr || range.bytes == 0 || wraps) {
    return make_error(Status::invalid_argument, "register memory",
                      range_text(reinterpret_cast<std::uintptr_t>(range.cpu), static_cast<std::size_t>(range.bytes)),
                      range.cpu == nullptr ? "no address" : "no bytes, or beyond the end of the address space");
  }
  const std::lock_guard lock(mutex_);
  while (next_key_ == 0 || ranges_.contains(next_key_)) ++next_key_;
  ranges_.emplace(next_key_, range);
  return next_key_++;
}

bool MemoryTable::deregister_memory(std::uint32_t key) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(key) == 1;
}

std::byte* MemoryTable::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, Access wanted) const {
  const std::shared_lock lock(mutex_);
  const auto found = ranges_.find(key);
  if (found == ranges_.end() || !includes(found->second.access, wanted)) return nullptr;
  const MemoryRange& range = found->second;
  const std::uint64_t offset = address - range.device_address;  // wraps below the start, and is too large then
  return fits(offset, bytes, range.bytes) ? static_cast<std::byte*>(range.cpu) + offset : nullptr;
}

// --- Queues ----------------------------------------------------------------------------------------------------------------------

namespace {

namespace mlx5 = device::mlx5;

std::uint32_t cqe_count_of(const QueueOptions& options) {
  if (options.is_collapsed) return 1;
  return options.cq_depth == 0 ? options.depth : options.cq_depth;
}

Error bad_queue(std::string what, std::string cause) {
  return make_error(Status::invalid_argument, "create queue", std::move(what), std::move(cause));
}

Result<void> check(const QueueOptions& options) {
  if (!std::has_single_bit(options.depth) || options.depth > device::kMaxDepth) {
    return bad_queue(text("depth ", options.depth), text("not a power of two up to ", device::kMaxDepth));
  }
  const std::uint32_t cqe_count = cqe_count_of(options);
  const bool is_good = std::has_single_bit(cqe_count) && cqe_count >= options.depth;
  if (!options.is_collapsed && !is_good) {
    return bad_queue(text("cq_depth ", options.cq_depth), text("not a power of two from the depth on, which is ", options.depth));
  }
  return {};
}

Result<void> check(const char* name, const Place& place, std::uint64_t alignment_bytes) {
  const auto cpu = reinterpret_cast<std::uintptr_t>(place.cpu);
  if (cpu == 0 || place.device_address == 0) return bad_queue(name, "no address");
  if (cpu % alignment_bytes == 0 && place.device_address % alignment_bytes == 0) return {};
  return bad_queue(name, text("not aligned to ", counted(alignment_bytes, "byte")));
}

Result<void> check(const QueueMemory& memory) {
  Result<void> outcome = check("ring", memory.ring, sizeof(mlx5::Block));
  if (outcome) outcome = check("doorbell record", memory.doorbell_record, sizeof(std::uint64_t));
  if (outcome) outcome = check("doorbell", memory.doorbell, sizeof(std::uint64_t));
  if (outcome) outcome = check("CQ", memory.cq, sizeof(mlx5::Cqe));
  return outcome;
}

// As the hardware leaves it for the first WQE. No WQE of the ring is valid, and no CQE of the CQ.
void initialise(const QueueOptions& options, const QueueMemory& memory) {
  auto* record = static_cast<std::uint32_t*>(memory.doorbell_record.cpu);
  for (int i = 0; i < 2; ++i) device::store_relaxed(&record[i], mlx5::doorbell_record(options.first_index));
  device::store_relaxed(static_cast<std::uint64_t*>(memory.doorbell.cpu), 0);
  auto* cqes = static_cast<mlx5::Cqe*>(memory.cq.cpu);
  for (std::uint32_t i = 0; i < cqe_count_of(options); ++i) {
    for (std::uint64_t& word : cqes[i].words) device::store_relaxed(&word, mlx5::kCqeUnwritten);
  }
  if (memory.drain != nullptr) memory.drain();
}

template <class T>
T* at_device(const Place& place) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(place.device_address));
}

device::Queue make_device_queue(std::uint32_t number, const QueueOptions& options, const QueueMemory& memory) {
  device::Queue queue;
  queue.ring = at_device<mlx5::Block>(memory.ring);
  queue.doorbell_record = at_device<std::uint32_t>(memory.doorbell_record) + mlx5::kSendRecordIndex;
  queue.doorbell = at_device<std::uint64_t>(memory.doorbell);
  queue.cq = at_device<mlx5::Cqe>(memory.cq);
  queue.depth = options.depth;
  queue.cq_depth = cqe_count_of(options);
  queue.number = number;
  queue.is_collapsed = options.is_collapsed;
  queue.confirms_reads = options.confirms_reads;
  queue.waits_for_stores = true;
  queue.reserved = queue.ready = queue.completed = options.first_index;
  return queue;
}

}  // namespace

// Under create_mutex_: nobody else fills it. The one that was closed longest ago would be best; going round comes near to that.
std::optional<std::uint32_t> SoftHca::find_slot() {
  const std::uint32_t count = slot_count_.load(std::memory_order_relaxed);
  if (count < kMaxQueues) return count;
  for (std::uint32_t tries = 0; tries < kMaxQueues; ++tries) {
    const std::uint32_t index = next_closed_;
    next_closed_ = (next_closed_ + 1) % kMaxQueues;
    const std::lock_guard lock(slots_[index].mutex);
    if (slots_[index].queue == nullptr) return index;
  }
  return std::nullopt;
}

Result<std::uint32_t> SoftHca::create_queue(const QueueOptions& options, const QueueMemory& memory, Wire& wire,
                                            device::Queue& queue) {
  Result<void> outcome = check(options);
  if (outcome) outcome = check(memory);
  if (!outcome) return std::move(outcome).error();

  const std::lock_guard lock(create_mutex_);
  const std::optional<std::uint32_t> index = find_slot();
  if (!index) return make_error(Status::out_of_memory, "create queue", "software HCA", text("it has ", kMaxQueues, " queues"));
  const std::uint32_t number = kFirstQueueNumber + *index;
  initialise(options, memory);
  queue = make_device_queue(number, options, memory);
  QueueOptions complete = options;
  complete.cq_depth = cqe_count_of(options);
  auto made = std::make_unique<SendQueue>(number, complete, memory, memory_, wire);
  {
    const std::lock_guard slot(slots_[*index].mutex);
    slots_[*index].queue = std::move(made);
  }
  slot_count_.store(std::max(slot_count_.load(std::memory_order_relaxed), *index + 1), std::memory_order_release);
  return number;
}

Result<std::unique_lock<std::mutex>> SoftHca::lock_queue(std::uint32_t number, const char* operation) {
  const std::uint32_t index = number - kFirstQueueNumber;
  if (index < slot_count_.load(std::memory_order_acquire)) {
    std::unique_lock lock(slots_[index].mutex);
    if (slots_[index].queue != nullptr) return lock;
  }
  return make_error(Status::invalid_argument, operation, text("queue ", number), "there is none with this number");
}

Result<void> SoftHca::close_queue(std::uint32_t number) {
  auto lock = lock_queue(number, "close queue");
  if (!lock) return std::move(lock).error();
  slots_[number - kFirstQueueNumber].queue.reset();
  return {};
}

Result<void> SoftHca::set_faults(std::uint32_t number, const Faults& faults) {
  auto lock = lock_queue(number, "set faults");
  if (!lock) return std::move(lock).error();
  slots_[number - kFirstQueueNumber].queue->set_faults(faults);
  return {};
}

Result<QueueStatistics> SoftHca::statistics(std::uint32_t number) {
  auto lock = lock_queue(number, "read statistics");
  if (!lock) return std::move(lock).error();
  return slots_[number - kFirstQueueNumber].queue->statistics();
}

bool SoftHca::is_idle() {
  for (std::uint32_t i = 0; i < slot_count_.load(std::memory_order_acquire); ++i) {
    if (!is_idle(kFirstQueueNumber + i)) return false;
  }
  return true;
}

// One that is closed has nothing to do.
bool SoftHca::is_idle(std::uint32_t number) {
  const auto lock = lock_queue(number, "look at queue");
  return !lock || slots_[number - kFirstQueueNumber].queue->is_idle();
}

bool SoftHca::poll(std::uint32_t share, std::uint32_t share_count) {
  bool has_progressed = false;
  const std::uint32_t slot_count = slot_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = share; i < slot_count; i += share_count) {
    const std::unique_lock lock(slots_[i].mutex, std::try_to_lock);
    if (lock && slots_[i].queue != nullptr && slots_[i].queue->step()) has_progressed = true;
  }
  return has_progressed;
}

// --- Threads ---------------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<ProxyThreads>> ProxyThreads::start(SoftHca& hca, std::uint32_t thread_count) {
  if (thread_count == 0 || thread_count > kMaxThreads) {
    return make_error(Status::invalid_argument, "start proxy threads", counted(thread_count, "thread"),
                      text("not between 1 and ", kMaxThreads));
  }
  std::unique_ptr<ProxyThreads> proxies(new ProxyThreads(thread_count));
  for (std::uint32_t i = 0; i < thread_count; ++i) {
    const std::string name = text("thread ", i + 1, " of ", thread_count);
    const auto work = [&hca, &is_stopping = proxies->is_stopping_, i, thread_count]() noexcept {
      pthread_setname_np(pthread_self(), "gigabar-hca");
      std::uint32_t vain_polls = 0;
      while (!is_stopping.load(std::memory_order_relaxed)) {
        vain_polls = hca.poll(i, thread_count) ? 0 : vain_polls + 1;
        if (vain_polls < kSpinPolls) continue;
        vain_polls = kSpinPolls;
        std::this_thread::yield();
      }
    };
    // Threads that did start end with the object.
    if (Result<void> started = start_thread(proxies->threads_[i], "start proxy threads", name, work); !started)
      return std::move(started).error();
  }
  return proxies;
}

void ProxyThreads::stop() noexcept {
  is_stopping_.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();  // else it was not started
  }
  threads_.clear();
}

}  // namespace gigabar::soft_hca
