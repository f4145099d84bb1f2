// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/probe.hpp"

#include <string_view>

#include "driver/probe.hpp"
#if GIGABAR_HAS_UCP
#include "transport/ucx/transport.hpp"
#endif

namespace gigabar::transport {
namespace {

#if GIGABAR_HAS_UCP
// Over loopback alone: this process is to be reached from nowhere else. What UCX says of it by an error the process that is tried
// for will hear itself.
void open_ucx_once() {
  TransportOptions options;
  options.ucx_devices = "lo";
  if (const auto opened = ucx::UcxTransport::open(options); opened) (*opened)->progress();
}
#else
void open_ucx_once() {}
#endif

}  // namespace

void serve_ucx_probes(int argument_count, char** arguments) {
  serve_probes();
  if (argument_count != 3 || std::string_view(arguments[1]) != kProbeOption || std::string_view(arguments[2]) != "libucp") return;
  begin_probe();
  open_ucx_once();
  end_probe();
}

}  // namespace gigabar::transport
