// SPDX-License-Identifier: Apache-2.0
// What several checks ask about the NVIDIA driver, the kernel and the devices. Nothing here gives a verdict.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.hpp"

namespace gigabar::doctor {

inline constexpr const char* kNoGpu = "this machine has no NVIDIA GPU";
inline constexpr const char* kNoRdma = "this machine has no RDMA device";
inline constexpr const char* kVersionFile = "/proc/driver/nvidia/version";
inline constexpr const char* kParamsFile = "/proc/driver/nvidia/params";
inline constexpr const char* kGpusFolder = "/proc/driver/nvidia/gpus";
inline constexpr const char* kControlNode = "/dev/nvidiactl";

enum class Answer : std::uint8_t { no, yes, unknown };

// Whether something needed for a path is there, and if not, or if it cannot be told, why and what to do.
struct Support {
  Answer answer = Answer::unknown;
  std::string reason;  // for yes, what was found
  std::string remedy;
  std::vector<Reading> readings;
};

// --- the machine

// Addresses of NVIDIA display devices on the PCI bus.
std::vector<std::string> gpus_on_pci(const Patient& patient);
// A GPU on the bus, named by a driver, or at least the driver's files.
bool has_nvidia(const Patient& patient);
// Names below /sys/class/infiniband, and those of the topology.
std::vector<std::string> rdma_devices(const Patient& patient);
// Of the kernel, "mlx5_core", else by the device's name; empty: not told.
std::string rdma_driver(const Patient& patient, const std::string& device);
// "a Docker container"; empty: none that shows.
std::string container(const Patient& patient);
// "6.1.0-28-amd64"; empty: not told.
std::string kernel_release(const Patient& patient);

// --- the NVIDIA driver

struct DriverModule {
  bool is_loaded = false;                // /proc or /sys has it
  FileState state = FileState::missing;  // of kVersionFile
  std::string version;                   // "580.159.04"; empty: not told
  unsigned branch = 0;                   // 580; 0: not told
  Answer is_open = Answer::unknown;      // the open kernel modules
};
DriverModule driver_module(const Patient& patient);

// Of /proc/driver/nvidia/params, quotes removed; nothing when it cannot be read.
std::optional<std::map<std::string, std::string>> driver_params(const Patient& patient);

// Names of /dev/nvidia0, ... in order.
std::vector<std::string> gpu_nodes(const Patient& patient);
// Whether the driver's control and GPU nodes are there for this user.
Availability resource_manager_nodes(const Patient& patient);

const GpuAnswers* answers_of(const Patient& patient, const Gpu& gpu);
std::optional<int> cuda_attribute(const GpuAnswers* answers, const std::string& name);

// Lines of the kernel's log with every one of `words`, letters' case ignored; empty as well when there is no log.
std::vector<std::string> log_lines(const Patient& patient, std::initializer_list<std::string_view> words);

// --- the parts of RDMA by dma-buf

Support dmabuf_of_kernel(const Patient& patient);  // imports
Support dmabuf_of_gpus(const Patient& patient);    // exports
Support dmabuf_of_verbs(const Patient& patient);   // libibverbs passes on
// All three: a no of one is a no, an unknown of one is unknown.
Support dmabuf(const Patient& patient);
Support peermem(const Patient& patient);
// What GPU-initiated networking needs of the driver.
Support gin_of_driver(const Patient& patient);

// --- saying it

void say(Findings& findings, std::string subject, Verdict verdict, std::string statement, std::string remedy = {},
         bool needs_reboot = false);
void read_all(Findings& findings, const std::vector<Reading>& readings);
// "64 GiB", "256 MiB", "5.5 MiB".
std::string size_text(std::uint64_t bytes);
std::string joined(const std::vector<std::string>& words, std::string_view between = ", ");

// Collects a verdict for every GPU; one finding when all say the same.
class PerGpu {
 public:
  void add(const Gpu& gpu, Verdict verdict, std::string statement, std::string remedy = {}, std::vector<Reading> readings = {});
  void say_to(Findings& findings);

 private:
  struct Entry {
    std::string subject;
    Verdict verdict = Verdict::unknown;
    std::string statement, remedy;
    std::vector<Reading> readings;
  };
  bool are_alike() const;
  std::vector<Entry> entries_;
};

// The GPUs to look at; says skip or unknown itself when there are none, and then is empty.
std::vector<Gpu> gpus_to_check(const Patient& patient, Findings& findings);

}  // namespace gigabar::doctor
