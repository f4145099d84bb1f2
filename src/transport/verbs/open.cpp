// SPDX-License-Identifier: Apache-2.0
// open_verbs() of every build, with librdmacm's header or without.
#include "transport/verbs/open.hpp"

#include <string>
#include <utility>

#include "base/errors.hpp"
#include "driver/rdmacm/rdmacm.hpp"
#include "driver/verbs/verbs.hpp"
#include "transport/verbs/wire.hpp"
#if GIGABAR_HAS_RDMACM
#include "transport/verbs/transport_state.hpp"
#endif

namespace gigabar::transport {
namespace {

constexpr int kMaxRailCount = static_cast<int>(rdma::kMaxRails);

Result<void> check_options(const TransportOptions& options) {
  const auto wrong = [](const char* option, std::string cause) {
    return make_error(Status::invalid_argument, "open verbs", option, std::move(cause));
  };
  if (options.rail_count < 1 || options.rail_count > kMaxRailCount || options.rails.size() > rdma::kMaxRails)
    return wrong("rail_count", text("1 to ", kMaxRailCount, " rails can be used"));
  if (options.gid_index < -1 || options.gid_index > 255)
    return wrong("gid_index", text(options.gid_index, " is not within 0 to 255"));
  if (options.traffic_class < -1 || options.traffic_class > 255)
    return wrong("traffic_class", text(options.traffic_class, " is not within 0 to 255"));
  if (options.connect_deadline_ns <= 0) return wrong("connect_deadline_ns", "a deadline is a positive time");
  if (options.service_level < -1 || options.service_level > 15)
    return wrong("service_level", text(options.service_level, " is not within 0 to 15"));
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> open_verbs(const TransportOptions& options) {
  if (Result<void> checked = check_options(options); !checked) return std::move(checked).error();
  if (!verbs::availability().is_ok()) return make_error("open verbs", "libibverbs", verbs::availability());
  if (!rdmacm::availability().is_ok()) return make_error("open verbs", "librdmacm", rdmacm::availability());
#if GIGABAR_HAS_RDMACM
  return rdma::VerbsTransport::open(options);
#else
  return make_error(Status::unavailable, "open verbs", "librdmacm", "this build has no support for RDMA connections");
#endif
}

}  // namespace gigabar::transport
