// SPDX-License-Identifier: Apache-2.0
// What the drivers' libraries say about a machine: the facts that no file tells. Asked of the libraries on this machine, kept in an
// archive for others, so that checks work the same on both. Every fact may be absent: nothing means that nobody could tell.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/nvml/nvml.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0::json {
class Value;
}

namespace gigabar::inline v0 {

struct GpuAnswers : nvml::DeviceFacts {  // name and UUID are CUDA's where it tells them
  std::string pci;                       // "0000:3b:00.0"
  std::optional<int> cuda_index;
  // CUDA's attributes by the names below; absent: the driver does not know the attribute.
  //   gpu_direct_rdma, dma_buf, vmm, integrated, gpu_direct_rdma_writes_ordering, flush_writes_options, host_native_atomics
  std::map<std::string, int> cuda_attributes;
  std::optional<std::uint64_t> bar1_total_bytes;
  std::optional<std::uint64_t> bar1_used_bytes;
  std::optional<unsigned> pcie_generation, pcie_width;  // now
  std::optional<std::vector<nvml::NvLink>> nvlinks;
  std::optional<unsigned> c2c_links;  // active links to a coherent CPU
};

// Between two GPUs, one direction.
struct PeerAnswers {
  std::string from, to;                             // PCI addresses
  std::optional<bool> can_access;                   // cuDeviceCanAccessPeer
  std::optional<std::string> read, write, atomics;  // NVML's P2P status: "ok", "chipset_not_supported", "gpu_not_supported",
                                                    // "topology_not_supported", "disabled_by_regkey", "not_supported", "unknown"
};

struct RdmaDeviceAnswers {
  std::string name;                  // "mlx5_0"
  std::optional<std::string> error;  // why ibv_open_device refused it
  std::vector<unsigned> active_mtu;  // bytes, of port 1, 2, ...; 0: not told
};

struct DriverAnswers {
  Availability cuda;
  Availability nvml;
  Availability verbs;
  std::optional<int> cuda_version;       // 13000
  std::string driver_version;            // "580.159.04"; empty: not told
  std::optional<bool> verbs_has_dmabuf;  // libibverbs has ibv_reg_dmabuf_mr
  std::vector<GpuAnswers> gpus;
  std::vector<PeerAnswers> peers;
  std::vector<RdmaDeviceAnswers> rdma_devices;
  // Lines of the kernel's log that speak of NVIDIA, RDMA, PCIe or IOMMU; nothing: not readable by this user.
  std::optional<std::vector<std::string>> kernel_log;
  // Of the process that asked: CAP_IPC_LOCK, RLIMIT_MEMLOCK in bytes (UINT64_MAX: none), and the CPUs it may run on ("0-15").
  std::optional<bool> can_lock_memory;
  std::optional<std::uint64_t> memlock_bytes;
  std::optional<std::string> allowed_cpus;
};

// Of a library that nobody asked: an archive or a folder without its answer. It says nothing about the machine.
Availability not_asked();
bool is_not_asked(const Availability& availability);
// Where nobody asked anything: a tree that was copied by hand, or written.
DriverAnswers no_answers();

// Asks the libraries and the kernel of this machine. Never fails: what cannot be told is absent. Cost: opens CUDA; up to seconds.
DriverAnswers ask_drivers();

// As JSON. Errors of reading: bad_file, with the key.
std::string to_json(const DriverAnswers& answers);
Result<DriverAnswers> driver_answers_of(std::string_view content);
// The same of a part of a document. Throws json::Problem.
DriverAnswers read_answers(const json::Value& from);

}  // namespace gigabar::inline v0
