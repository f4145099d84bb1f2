// SPDX-License-Identifier: Apache-2.0
// Atomics. A call that timed out may have changed the value: the fabric goes on with it when it is made again.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

template <class Change>
gaspi_return_t change(const char* function, const RemotePlace& place, gaspi_atomic_value_t* old, gaspi_timeout_t timeout_ms,
                      const Change& call) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  Process& all = process();
  if (place.segment >= kSegments) return GASPI_ERR_INV_SEG;
  if (place.rank >= all.rank_count) return GASPI_ERR_INV_RANK;
  if (place.offset_bytes % sizeof(std::uint64_t) != 0) return GASPI_ERR_UNALIGN_OFF;
  if (old == nullptr) return GASPI_ERR_NULLPTR;
  count(Counter::atomics);
  const Remaining time(timeout_of(timeout_ms));
  const gaspi_return_t known = know_remote(place.rank, place.segment, time.left(), function);
  if (known != GASPI_SUCCESS) return known;
  const Result<std::uint64_t> before = call(time.left());
  if (before) return store(old, *before);
  if (before.status() == Status::invalid_argument) return GASPI_ERR_UNALIGN_OFF;  // memory of the program that begins so
  return code_of_post(before.error(), place.rank, place.segment, function);
}

}  // namespace

gaspi_return_t pgaspi_atomic_fetch_add(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                       const gaspi_atomic_value_t val_add, gaspi_atomic_value_t* const val_old,
                                       const gaspi_timeout_t timeout_ms) {
  const RemotePlace place{rank, segment_id, offset};
  return change("gaspi_atomic_fetch_add", place, val_old, timeout_ms,
                [&](const Timeout& timeout) { return process().fabric->fetch_add(place, val_add, timeout); });
}
GASPI_NAMED(gaspi_atomic_fetch_add);

gaspi_return_t pgaspi_atomic_compare_swap(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                          const gaspi_atomic_value_t comparator, const gaspi_atomic_value_t val_new,
                                          gaspi_atomic_value_t* const val_old, const gaspi_timeout_t timeout_ms) {
  const RemotePlace place{rank, segment_id, offset};
  return change("gaspi_atomic_compare_swap", place, val_old, timeout_ms,
                [&](const Timeout& timeout) { return process().fabric->compare_swap(place, comparator, val_new, timeout); });
}
GASPI_NAMED(gaspi_atomic_compare_swap);
