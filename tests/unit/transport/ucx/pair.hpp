// SPDX-License-Identifier: Apache-2.0
// Two UCX transports of this process with a link between them, over TCP's loopback.
#pragma once

#include "transport/ucx/link.hpp"
#include "transport/ucx/transport.hpp"
#include "unit/transport/placing/pair.hpp"

namespace gigabar::transport::ucx::test {

using namespace pairs;

inline std::unique_ptr<UcxTransport> open_transport(const TransportOptions& options = {}) {
  return pairs::open<UcxTransport>(options);
}

struct Pair : PairOf<UcxTransport> {
  using PairOf::PairOf;
  Pair() : PairOf(open_transport(), open_transport()) {}
};

}  // namespace gigabar::transport::ucx::test
