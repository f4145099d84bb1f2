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
inline constexpr const char* kGdrdrvVersionFile = "/sys/module/gdrdrv/version";
inline constexpr Version kGdrdrvThatKeeps{2, 5};  // the first that keeps a mapping valid after its memory was freed

enum class Answer : std::uint8_t { no, yes, unknown };

// Whether something needed for a path is there, and if not, or if it cannot be told, why and what to do.
struct Support {
  Answer answer = Answer::unknown;
  std::string reason;  // for yes, what was found
  std::string remedy;
  std::vector<Reading> readings;

  Support& read(std::string source, std::string value) {
    readings.push_back({std::move(source), std::move(value)});
    return *this;
  }
  Support& say(Answer its_answer, std::string its_reason, std::string its_remedy = {}) {
    answer = its_answer;
    reason = std::move(its_reason);
    remedy = std::move(its_remedy);
    return *this;
  }
};

// --- the machine

// Addresses of NVIDIA display devices on the PCI bus.
std::vector<std::string> gpus_on_pci(const Patient& patient);
// A GPU on the bus, named by a driver, or at least the driver's files.
bool has_nvidia(const Patient& patient);
// "a Docker container"; empty: none that shows.
std::string container(const Patient& patient);

// --- the NVIDIA driver

inline constexpr unsigned kFirstOpenBranch = 515;  // the first driver that has open kernel modules
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

// The value of a parameter, or kNotNamed.
inline constexpr std::string_view kNotNamed = "not named";
std::string shown(const std::map<std::string, std::string>& params, const std::string& name);

// Names of /dev/nvidia0, ... in order.
std::vector<std::string> gpu_nodes(const Patient& patient);
// Whether the driver's control and GPU nodes are there for this user.
Availability resource_manager_nodes(const Patient& patient);

// What the libraries said of the GPU; where they said nothing, none of it is told.
const GpuAnswers& answers_of(const Patient& patient, const Gpu& gpu);
std::optional<int> cuda_attribute(const GpuAnswers& answers, const std::string& name);

struct NvLinkFacts {
  std::size_t active = 0, total = 0;
  bool is_told = false;
  bool has_switch = false;
  std::string fabric;  // NVML's state of the fabric; empty: not told

  bool is_waiting() const { return fabric == "not_started" || fabric == "in_progress"; }  // for the fabric
};
NvLinkFacts nvlinks_of(const Patient& patient, const Gpu& gpu);

// Lines of the kernel's log with every one of `words`, letters' case ignored; empty as well when there is no log.
std::vector<std::string> log_lines(const Patient& patient, std::initializer_list<std::string_view> words);
// 79, of "NVRM: Xid (PCI:0000:3b:00): 79, pid=...".
std::optional<std::uint64_t> xid_in(const std::string& line);

// --- the parts of RDMA by dma-buf

Support dmabuf_of_kernel(const Patient& patient);  // imports
Support dmabuf_of_verbs(const Patient& patient);   // libibverbs passes on
// Both, and whether the GPUs export: a no of one is a no, an unknown of one is unknown.
Support dmabuf(const Patient& patient);
Support peermem(const Patient& patient);
// What GPU-initiated networking needs of the driver.
Support gin_of_driver(const Patient& patient);

// --- GPUs that were lost while the machine ran: fallen off the bus, by the word of the driver or of the bus itself

struct FallenGpu {
  std::string address;     // "0000:3b:00.0"; empty: the kernel's log does not name it
  bool is_silent = false;  // its configuration space reads all ones
  std::string log_line;    // the last one that says so; empty: none does

  std::string statement() const;
};
// Of the bus's NVIDIA GPUs and of those that the kernel's log names, by address.
std::vector<FallenGpu> fallen_gpus(const Patient& patient);
// Whether reading the configuration space of a function gives ones only.
bool is_silent(const Patient& patient, const std::string& address);

}  // namespace gigabar::doctor
