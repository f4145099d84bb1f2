// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

bool is_queue(QueueId queue) { return queue < kProgramQueues && process().queues[queue].exists; }

enum class Failures : std::uint8_t { reported, forgotten };

gaspi_return_t wait_for(const char* function, QueueId queue, gaspi_timeout_t timeout_ms, Failures failures) {
  if (!is_queue(queue)) return GASPI_ERR_INV_QUEUE;
  Process& all = process();
  const Remaining time(timeout_of(timeout_ms));
  Queue& used = all.queues[queue];
  const auto turn = lock_within(used.turn, time.left());
  if (!turn) return GASPI_TIMEOUT;
  count(Counter::waits);
  Result<void> waited = all.fabric->wait(queue, time.left());
  if (waited.status() == Status::timed_out) return GASPI_TIMEOUT;
  if (used.failure) waited = *std::exchange(used.failure, std::nullopt);
  used.posted = 0;
  raise_arrived(EndedQueue{queue, !waited});
  if (waited) return GASPI_SUCCESS;
  const gaspi_return_t code = code_of(waited.error(), function);
  mark_lost_ranks();
  return failures == Failures::reported ? code : GASPI_SUCCESS;
}

}  // namespace

gaspi_return_t pgaspi_wait(const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  return when_ready([&] { return wait_for("gaspi_wait", queue, timeout_ms, Failures::reported); });
}
GASPI_NAMED(gaspi_wait);

gaspi_return_t pgaspi_queue_purge(const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  return when_ready([&] { return wait_for("gaspi_queue_purge", queue, timeout_ms, Failures::forgotten); });
}
GASPI_NAMED(gaspi_queue_purge);

gaspi_return_t pgaspi_queue_create(gaspi_queue_id_t* const queue, const gaspi_timeout_t /*timeout_ms*/) {
  return when_ready([&]() -> gaspi_return_t {
    if (queue == nullptr) return GASPI_ERR_NULLPTR;
    Process& all = process();
    const std::scoped_lock lock(all.mutex);
    for (unsigned id = 0; id < kProgramQueues; ++id) {
      if (all.queues[id].exists) continue;
      all.queues[id].posted = 0;
      all.queues[id].exists = true;
      return store(queue, id);
    }
    return GASPI_ERR_INV_QUEUE;
  });
}
GASPI_NAMED(gaspi_queue_create);

gaspi_return_t pgaspi_queue_delete(const gaspi_queue_id_t queue) {
  return when_ready([&]() -> gaspi_return_t {
    Process& all = process();
    const std::scoped_lock lock(all.mutex);
    if (!is_queue(queue)) return GASPI_ERR_INV_QUEUE;
    if (all.queues[queue].posted != 0) return GASPI_ERROR;
    all.queues[queue].exists = false;
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_queue_delete);

gaspi_return_t pgaspi_queue_size(const gaspi_queue_id_t queue, gaspi_number_t* const queue_size) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (!is_queue(queue)) return GASPI_ERR_INV_QUEUE;
  return store(queue_size, process().queues[queue].posted.load());
}
GASPI_NAMED(gaspi_queue_size);

gaspi_return_t pgaspi_queue_num(gaspi_number_t* const queue_num) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  return store(queue_num, std::ranges::count_if(process().queues, [](const Queue& one) { return one.exists.load(); }));
}
GASPI_NAMED(gaspi_queue_num);
