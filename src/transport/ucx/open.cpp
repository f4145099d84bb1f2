// SPDX-License-Identifier: Apache-2.0
// open_ucx() of every build, with UCX's headers or without.
#include "transport/ucx/open.hpp"
#include "base/errors.hpp"
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

}  // namespace gigabar::transport
