// SPDX-License-Identifier: Apache-2.0
// What the probes share: the GPUs and RDMA devices that this process can use, and GPU memory that an adapter may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "doctor/check.hpp"
#include "driver/verbs/verbs.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::doctor {

inline constexpr std::size_t kProbeBytes = 65536;

// A GPU that this process can allocate on.
struct ProbeGpu {
  int device = 0;  // CUDA's ordinal
  PciAddress address;
  int index = -1;  // into Topology::gpus; -1: it is not there

  std::string subject() const { return "GPU " + address.to_string(); }
};

// All real GPUs of this process. Without one, or on another machine, throws the ruling that says why: every probe of GPUs begins
// so.
std::vector<ProbeGpu> probe_gpus(const Patient& patient, Findings& findings);

// Names of the RDMA devices that libibverbs lists. Without one, or on another machine, throws why.
std::vector<std::string> probe_rdma_devices(const Patient& patient, Findings& findings);

// "GPU 0000:3b:00.0 and mlx5_0".
std::string pair_subject(const ProbeGpu& gpu, const std::string& rdma_device);

// Bytes that tell their place; different seeds differ everywhere.
std::vector<unsigned char> probe_pattern(std::size_t bytes, unsigned seed);

// "11.3", "1.25": a rate or a time in a statement.
std::string short_number(double number);

// GPU memory that begins at a page of the GPU, and its dma-buf where the driver makes one.
class ProbeMemory {
 public:
  // Throws a ruling of the GPU that says why not.
  static ProbeMemory allocate(const ProbeGpu& gpu);

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.address()); }
  // Registers the first kProbeBytes. Errors: of the registration, and of the export of a dma-buf.
  Result<verbs::Region> register_dma_buf(const verbs::Device& device) const;
  Result<verbs::Region> register_peer_memory(const verbs::Device& device) const;

 private:
  explicit ProbeMemory(DeviceMemory memory);
  DeviceMemory memory_;
  Result<Descriptor> dma_buf_;
};

// What an error of a registration means here, and what to do; `meaning` is that of an errno.
using Meaning = Ruling(const Patient& patient, int code);
Meaning meaning_for_host_memory;
Ruling explain(const Patient& patient, Meaning meaning, const ErrorRecord& record);

}  // namespace gigabar::doctor
