// SPDX-License-Identifier: Apache-2.0
// One-sided operations, their completion, reports and explanations.
#include <span>
#include <vector>

#include "c/fabric_handle.hpp"
#include "c/json.hpp"
#include "c/members.hpp"

namespace gigabar::c {
namespace {

static_assert(static_cast<int>(TransferPath::host) == GIGABAR_PATH_HOST);
static_assert(static_cast<int>(TransferPath::bar) == GIGABAR_PATH_BAR);
static_assert(static_cast<int>(TransferPath::p2p) == GIGABAR_PATH_P2P);
static_assert(static_cast<int>(TransferPath::gdr) == GIGABAR_PATH_GDR);
static_assert(static_cast<int>(TransferPath::staged) == GIGABAR_PATH_STAGED);

std::vector<ListPiece> pieces_of(const gigabar_list_piece* pieces, std::uint64_t piece_count) {
  if (piece_count == 0 || piece_count > kMaxListPieces) {
    refuse("piece_count", text("it is ", piece_count), text("pass 1 to ", kMaxListPieces, " pieces"));
  }
  const std::span given(&object_at(pieces, "pieces"), piece_count);
  std::vector<ListPiece> result;
  for (const gigabar_list_piece& piece : given) {
    result.push_back({place_of(piece.local), piece.remote_segment, piece.remote_offset_bytes, piece.bytes});
  }
  return result;
}

std::string rails_text(const std::vector<RailShare>& rails) {
  std::string result;
  for (const RailShare& share : rails) result += text(result.empty() ? "" : ", ", share.rail, " ", share.bytes);
  return result;
}

// Both directions.
template <class Explain, class... Given>
gigabar_status explained(const char* function, gigabar_fabric* fabric, std::int64_t timeout_ns, const gigabar_post_options* options,
                         char** output, Explain explain, const Given&... given) noexcept {
  return on_fabric(function, fabric, [&](Fabric& job) {
    char*& result = object_at(output, "text");
    const Timeout timeout = timeout_of(timeout_ns);
    result = new_text(json_of(c::take((job.*explain)(given..., timeout, post_options_of(options)))));
  });
}

}  // namespace

PostOptions post_options_of(const gigabar_post_options* options) {
  const Fields fields(options, GIGABAR_POST_STRIPE_BYTES * 2 - 1, "options");
  PostOptions result;
  fields.read(GIGABAR_POST_QUEUE, &gigabar_post_options::queue, result.queue);
  if (const auto* policy = fields.find(GIGABAR_POST_POLICY, &gigabar_post_options::policy)) result.policy = policy_of(*policy);
  fields.read(GIGABAR_POST_CHUNK_BYTES, &gigabar_post_options::chunk_bytes, result.chunk_bytes);
  fields.read(GIGABAR_POST_STRIPE_BYTES, &gigabar_post_options::stripe_bytes, result.stripe_bytes);
  return result;
}

}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

gigabar_status gigabar_fabric_write(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes,
                                    const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::write, place_of(local), place_of(remote), bytes);
}

gigabar_status gigabar_fabric_read(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes,
                                   const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::read, place_of(local), place_of(remote), bytes);
}

gigabar_status gigabar_fabric_write_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces,
                                         uint64_t piece_count, const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation,
                [&](Fabric& job, const PostOptions& with) { return job.write_list(rank, pieces_of(pieces, piece_count), with); });
}

gigabar_status gigabar_fabric_read_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces,
                                        uint64_t piece_count, const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation,
                [&](Fabric& job, const PostOptions& with) { return job.read_list(rank, pieces_of(pieces, piece_count), with); });
}

gigabar_status gigabar_fabric_write_notify(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                           uint64_t bytes, uint32_t id, uint32_t value, const gigabar_post_options* options,
                                           gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::write_notify, place_of(local), place_of(remote), bytes, id, value);
}

gigabar_status gigabar_fabric_write_notify_add(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                               uint64_t bytes, uint32_t id, uint32_t value, const gigabar_post_options* options,
                                               gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::write_notify_add, place_of(local), place_of(remote), bytes, id,
                value);
}

gigabar_status gigabar_fabric_write_list_notify(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces,
                                                uint64_t piece_count, uint16_t segment, uint32_t id, uint32_t value,
                                                const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, [&](Fabric& job, const PostOptions& with) {
    return job.write_list_notify(rank, pieces_of(pieces, piece_count), segment, id, value, with);
  });
}

gigabar_status gigabar_fabric_notify(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id, uint32_t value,
                                     const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::notify, rank, segment, id, value);
}

gigabar_status gigabar_fabric_notify_add(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id, uint32_t value,
                                         const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::notify_add, rank, segment, id, value);
}

gigabar_status gigabar_fabric_write_in_order(gigabar_fabric* fabric, const void* source, gigabar_remote_place remote,
                                             uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation) {
  return posted(__func__, fabric, options, operation, &Fabric::write_in_order, source, place_of(remote), bytes);
}

gigabar_status gigabar_fabric_fetch_add(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t value, int64_t timeout_ns,
                                        uint64_t* previous) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint64_t& result = object_at(previous, "previous");
    result = take(job.fetch_add(place_of(remote), value, timeout_of(timeout_ns)));
  });
}

gigabar_status gigabar_fabric_compare_swap(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t expected, uint64_t desired,
                                           int64_t timeout_ns, uint64_t* previous) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint64_t& result = object_at(previous, "previous");
    result = take(job.compare_swap(place_of(remote), expected, desired, timeout_of(timeout_ns)));
  });
}

gigabar_status gigabar_fabric_wait(gigabar_fabric* fabric, uint8_t queue, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.wait(queue, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_fabric_flush(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.flush(rank, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_fabric_progress(gigabar_fabric* fabric) {
  return on_fabric(__func__, fabric, [](Fabric& job) { take(job.progress()); });
}

gigabar_status gigabar_fabric_report(const gigabar_fabric* fabric, gigabar_operation operation, gigabar_operation_report* report) {
  return on_fabric(__func__, fabric, [&](const Fabric& job) {
    Fields fields(&object_at(report, "report"), GIGABAR_REPORT_ALL, "report");
    const OperationReport result = take(job.report(static_cast<Operation>(operation)));
    fields.fill(GIGABAR_REPORT_IS_DONE, &gigabar_operation_report::is_done, result.is_done);
    fields.fill(GIGABAR_REPORT_STATUS, &gigabar_operation_report::status, result.status);
    fields.fill(GIGABAR_REPORT_PATH, &gigabar_operation_report::path, result.path);
    fields.fill(GIGABAR_REPORT_TRANSPORT, &gigabar_operation_report::transport,
                result.transport ? static_cast<int>(*result.transport) : GIGABAR_TRANSPORT_NONE);
    fields.fill(GIGABAR_REPORT_BYTES, &gigabar_operation_report::bytes, result.bytes);
    fields.fill(GIGABAR_REPORT_CHUNKS, &gigabar_operation_report::chunks, result.chunks);
    fields.fill(GIGABAR_REPORT_RETRIES, &gigabar_operation_report::retries, result.retries);
    fields.fill(GIGABAR_REPORT_DURATION_NS, &gigabar_operation_report::duration_ns, result.duration_ns);
    fields.fill(GIGABAR_REPORT_REASON, &gigabar_operation_report::reason, result.reason);
    fields.fill(GIGABAR_REPORT_RAILS, &gigabar_operation_report::rails, rails_text(result.rails));
    fields.finish();
  });
}

gigabar_status gigabar_fabric_explain_write(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                            uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options, char** text) {
  return explained(__func__, fabric, timeout_ns, options, text, &Fabric::explain_write, place_of(local), place_of(remote), bytes);
}

gigabar_status gigabar_fabric_explain_read(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                           uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options, char** text) {
  return explained(__func__, fabric, timeout_ns, options, text, &Fabric::explain_read, place_of(local), place_of(remote), bytes);
}
