// SPDX-License-Identifier: Apache-2.0
// Messages and collectives.
#include <span>

#include "c/fabric_handle.hpp"

using namespace gigabar;
using namespace gigabar::c;

namespace {

static_assert(kAnyRank == GIGABAR_ANY_RANK);
static_assert(static_cast<int>(ReduceOperation::minimum) == GIGABAR_MINIMUM);
static_assert(static_cast<int>(ReduceOperation::maximum) == GIGABAR_MAXIMUM);
static_assert(static_cast<int>(ReduceOperation::sum) == GIGABAR_SUM);

void store_received(const Received& message, gigabar_received* received) noexcept {
  if (received != nullptr) *received = {message.tag, message.bytes, message.rank};
}

Group group_of(const uint32_t* ranks, uint64_t rank_count, const Fabric& job) {
  if (rank_count == 0 && ranks == nullptr) return {};
  if (rank_count == 0 || rank_count > job.rank_count()) {
    refuse("rank_count", gigabar::text("it is ", rank_count, ", the job has ", job.rank_count(), " ranks"),
           "name ranks of the job, or pass null and 0 for all");
  }
  const uint32_t* const first = &object_at(ranks, "ranks");
  return {first, first + rank_count};
}

template <class Number>
gigabar_status all_reduce(const char* function, gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                          gigabar_reduction reduction, const Number* values, Number* results, uint64_t count,
                          int64_t timeout_ns) noexcept {
  return on_fabric(function, fabric, [&](Fabric& job) {
    const auto operation = enumerator<ReduceOperation>(reduction, 3, "reduction");
    const std::span given(&object_at(values, "values"), count);
    const std::span wanted(&object_at(results, "results"), count);
    take(job.all_reduce(group_of(ranks, rank_count, job), operation, given, wanted, timeout_of(timeout_ns)));
  });
}

}  // namespace

gigabar_status gigabar_message_post_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source, uint64_t bytes,
                                         const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::post_send, to, tag, source, bytes);
}

gigabar_status gigabar_message_post_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, uint64_t mask, void* destination,
                                         uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::post_recv, from, tag, mask, destination, bytes);
}

gigabar_status gigabar_message_wait(gigabar_fabric* fabric, gigabar_operation operation, int64_t timeout_ns,
                                    gigabar_received* received) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    store_received(take(job.wait_message(static_cast<Operation>(operation), timeout_of(timeout_ns))), received);
  });
}

gigabar_status gigabar_message_cancel_recv(gigabar_fabric* fabric, gigabar_operation operation) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.cancel_recv(static_cast<Operation>(operation))); });
}

gigabar_status gigabar_message_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source, uint64_t bytes,
                                    int64_t timeout_ns, const gigabar_post_options* options) {
  return on_fabric(__func__, fabric,
                   [&](Fabric& job) { take(job.send(to, tag, source, bytes, timeout_of(timeout_ns), post_options_of(options))); });
}

gigabar_status gigabar_message_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, void* destination, uint64_t bytes,
                                    int64_t timeout_ns, const gigabar_post_options* options, gigabar_received* received) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    const Timeout timeout = timeout_of(timeout_ns);
    store_received(take(job.recv(from, tag, destination, bytes, timeout, post_options_of(options))), received);
  });
}

gigabar_status gigabar_barrier(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count, int64_t timeout_ns) {
  return on_fabric(__func__, fabric,
                   [&](Fabric& job) { take(job.barrier(group_of(ranks, rank_count, job), timeout_of(timeout_ns))); });
}

gigabar_status gigabar_all_reduce_int64(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                                        gigabar_reduction reduction, const int64_t* values, int64_t* results, uint64_t count,
                                        int64_t timeout_ns) {
  return all_reduce(__func__, fabric, ranks, rank_count, reduction, values, results, count, timeout_ns);
}

gigabar_status gigabar_all_reduce_double(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                                         gigabar_reduction reduction, const double* values, double* results, uint64_t count,
                                         int64_t timeout_ns) {
  return all_reduce(__func__, fabric, ranks, rank_count, reduction, values, results, count, timeout_ns);
}
