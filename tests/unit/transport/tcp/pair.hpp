// SPDX-License-Identifier: Apache-2.0
// Two TCP transports of this process with a link between them, over loopback.
#pragma once

#include "transport/tcp/link.hpp"
#include "transport/tcp/transport.hpp"
#include "unit/transport/placing/pair.hpp"

namespace gigabar::transport::tcp::test {

using namespace pairs;

inline TransportOptions options_of(Protection protection) {
  TransportOptions options;
  options.is_tcp_sealed = protection == Protection::sealed;
  return options;
}

inline std::unique_ptr<TcpTransport> open_transport(const TransportOptions& options = {}) {
  return pairs::open<TcpTransport>(options);
}

struct Pair : PairOf<TcpTransport> {
  using PairOf::PairOf;
  explicit Pair(Protection protection = Protection::authenticated)
      : PairOf(open_transport(options_of(protection)), open_transport(options_of(protection))) {}
};

}  // namespace gigabar::transport::tcp::test
