// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/probe.hpp"

#include <string_view>

#include "driver/probe.hpp"
#if GIGABAR_HAS_UCP
#include "transport/ucx/worker.hpp"
#endif

namespace gigabar::transport {
namespace {

#if GIGABAR_HAS_UCP
class Nobody final : public ucx::Receiver {
  void arrived(const ucx::WireHeader&, std::span<const std::byte>) override {}
  void stranger(const ucx::WireHeader*) override {}
};

// As Hub::open() does, over loopback alone: this process is to be reached from nowhere else. What UCX says of it by an error the
// process that is tried for will hear itself.
void open_ucx_once() {
  Nobody nobody;
  if (const auto worker = ucx::Worker::open(nobody, "lo"); worker) (*worker)->progress();
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
