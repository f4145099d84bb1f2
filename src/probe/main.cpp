// SPDX-License-Identifier: Apache-2.0
// gigabar-probe: what libgigabar.so starts to open a library that may end the process (driver/probe.hpp).
#include <cstdio>

#include "transport/ucx/open.hpp"

int main(int argument_count, char** arguments) {
  gigabar::transport::serve_ucx_probes(argument_count, arguments);
  std::fputs("gigabar-probe: started by Gigabar's library, which tries libraries in it; it has no other use\n", stderr);
  return 2;
}
