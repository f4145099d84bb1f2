// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "device_ranks/matvec_unit.hpp"
#include "device_ranks/run_on_cpu.hpp"

namespace gigabar::tool::device_ranks {
namespace {

class CpuMatvecKernels : public MatvecKernels {
 public:
  CpuMatvecKernels(const MatvecPlan& plan, const Grid& grid)
      : plan_(plan), grid_(grid), fast_values_(plan.fast_bytes() / sizeof(float)), fast_(fast_values_ * grid.unit_count()) {}

  Result<void> run(MatvecTask task, std::uint32_t batch) override {
    ends_.assign(grid_.unit_count(), UnitEnd());
    const MatvecBody body{plan_, task, batch, ends_.data()};
    run_on_cpu([&](const auto& scope, std::uint32_t unit) { body(scope, unit, fast_.data() + unit * fast_values_); }, grid_);
    return {};
  }
  Result<std::vector<UnitEnd>> ends() override { return ends_; }

 private:
  const MatvecPlan plan_;
  const Grid grid_;
  const std::size_t fast_values_;
  std::vector<float> fast_;
  std::vector<UnitEnd> ends_;
};

}  // namespace

Result<std::unique_ptr<MatvecKernels>> open_matvec(const DeviceInfo& device, const MatvecPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_matvec(device.index, plan, grid);
  return std::unique_ptr<MatvecKernels>(std::make_unique<CpuMatvecKernels>(plan, grid));
}

}  // namespace gigabar::tool::device_ranks
