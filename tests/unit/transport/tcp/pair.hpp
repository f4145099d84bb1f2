// SPDX-License-Identifier: Apache-2.0
// Two TCP transports of this process with a link between them, over loopback.
#pragma once

#include "support/scoped_environment.hpp"
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

// `lanes`: connections for large writes, whatever this machine's default is.
inline std::unique_ptr<TcpTransport> open_transport(const TransportOptions& options = {}, const char* lanes = "0") {
  const gigabar::test::ScopedEnvironment count("GIGABAR_TCP_CONNECTIONS", lanes);
  return pairs::open<TcpTransport>(options);
}

struct Pair : PairOf<TcpTransport> {
  using PairOf::PairOf;
  explicit Pair(Protection protection = Protection::authenticated, const char* lanes = "0")
      : PairOf(open_transport(options_of(protection), lanes), open_transport(options_of(protection), lanes)) {}
};

}  // namespace gigabar::transport::tcp::test
