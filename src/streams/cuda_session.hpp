// SPDX-License-Identifier: Apache-2.0
// Everything that a run of streams uses of CUDA: contexts, peer access, kernels, one CUDA stream per transfer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/streams.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {

// Made by one run, used for all its repeats. Threads: one, but for the workers it makes. Destroying it destroys its streams;
// nothing may be in flight. Fills and checks memory by the devices' own code when it can be loaded, else by the host's.
class CudaSession : public DeviceCode {
 public:
  // Makes what the transfer needs. Call once per transfer, before its memory is allocated. Errors: not_supported (no peer access),
  // unavailable (no device code for a kernel), device_error.
  virtual Result<void> prepare(std::size_t index, const Transfer& transfer) = 0;
  // Whether a transfer between GPUs goes straight from one to the other.
  virtual bool uses_peer_access(std::size_t index) const = 0;
  // "copy engine of device 1 (pull)".
  virtual std::string path_of(std::size_t index) const = 0;
  // Relates the devices' clocks to the CPU's: once before every repeat.
  virtual Result<void> read_clocks() = 0;
  // Workers for the transfers that a GPU carries: one per GPU for its streams, one for each transfer that waits for every copy.
  // `runs` and `ends` by index in the plan.
  virtual void add_workers(std::span<const std::unique_ptr<TransferRun>> runs, std::span<const std::unique_ptr<Ends>> ends,
                           Repeat& repeat, std::vector<Worker>& workers) = 0;
};

// Errors: unavailable (the driver lacks what streams need; not built with CUDA), device_error.
Result<std::unique_ptr<CudaSession>> open_cuda_session(std::span<const DeviceInfo> devices, const StreamPlan& plan);

}  // namespace gigabar::inline v0
