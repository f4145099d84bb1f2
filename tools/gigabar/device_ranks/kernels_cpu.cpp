// SPDX-License-Identifier: Apache-2.0
// The kernels of these commands as threads of the CPU, and who runs them.
#include <memory>
#include <vector>

#include "device_ranks/round_unit.hpp"
#include "device_ranks/run_on_cpu.hpp"
#include "device_ranks/side_by_side_units.hpp"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks {
namespace {

// Whether device code is built. Without it no pair joins with another device than a stand-in (use_cuda_runtime()).
#if defined(GIGABAR_HAS_DEVICE_CODE)
constexpr bool kHasDeviceCode = true;
#else
constexpr bool kHasDeviceCode = false;
#endif

template <class Body>
Result<KernelRun> run_units(const DeviceInfo& device, const Grid& grid, const Body& body) {
  if constexpr (kHasDeviceCode) {
    if (!device.is_stand_in) return gpu::run_reporting(device.index, grid, body);
  }
  return run_reporting(grid, body);
}

}  // namespace

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  return run_body(plan, [&](const auto& body) { return run_units(device, grid, body); });
}

Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  return run_units(device, grid, TurnsBody{plan});
}

template <class Body>
Result<RepeatedKernel<Body>> open_repeated(const DeviceInfo& device, const Grid& grid, std::uint64_t fast_bytes) {
  if constexpr (kHasDeviceCode) {
    if (!device.is_stand_in) return gpu::open_repeated<Body>(device.index, grid, fast_bytes);
  }
  const std::size_t fast_values = fast_bytes / sizeof(float);
  const auto fast = std::make_shared<std::vector<float>>(fast_values * grid.unit_count());
  const auto all = std::make_shared<KernelRun>();
  all->ends.resize(grid.unit_count());
  return RepeatedKernel<Body>{
      [=](Body body) {
        body.ends = all->ends.data();
        run_on_cpu([&](const auto& scope, std::uint32_t unit) { body(scope, unit, fast->data() + unit * fast_values); }, grid);
        return Result<void>();
      },
      [all] { return Result(*all); }};
}
template Result<RepeatedKernel<OneTurnBody>> open_repeated(const DeviceInfo&, const Grid&, std::uint64_t);
template Result<RepeatedKernel<MatvecBody>> open_repeated(const DeviceInfo&, const Grid&, std::uint64_t);

}  // namespace gigabar::tool::device_ranks
