// SPDX-License-Identifier: Apache-2.0
// The job: its options, the handle, and what it reports about itself.

#include "base/uncancelled.hpp"
#include "c/fabric_handle.hpp"
#include "c/json.hpp"
#include "c/members.hpp"

namespace gigabar::c {
namespace {

static_assert(static_cast<int>(TransportKind::verbs) == GIGABAR_TRANSPORT_VERBS);
static_assert(static_cast<int>(TransportKind::ucx) == GIGABAR_TRANSPORT_UCX);
static_assert(static_cast<int>(TransportKind::tcp) == GIGABAR_TRANSPORT_TCP);
static_assert(static_cast<int>(Preference::prefer) == GIGABAR_PREFER);
static_assert(static_cast<int>(Preference::require) == GIGABAR_REQUIRE);
static_assert(static_cast<int>(Preference::forbid) == GIGABAR_FORBID);
static_assert(static_cast<int>(RailPolicy::round_robin) == GIGABAR_RAILS_ROUND_ROBIN);
static_assert(static_cast<int>(RailPolicy::fixed) == GIGABAR_RAILS_FIXED);

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

}  // namespace

const Fabric& fabric_at(const gigabar_fabric* handle, const char* function) {
  const gigabar_fabric& one = object_at(handle, "fabric");
  if (one.generation != gigabar::detail::process_generation()) {
    const Uncancelled uncancelled;  // it logs
    throw Refused{make_error(Status::foreign_process, function, "fabric", "it belongs to the parent of this process",
                             "open a fabric in this process")};
  }
  return one.fabric;
}

Timeout timeout_of(std::int64_t timeout_ns, const char* argument) {
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

}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

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
