// SPDX-License-Identifier: Apache-2.0
#include "streams/plain.hpp"

#include <algorithm>
#include <utility>

#include "cuda/runtime.hpp"
#include "support/failure.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::streams {
namespace {

constexpr std::uint64_t kMaxCopies = 100;

bool has_plain_form(const Transfer& transfer) {
  return transfer.executor == StreamExecutor::copy_engine && transfer.source.is_host() != transfer.destination.is_host();
}

// Placed as run_streams() does it: on the nearest node where that can be, else anywhere.
HostMemory host_memory(const Machine& machine, const Transfer& transfer) {
  const StreamPlace& host = host_of(transfer);
  const int node = std::max(machine.node_of_host(transfer), -1);
  auto memory = HostMemory::allocate(transfer.bytes, {.numa_node = node, .pages = host.pages});
  if (!memory && node >= 0 && host.numa_node == StreamPlace::kNearestNode) {
    memory = HostMemory::allocate(transfer.bytes, {.numa_node = -1, .pages = host.pages});
  }
  return take(std::move(memory));
}

}  // namespace

PlainCopies::PlainCopies(const Machine& machine, const StreamPlan& plan)
    : machine_(machine), plan_(plan), samples_(plan.transfers.size()) {
  if (machine.is_stand_in()) refuse_usage("--plain: cudaMemcpyAsync needs a GPU; a stand-in has none");
}

void PlainCopies::sample() {
  for (std::size_t i = 0; i < plan_.transfers.size(); ++i) {
    const Transfer& transfer = plan_.transfers[i];
    if (!has_plain_form(transfer)) continue;
    const bool is_to_device = transfer.source.is_host();
    const int device = device_of(transfer).device;
    const auto memory = take(DeviceMemory::allocate(device, transfer.bytes));
    const HostMemory host = host_memory(machine_, transfer);
    const std::uint64_t count = std::clamp<std::uint64_t>(transfer.iterations, 1, kMaxCopies);
    void* const to = is_to_device ? memory.address() : host.address();
    const void* const from = is_to_device ? host.address() : memory.address();
    samples_[i].push_back(take(plain_copy_rate(device, to, from, transfer.bytes, count)));
  }
}

std::vector<std::optional<StreamFigure>> PlainCopies::figures() const {
  std::vector<std::optional<StreamFigure>> figures(samples_.size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (samples_[i].empty()) continue;
    std::vector<double> sorted = samples_[i];
    const double middle = median(sorted);  // sorts
    figures[i] = StreamFigure{middle, sorted.front(), sorted.back(), samples_[i]};
  }
  return figures;
}

}  // namespace gigabar::tool::streams
