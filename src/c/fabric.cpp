// SPDX-License-Identifier: Apache-2.0
// The C interface to ranks: the job and its options; segments and notifications; one-sided operations, their completion, reports
// and explanations; messages and collectives.
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/uncancelled.hpp"
#include "c/call.hpp"
#include "c/json.hpp"
#include "gigabar/fabric.h"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"

struct gigabar_fabric {
  gigabar::Fabric fabric;
  const std::uint32_t generation = gigabar::detail::process_generation();  // of the process that opened it
};

using namespace gigabar;
using namespace gigabar::c;

namespace {

static_assert(static_cast<int>(TransportKind::verbs) == GIGABAR_TRANSPORT_VERBS);
static_assert(static_cast<int>(TransportKind::ucx) == GIGABAR_TRANSPORT_UCX);
static_assert(static_cast<int>(TransportKind::tcp) == GIGABAR_TRANSPORT_TCP);
static_assert(static_cast<int>(Preference::prefer) == GIGABAR_PREFER);
static_assert(static_cast<int>(Preference::require) == GIGABAR_REQUIRE);
static_assert(static_cast<int>(Preference::forbid) == GIGABAR_FORBID);
static_assert(static_cast<int>(RailPolicy::round_robin) == GIGABAR_RAILS_ROUND_ROBIN);
static_assert(static_cast<int>(RailPolicy::fixed) == GIGABAR_RAILS_FIXED);
static_assert(static_cast<int>(TransferPath::host) == GIGABAR_PATH_HOST);
static_assert(static_cast<int>(TransferPath::bar) == GIGABAR_PATH_BAR);
static_assert(static_cast<int>(TransferPath::p2p) == GIGABAR_PATH_P2P);
static_assert(static_cast<int>(TransferPath::gdr) == GIGABAR_PATH_GDR);
static_assert(static_cast<int>(TransferPath::staged) == GIGABAR_PATH_STAGED);
static_assert(kAnyRank == GIGABAR_ANY_RANK);
static_assert(static_cast<int>(ReduceOperation::minimum) == GIGABAR_MINIMUM);
static_assert(static_cast<int>(ReduceOperation::maximum) == GIGABAR_MAXIMUM);
static_assert(static_cast<int>(ReduceOperation::sum) == GIGABAR_SUM);
static_assert(static_cast<int>(MappedFor::cpu) == GIGABAR_MAPPED_FOR_CPU);

Fabric& fabric_at(gigabar_fabric* handle, const char*) { return object_at(handle, "fabric").fabric; }
// For calls of Fabric that return no error: refuses a forked child itself.
const Fabric& fabric_at(const gigabar_fabric* handle, const char* function) {
  const gigabar_fabric& one = object_at(handle, "fabric");
  if (one.generation != gigabar::detail::process_generation()) {
    const Uncancelled uncancelled;  // it logs
    throw Refused{make_error(Status::foreign_process, function, "fabric", "it belongs to the parent of this process",
                             "open a fabric in this process")};
  }
  return one.fabric;
}

// Negative numbers but GIGABAR_FOREVER are refused.
Timeout timeout_of(std::int64_t timeout_ns, const char* argument = "timeout_ns") {
  if (timeout_ns == GIGABAR_FOREVER) return Timeout::forever();
  if (timeout_ns < 0) refuse(argument, text("it is ", timeout_ns), "pass nanoseconds, 0 or more, or GIGABAR_FOREVER");
  return Timeout::of(std::chrono::nanoseconds(timeout_ns));
}

PathPolicy policy_of(const gigabar_path_policy& policy) {
  return {enumerator<Preference>(policy.gdr, 4, "options->policy.gdr"),
          enumerator<Preference>(policy.p2p, 4, "options->policy.p2p"),
          enumerator<Preference>(policy.bar, 4, "options->policy.bar"),
          enumerator<Preference>(policy.staged, 4, "options->policy.staged")};
}

PostOptions post_options_of(const gigabar_post_options* options) {
  const Fields fields(options, GIGABAR_POST_STRIPE_BYTES * 2 - 1, "options");
  PostOptions result;
  fields.read(GIGABAR_POST_QUEUE, &gigabar_post_options::queue, result.queue);
  if (const auto* policy = fields.find(GIGABAR_POST_POLICY, &gigabar_post_options::policy)) result.policy = policy_of(*policy);
  fields.read(GIGABAR_POST_CHUNK_BYTES, &gigabar_post_options::chunk_bytes, result.chunk_bytes);
  fields.read(GIGABAR_POST_STRIPE_BYTES, &gigabar_post_options::stripe_bytes, result.stripe_bytes);
  return result;
}

LocalPlace place_of(const gigabar_local_place& place) noexcept { return {place.segment, place.offset_bytes}; }
RemotePlace place_of(const gigabar_remote_place& place) noexcept { return {place.rank, place.segment, place.offset_bytes}; }

// A call of a job, which `body` gets.
template <class Handle, class Body>
gigabar_status on_fabric(const char* function, Handle* handle, Body&& body) noexcept {
  return guarded(function, [&] { body(fabric_at(handle, function)); });
}

// Stores the operation that `post` posts, where the caller asks for it: a method of the job, which gets what is given and the
// options, or a function that gets the job first.
template <class Post, class... Given>
gigabar_status posted(const char* function, gigabar_fabric* handle, const gigabar_post_options* options,
                      gigabar_operation* operation, const Post& post, const Given&... given) noexcept {
  return on_fabric(function, handle, [&](Fabric& job) {
    const Operation result = c::take(std::invoke(post, job, given..., post_options_of(options)));
    if (operation != nullptr) *operation = static_cast<gigabar_operation>(result);
  });
}

constexpr std::uint64_t kAllOptions = GIGABAR_FABRIC_CONNECT_TIMEOUT_NS * 2 - 1;
using OptionFields = Fields<const gigabar_fabric_options>;

std::optional<std::string> text_option(const OptionFields& fields, std::uint64_t bit,
                                       const char* const gigabar_fabric_options::* member, const char* name) {
  const auto* const set = fields.find(bit, member);
  if (set == nullptr) return std::nullopt;
  return std::string(&object_at(*set, name));
}

void read_transports(const OptionFields& fields, FabricOptions& options) {
  const auto* const set = fields.find(GIGABAR_FABRIC_TRANSPORTS, &gigabar_fabric_options::transports);
  if (set == nullptr) return;
  const std::uint64_t count = *fields.find(GIGABAR_FABRIC_TRANSPORTS, &gigabar_fabric_options::transport_count);
  if (count == 0 || count > kTransportKinds) {
    refuse("options->transport_count", text("it is ", count), text("name 1 to ", kTransportKinds, " transports, or clear the bit"));
  }
  const gigabar_transport* const first = &object_at(*set, "options->transports");
  for (std::uint64_t i = 0; i < count; ++i) {
    options.transports.push_back(
        enumerator<TransportKind>(first[i], static_cast<std::int32_t>(kTransportKinds), "options->transports"));
  }
}

void read_job(const OptionFields& fields, FabricOptions& options) {
  fields.read(GIGABAR_FABRIC_RANK, &gigabar_fabric_options::rank, options.rank);
  fields.read(GIGABAR_FABRIC_RANK_COUNT, &gigabar_fabric_options::rank_count, options.rank_count);
  fields.read(GIGABAR_FABRIC_MASTER_PORT, &gigabar_fabric_options::master_port, options.master_port);
  options.master_address =
      text_option(fields, GIGABAR_FABRIC_MASTER_ADDRESS, &gigabar_fabric_options::master_address, "options->master_address");
  options.job_key = text_option(fields, GIGABAR_FABRIC_JOB_KEY, &gigabar_fabric_options::job_key, "options->job_key");
}

void read_paths(const OptionFields& fields, FabricOptions& options) {
  read_transports(fields, options);
  fields.read(GIGABAR_FABRIC_UCX_TRUST_NETWORK, &gigabar_fabric_options::ucx_trust_network, options.ucx_trust_network);
  if (const auto rails = text_option(fields, GIGABAR_FABRIC_RAILS, &gigabar_fabric_options::rails, "options->rails")) {
    options.rails = parts_of(*rails);
  }
  fields.read(GIGABAR_FABRIC_RAIL_COUNT, &gigabar_fabric_options::rail_count, options.rail_count);
  if (const auto* policy = fields.find(GIGABAR_FABRIC_RAIL_POLICY, &gigabar_fabric_options::rail_policy)) {
    options.rail_policy = enumerator<RailPolicy>(*policy, 3, "options->rail_policy");
  }
  if (const auto* policy = fields.find(GIGABAR_FABRIC_POLICY, &gigabar_fabric_options::policy)) options.policy = policy_of(*policy);
  fields.read(GIGABAR_FABRIC_DEVICE, &gigabar_fabric_options::device, options.device);
  options.cpus = text_option(fields, GIGABAR_FABRIC_CPUS, &gigabar_fabric_options::cpus, "options->cpus");
  fields.read(GIGABAR_FABRIC_GID_INDEX, &gigabar_fabric_options::gid_index, options.gid_index);
  fields.read(GIGABAR_FABRIC_TRAFFIC_CLASS, &gigabar_fabric_options::traffic_class, options.traffic_class);
  fields.read(GIGABAR_FABRIC_SERVICE_LEVEL, &gigabar_fabric_options::service_level, options.service_level);
}

void read_limits(const OptionFields& fields, FabricLimits& limits) {
  fields.read(GIGABAR_FABRIC_EAGER_BYTES, &gigabar_fabric_options::eager_bytes, limits.eager_bytes);
  fields.read(GIGABAR_FABRIC_GDR_BYTES, &gigabar_fabric_options::gdr_bytes, limits.gdr_bytes);
  fields.read(GIGABAR_FABRIC_GDR_READ_BYTES, &gigabar_fabric_options::gdr_read_bytes, limits.gdr_read_bytes);
  fields.read(GIGABAR_FABRIC_CHUNK_BYTES, &gigabar_fabric_options::chunk_bytes, limits.chunk_bytes);
  fields.read(GIGABAR_FABRIC_CHUNK_COUNT, &gigabar_fabric_options::chunk_count, limits.chunk_count);
  fields.read(GIGABAR_FABRIC_KERNEL_BYTES, &gigabar_fabric_options::kernel_bytes, limits.kernel_bytes);
  fields.read(GIGABAR_FABRIC_STRIPE_BYTES, &gigabar_fabric_options::stripe_bytes, limits.stripe_bytes);
}

FabricOptions options_of(const gigabar_fabric_options* given) {
  const OptionFields fields(given, kAllOptions, "options");
  FabricOptions options;
  read_job(fields, options);
  read_paths(fields, options);
  read_limits(fields, options.limits);
  fields.read(GIGABAR_FABRIC_PROGRESS_THREAD, &gigabar_fabric_options::progress_thread, options.progress_thread);
  if (const auto* timeout = fields.find(GIGABAR_FABRIC_CONNECT_TIMEOUT_NS, &gigabar_fabric_options::connect_timeout_ns)) {
    options.connect_timeout = timeout_of(*timeout, "options->connect_timeout_ns");
  }
  return options;
}

MappedFor mapped_for_of(gigabar_mapped_for mapped_for) { return enumerator<MappedFor>(mapped_for, 2, "mapped_for"); }

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
  return joined(rails, ", ", [](const RailShare& share) { return text(share.rail, " ", share.bytes); });
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

// ---- the job

gigabar_status gigabar_fabric_open(const gigabar_fabric_options* options, gigabar_fabric** fabric) {
  return guarded(__func__, [&] {
    gigabar_fabric*& result = object_at(fabric, "fabric");
    result = new gigabar_fabric{take(Fabric::open(options_of(options)))};
  });
}

gigabar_status gigabar_fabric_close(gigabar_fabric* fabric, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    take(job.close(timeout_of(timeout_ns)));
    delete fabric;
  });
}

gigabar_status gigabar_fabric_abandon(gigabar_fabric* fabric) {
  return guarded(__func__, [&] { delete &object_at(fabric, "fabric"); });
}

gigabar_status gigabar_fabric_describe(const gigabar_fabric* fabric, gigabar_fabric_info* info) {
  return on_fabric(__func__, fabric, [&](const Fabric& job) {
    Fields fields(&object_at(info, "info"), GIGABAR_FABRIC_INFO_ALL, "info");
    const FabricStatistics counts = job.statistics();
    fields.fill(GIGABAR_FABRIC_INFO_RANK, &gigabar_fabric_info::rank, job.rank());
    fields.fill(GIGABAR_FABRIC_INFO_RANK_COUNT, &gigabar_fabric_info::rank_count, job.rank_count());
    fields.fill(GIGABAR_FABRIC_INFO_LOCAL_RANK, &gigabar_fabric_info::local_rank, job.local_rank());
    fields.fill(GIGABAR_FABRIC_INFO_DEVICE, &gigabar_fabric_info::device, job.device());
    fields.fill(GIGABAR_FABRIC_INFO_OPERATIONS, &gigabar_fabric_info::operations, counts.operations);
    fields.fill(GIGABAR_FABRIC_INFO_MESSAGES, &gigabar_fabric_info::messages, counts.messages);
    fields.fill(GIGABAR_FABRIC_INFO_STAGED_OPERATIONS, &gigabar_fabric_info::staged_operations, counts.staged_operations);
    fields.fill(GIGABAR_FABRIC_INFO_REFUSED_STRANGERS, &gigabar_fabric_info::refused_strangers, counts.refused_strangers);
    fields.finish();
  });
}

gigabar_status gigabar_fabric_json(const gigabar_fabric* fabric, char** text) {
  return on_fabric(__func__, fabric, [&](const Fabric& job) {
    char*& result = object_at(text, "text");
    result = new_text(json_of(Members{[&](const auto& put) {
      put("rank", job.rank());
      put("rank_count", job.rank_count());
      put("settings", job.settings());
      put("cpus", job.cpus());
      put("peers", job.peers());
    }}));
  });
}

gigabar_status gigabar_fabric_connect(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.connect(rank, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_fabric_forget(gigabar_fabric* fabric, uint32_t rank) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.forget(rank)); });
}

// ---- segments and notifications

gigabar_status gigabar_segment_register(gigabar_fabric* fabric, uint16_t id, void* address, uint64_t bytes) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.register_segment(id, address, bytes)); });
}

gigabar_status gigabar_segment_quiesce(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.quiesce(id, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_segment_enable(gigabar_fabric* fabric, uint16_t id) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.enable(id)); });
}

gigabar_status gigabar_segment_deregister(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.deregister_segment(id, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_segment_remote_bytes(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                            uint64_t* bytes) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint64_t& result = object_at(bytes, "bytes");
    result = take(job.remote_segment(rank, id, timeout_of(timeout_ns))).bytes;
  });
}

gigabar_status gigabar_segment_map(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                   gigabar_mapped_for mapped_for, void** address) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    void*& result = object_at(address, "address");
    result = take(job.map_segment(rank, id, timeout_of(timeout_ns), mapped_for_of(mapped_for)));
  });
}

gigabar_status gigabar_segment_unmap(gigabar_fabric* fabric, uint32_t rank, uint16_t id, gigabar_mapped_for mapped_for) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.unmap_segment(rank, id, mapped_for_of(mapped_for))); });
}

gigabar_status gigabar_notification_wait(gigabar_fabric* fabric, uint16_t segment, uint32_t first, uint32_t count,
                                         int64_t timeout_ns, uint32_t* id) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint32_t& result = object_at(id, "id");
    result = take(job.notification_wait(segment, first, count, timeout_of(timeout_ns)));
  });
}

gigabar_status gigabar_notification_wait_count(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t value,
                                               int64_t timeout_ns) {
  return on_fabric(__func__, fabric,
                   [&](Fabric& job) { take(job.notification_wait_count(segment, id, value, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_notification_reset(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t* previous) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint32_t& result = object_at(previous, "previous");
    result = take(job.notification_reset(segment, id));
  });
}

// ---- one-sided operations

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

// ---- messages and collectives

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
