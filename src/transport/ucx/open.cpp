// SPDX-License-Identifier: Apache-2.0
// Of every build, with UCX's headers or without.
#include "transport/ucx/open.hpp"

#include <string_view>

#include "base/errors.hpp"
#include "driver/probe.hpp"
#include "driver/ucp/ucp.hpp"
#if GIGABAR_HAS_UCP
#include "transport/ucx/transport.hpp"
#endif

namespace gigabar::transport {

Result<std::unique_ptr<Transport>> open_ucx([[maybe_unused]] const TransportOptions& options) {
#if GIGABAR_HAS_UCP
  auto opened = ucx::UcxTransport::open(options);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Transport>(std::move(*opened));
#else
  return make_error("open UCX", "libucp", ucp::availability());
#endif
}

void serve_ucx_probes(int argument_count, char** arguments) {
  serve_probes();
  if (argument_count != 3 || std::string_view(arguments[1]) != kProbeOption || std::string_view(arguments[2]) != "libucp") return;
  begin_probe();
#if GIGABAR_HAS_UCP
  // Over loopback alone: this process is to be reached from nowhere else. What UCX says of it by an error the process that is tried
  // for will hear itself.
  TransportOptions options;
  options.ucx_devices = "lo";
  if (const auto opened = ucx::UcxTransport::open(options); opened) (*opened)->progress();
#endif
  end_probe();
}

}  // namespace gigabar::transport
