// SPDX-License-Identifier: Apache-2.0
// Passive communication: messages of the fabric with a tag of their own.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

constexpr Tag kPassiveTag = 0x6761'7370'6900'0001;

// INV_SEG, INV_LOC_OFF, INV_COMMSIZE.
gaspi_return_t check(SegmentId segment, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || bytes > process().config.passive_transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
  return check_local(segment, offset, bytes);
}

void* address_of(SegmentId segment, std::uint64_t offset) {
  return static_cast<std::byte*>(process().segments[segment].address) + offset;
}

}  // namespace

gaspi_return_t pgaspi_passive_send(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                   const gaspi_rank_t rank, const gaspi_size_t size, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (const gaspi_return_t refused = check(segment_id_local, offset_local, size); refused != GASPI_SUCCESS) return refused;
    Process& all = process();
    if (rank >= all.rank_count) return GASPI_ERR_INV_RANK;
    count(Counter::passive_sends);
    const Remaining time(timeout_of(timeout_ms));
    // Posting connects too, but for as long as the fabric's own time-out.
    Result<void> sent = all.fabric->connect(rank, time.left());
    if (sent) sent = all.fabric->send(rank, kPassiveTag, address_of(segment_id_local, offset_local), size, time.left());
    return sent ? GASPI_SUCCESS : code_of(sent.error(), "gaspi_passive_send");
  });
}
GASPI_NAMED(gaspi_passive_send);

gaspi_return_t pgaspi_passive_receive(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                      gaspi_rank_t* const rem_rank, const gaspi_size_t size, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (const gaspi_return_t refused = check(segment_id_local, offset_local, size); refused != GASPI_SUCCESS) return refused;
    if (rem_rank == nullptr) return GASPI_ERR_NULLPTR;
    count(Counter::passive_receives);
    const Result<Received> received =
        process().fabric->recv(kAnyRank, kPassiveTag, address_of(segment_id_local, offset_local), size, timeout_of(timeout_ms));
    if (received.status() == Status::out_of_range) return GASPI_ERR_INV_COMMSIZE;
    if (!received) return code_of(received.error(), "gaspi_passive_receive");
    return store(rem_rank, received->rank);
  });
}
GASPI_NAMED(gaspi_passive_receive);

gaspi_return_t pgaspi_passive_queue_purge(const gaspi_timeout_t /*timeout_ms*/) {
  return is_ready() ? GASPI_SUCCESS : GASPI_ERR_NOINIT;
}
GASPI_NAMED(gaspi_passive_queue_purge);
