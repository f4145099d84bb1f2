// SPDX-License-Identifier: Apache-2.0
// The readback kernel. Compiled to a fat binary that the library carries and the driver loads.
#include "copy/readback/protocol.hpp"
#include "gigabar/device/scope.hpp"

using namespace gigabar::readback;

extern "C" __global__ void __launch_bounds__(kThreads) gigabar_readback(Launch launch) {
  __shared__ alignas(Request) unsigned char memory[2 * sizeof(Request)];
  auto& requests = *reinterpret_cast<Request(*)[2]>(memory);
  serve(gigabar::device::Block(), launch, requests,
        [](std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); });
}
