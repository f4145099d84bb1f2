// SPDX-License-Identifier: Apache-2.0
// Plain cudaMemcpyAsync over memory of the same kind and place: what a transfer's figure is compared with.
#pragma once

#include <optional>
#include <vector>

#include "streams/point.hpp"

namespace gigabar::tool::streams {

// GB/s of one transfer, one sample per call: two copies that are not timed, then as many as one repeat has (at most 100), between
// two events. Nothing for transfers other than copies of a GPU's engine between it and the host.
class PlainCopies {
 public:
  // Ends the command when the memory cannot be had or CUDA's run-time is not built in.
  PlainCopies(const Machine& machine, const StreamPlan& plan);

  // One sample of each transfer, one after the other.
  void sample();
  // By the plan's index.
  std::vector<std::optional<StreamFigure>> figures() const;

 private:
  const Machine& machine_;
  const StreamPlan& plan_;
  std::vector<std::vector<double>> samples_;
};

}  // namespace gigabar::tool::streams
