// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 for one GPU whose minor and BAR1 differ from what /proc would say, so that a test can tell who answered; or for
// those that GIGABAR_FAKE_NVML_GPUS lists, as "ADDRESS [KEY=VALUE]...; ADDRESS ...":
//   pcie=5x16              generation and width of the PCIe link
//   links=18>switch@26562  NVLinks that are active, the other end (switch, hidden, or a GPU's address), MB/s; often as wanted
//   idle=6                 NVLinks that are not active
//   common=14000           MB/s of every NVLink, told as older GPUs do
//   c2c=10@44712           links to a coherent CPU, MB/s
//   memory=6016@3201       bits of the memory bus, MHz
//   most=5x16              generation and width that the device and its slot can do together
//   mig=1 persistence=0 fabric=3 reasons=4 retirement=1   as NVML's numbers for them
//   remap=1 remap-failed=0 rows wait to be remapped, or could not be
//   peers=0,4,5            what it can do to every other GPU's memory: read, write, atomics; as nvmlGpuP2PStatus_t
//   traffic=23100          MB/s that cross its PCIe link
//   carried=1000           KiB more that its NVLinks have carried, each time that it is asked
//   process=4711           a process that computes on it; often as wanted
// What is not listed, the GPU does not support. Built with GIGABAR_FAKE_NVML_IS_OLD it has only what NVML always had.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Link {
  bool is_active = false;
  std::string remote;
  unsigned mb_per_s = 0;
};

struct Gpu {
  std::string address;
  unsigned pcie_generation = 0, pcie_width = 0;
  std::vector<Link> links;
  unsigned common_mb_per_s = 0;
  unsigned c2c_count = 0, c2c_mb_per_s = 0;
  unsigned memory_bits = 0, memory_mhz = 0;
  unsigned most_generation = 0, most_width = 0;
  std::optional<unsigned> mig, persistence, fabric, reasons, retirement, remap, remap_failed, traffic, carried;
  std::vector<unsigned> processes;
  std::optional<std::array<unsigned, 3>> peers;
};

bool read_setting(const std::string& word, Gpu& gpu) {
  const std::pair<const char*, std::optional<unsigned>*> settings[] = {{"mig=%u", &gpu.mig},
                                                                       {"persistence=%u", &gpu.persistence},
                                                                       {"fabric=%u", &gpu.fabric},
                                                                       {"reasons=%u", &gpu.reasons},
                                                                       {"retirement=%u", &gpu.retirement},
                                                                       {"remap=%u", &gpu.remap},
                                                                       {"remap-failed=%u", &gpu.remap_failed},
                                                                       {"traffic=%u", &gpu.traffic},
                                                                       {"carried=%u", &gpu.carried}};
  for (const auto& [form, setting] : settings) {
    unsigned value = 0;
    if (std::sscanf(word.c_str(), form, &value) != 1) continue;
    *setting = value;
    return true;
  }
  std::array<unsigned, 3> peers{};
  if (std::sscanf(word.c_str(), "peers=%u,%u,%u", &peers[0], &peers[1], &peers[2]) != 3) return false;
  gpu.peers = peers;
  return true;
}

void read_word(const std::string& word, Gpu& gpu) {
  unsigned first = 0, second = 0;
  char remote[64] = {};
  if (std::sscanf(word.c_str(), "pcie=%ux%u", &first, &second) == 2) {
    gpu.pcie_generation = first;
    gpu.pcie_width = second;
  } else if (std::sscanf(word.c_str(), "links=%u>%63[^@]@%u", &first, remote, &second) >= 2) {
    gpu.links.insert(gpu.links.end(), first, Link{true, remote, second});
  } else if (std::sscanf(word.c_str(), "idle=%u", &first) == 1) {
    gpu.links.insert(gpu.links.end(), first, Link{});
  } else if (std::sscanf(word.c_str(), "common=%u", &first) == 1) {
    gpu.common_mb_per_s = first;
  } else if (std::sscanf(word.c_str(), "c2c=%u@%u", &first, &second) == 2) {
    gpu.c2c_count = first;
    gpu.c2c_mb_per_s = second;
  } else if (std::sscanf(word.c_str(), "memory=%u@%u", &first, &second) == 2) {
    gpu.memory_bits = first;
    gpu.memory_mhz = second;
  } else if (std::sscanf(word.c_str(), "process=%u", &first) == 1) {
    gpu.processes.push_back(first);
  } else if (std::sscanf(word.c_str(), "most=%ux%u", &first, &second) == 2) {
    gpu.most_generation = first;
    gpu.most_width = second;
  } else if (!read_setting(word, gpu)) {
    gpu.address = word;
  }
}

// The machine as the environment says now.
std::vector<Gpu> listed() {
  std::vector<Gpu> all;
  const char* text = std::getenv("GIGABAR_FAKE_NVML_GPUS");
  std::istringstream gpus(text != nullptr ? text : "0000:06:00.0");
  for (std::string line; std::getline(gpus, line, ';');) {
    Gpu gpu;
    std::istringstream words(line);
    for (std::string word; words >> word;) read_word(word, gpu);
    all.push_back(gpu);
  }
  return all;
}

// Handles stay valid for the life of the process.
Gpu* keep(const Gpu& gpu) {
  static std::mutex mutex;
  static std::deque<Gpu> all;
  const std::lock_guard lock(mutex);
  return &all.emplace_back(gpu);
}

Gpu* find(const std::string& address) {
  for (const Gpu& gpu : listed()) {
    if (gpu.address == address) return keep(gpu);
  }
  return nullptr;
}

}  // namespace

extern "C" {

nvmlReturn_t DECLDIR nvmlInit_v2() {
  return std::getenv("GIGABAR_FAKE_NVML_DENIES") != nullptr ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}

const char* DECLDIR nvmlErrorString(nvmlReturn_t) { return "a sentence of the fake library"; }

nvmlReturn_t DECLDIR nvmlSystemGetDriverVersion(char* version, unsigned int bytes) {
  std::snprintf(version, bytes, "570.86.10");
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleByPciBusId_v2(const char* address, nvmlDevice_t* device) {
  Gpu* const gpu = find(address);
  if (gpu == nullptr) return NVML_ERROR_NOT_FOUND;
  *device = reinterpret_cast<nvmlDevice_t>(gpu);
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t, nvmlBAR1Memory_t* memory) {
  memory->bar1Total = 1ull << 38;
  memory->bar1Used = 1ull << 20;
  memory->bar1Free = memory->bar1Total - memory->bar1Used;
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetMinorNumber(nvmlDevice_t, unsigned int* minor) {
  *minor = 5;
  return NVML_SUCCESS;
}

#ifndef GIGABAR_FAKE_NVML_IS_OLD

}  // extern "C"

namespace {

const Gpu& gpu_of(nvmlDevice_t device) { return *reinterpret_cast<const Gpu*>(device); }

nvmlReturn_t put(unsigned value, unsigned* answer) {
  if (value == 0) return NVML_ERROR_NOT_SUPPORTED;
  *answer = value;
  return NVML_SUCCESS;
}

template <class Answer>
nvmlReturn_t tell(const std::optional<unsigned>& value, Answer* answer) {
  if (!value) return NVML_ERROR_NOT_SUPPORTED;
  *answer = static_cast<Answer>(*value);
  return NVML_SUCCESS;
}

const Link* link_of(nvmlDevice_t device, unsigned link) {
  const Gpu& gpu = gpu_of(device);
  return link < gpu.links.size() ? &gpu.links[link] : nullptr;
}

// As an H200 answers: what is not supported comes back as a double, with its own return code.
void fill_field(const Gpu& gpu, nvmlFieldValue_t& field) {
  unsigned value = 0;
  if ((field.fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX || field.fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX) &&
      field.scopeId == 0xffffffff && gpu.carried) {
    static std::atomic<unsigned long long> carried_kib = 1ull << 40;  // more than 32 bits hold
    field.nvmlReturn = NVML_SUCCESS;
    field.valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field.value.ullVal = carried_kib += *gpu.carried;
    return;
  }
  switch (field.fieldId) {
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: value = gpu.common_mb_per_s; break;
    case 164: value = field.scopeId < gpu.links.size() ? gpu.links[field.scopeId].mb_per_s : 0; break;
    case 170: value = gpu.c2c_count; break;
    case 171: value = field.scopeId < gpu.c2c_count ? 1 : 0; break;
    case 172: value = gpu.c2c_mb_per_s; break;
    default: break;
  }
  field.nvmlReturn = value != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
  field.valueType = value != 0 ? NVML_VALUE_TYPE_UNSIGNED_INT : NVML_VALUE_TYPE_DOUBLE;
  field.value.ullVal = 0;
  field.value.uiVal = value;
}

}  // namespace

extern "C" {

nvmlReturn_t DECLDIR nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return put(gpu_of(device).pcie_generation, generation);
}
nvmlReturn_t DECLDIR nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return put(gpu_of(device).pcie_width, width);
}
nvmlReturn_t DECLDIR nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* bits) {
  return put(gpu_of(device).memory_bits, bits);
}
nvmlReturn_t DECLDIR nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* mhz) {
  return type == NVML_CLOCK_MEM ? put(gpu_of(device).memory_mhz, mhz) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t DECLDIR nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* state) {
  const Link* const found = link_of(device, link);
  if (found == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *state = found->is_active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t* type) {
  const Link* const found = link_of(device, link);
  if (found == nullptr || !found->is_active) return NVML_ERROR_NOT_SUPPORTED;
  *type = found->remote == "switch"   ? NVML_NVLINK_DEVICE_TYPE_SWITCH
          : found->remote == "hidden" ? NVML_NVLINK_DEVICE_TYPE_UNKNOWN
                                      : NVML_NVLINK_DEVICE_TYPE_GPU;
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  const Link* const found = link_of(device, link);
  if (found == nullptr || !found->is_active) return NVML_ERROR_NOT_SUPPORTED;
  // In a virtual machine, which does not see the switches, all ones; else eight digits of domain, capitals.
  unsigned domain = ~0u, bus = 0xff, port = 0xff, function = 0;
  std::sscanf(found->remote.c_str(), "%x:%x:%x.%x", &domain, &bus, &port, &function);
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%X", domain, bus, port, function);
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned>(listed().size());
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  const std::vector<Gpu> all = listed();
  if (index >= all.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = reinterpret_cast<nvmlDevice_t>(keep(all[index]));
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  unsigned domain = 0, bus = 0, port = 0, function = 0;
  if (std::sscanf(gpu_of(device).address.c_str(), "%x:%x:%x.%x", &domain, &bus, &port, &function) != 4) return NVML_ERROR_UNKNOWN;
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%X", domain, bus, port, function);
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned int bytes) {
  std::snprintf(name, bytes, "a GPU of the fake NVML");
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int bytes) {
  std::snprintf(uuid, bytes, "GPU-of-%s", gpu_of(device).address.c_str());
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return put(gpu_of(device).most_generation, generation);
}
nvmlReturn_t DECLDIR nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return put(gpu_of(device).most_width, width);
}
nvmlReturn_t DECLDIR nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* now, unsigned int* pending) {
  *pending = 0;
  return tell(gpu_of(device).mig, now);
}
nvmlReturn_t DECLDIR nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return tell(gpu_of(device).persistence, mode);
}
nvmlReturn_t DECLDIR nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t* is_pending) {
  return tell(gpu_of(device).retirement, is_pending);
}
nvmlReturn_t DECLDIR nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrected, unsigned int* uncorrected,
                                               unsigned int* is_pending, unsigned int* has_failed) {
  const Gpu& gpu = gpu_of(device);
  if (!gpu.remap && !gpu.remap_failed) return NVML_ERROR_NOT_SUPPORTED;
  *corrected = *uncorrected = 0;
  *is_pending = gpu.remap.value_or(0);
  *has_failed = gpu.remap_failed.value_or(0);
  return NVML_SUCCESS;
}
nvmlReturn_t DECLDIR nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return tell(gpu_of(device).reasons, reasons);
}
nvmlReturn_t DECLDIR nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* info) {
  *info = {};
  return tell(gpu_of(device).fabric, &info->state);
}
nvmlReturn_t DECLDIR nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t, nvmlGpuP2PCapsIndex_t index,
                                            nvmlGpuP2PStatus_t* status) {
  const auto& peers = gpu_of(first).peers;
  if (!peers) return NVML_ERROR_NOT_SUPPORTED;
  switch (index) {
    case NVML_P2P_CAPS_INDEX_READ: *status = static_cast<nvmlGpuP2PStatus_t>(peers->at(0)); return NVML_SUCCESS;
    case NVML_P2P_CAPS_INDEX_WRITE: *status = static_cast<nvmlGpuP2PStatus_t>(peers->at(1)); return NVML_SUCCESS;
    case NVML_P2P_CAPS_INDEX_ATOMICS: *status = static_cast<nvmlGpuP2PStatus_t>(peers->at(2)); return NVML_SUCCESS;
    default: return NVML_ERROR_INVALID_ARGUMENT;
  }
}

nvmlReturn_t DECLDIR nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int* kb_per_s) {
  const nvmlReturn_t told = tell(gpu_of(device).traffic, kb_per_s);
  if (told == NVML_SUCCESS && counter == NVML_PCIE_UTIL_RX_BYTES) *kb_per_s *= 1000;
  return told;
}

nvmlReturn_t DECLDIR nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                             nvmlProcessInfo_t* processes) {
  const std::vector<unsigned>& found = gpu_of(device).processes;
  if (*count < found.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  *count = static_cast<unsigned>(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    processes[i] = {};
    processes[i].pid = found[i];
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* fields) {
  for (int i = 0; i < count; ++i) fill_field(gpu_of(device), fields[i]);
  return NVML_SUCCESS;
}

#endif

}  // extern "C"
