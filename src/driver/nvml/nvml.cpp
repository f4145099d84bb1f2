// SPDX-License-Identifier: Apache-2.0
#include "driver/nvml/nvml.hpp"

#if GIGABAR_HAS_NVML
// The header renames older functions to newer ones; the table below takes the exported names as they are.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "driver/loader.hpp"
#include "gigabar/types.hpp"

namespace gigabar::nvml {
#if GIGABAR_HAS_NVML
namespace {

// Newer headers mark the functions of older drivers as deprecated; they are asked when the newer ones are not there.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define GIGABAR_SYMBOLS "driver/nvml/symbols.def"
#include "driver/functions.inc"

#pragma GCC diagnostic pop

LibraryOf<Functions> load() {
  auto library = load_functions<Functions>("libnvidia-ml.so.1", "GIGABAR_NVML_LIBRARY",
                                           "install the NVIDIA driver's management library", "install a newer NVIDIA driver");
  if (!library.availability.is_ok()) {
    library.availability.check = check_id::kLibraries;
    return library;
  }
  if (const nvmlReturn_t result = library.nvmlInit_v2(); result != NVML_SUCCESS) {
    library.availability = {result == NVML_ERROR_NO_PERMISSION ? AvailabilityCode::no_permission : AvailabilityCode::no_device,
                            text("nvmlInit failed: ", library.nvmlErrorString(result)),
                            "check nvidia-smi",
                            {NativeDomain::nvml, result, text("nvmlReturn ", static_cast<int>(result))},
                            std::string(check_id::kDriverLoaded)};
    return library;
  }
  library.availability.reason = "initialised";
  return library;
}

const LibraryOf<Functions>& library() {
  static const auto instance = load();
  return instance;
}

// The number behind an enumerator that the library wrote. A newer driver may write one that this header does not have, which must
// not be read as the enum.
using EnumNumber = std::underlying_type_t<nvmlEnableState_t>;
template <class Value>
using Answer = std::conditional_t<std::is_enum_v<Value>, EnumNumber, Value>;

// The answer of a function that writes one value for a device; nothing when the library does not have the function, or it fails.
template <class Value, class Function, class... Arguments>
std::optional<Answer<Value>> ask(Function function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != NVML_SUCCESS) return {};
  if constexpr (std::is_enum_v<Value>) {
    EnumNumber number = 0;
    static_assert(sizeof number == sizeof value);
    std::memcpy(&number, &value, sizeof number);
    return number;
  } else {
    return value;
  }
}

std::optional<nvmlDevice_t> device_at(const std::string& pci_address) {
  if (!library().availability.is_ok()) return {};
  return ask<nvmlDevice_t>(library().nvmlDeviceGetHandleByPciBusId_v2, pci_address.c_str());
}

std::optional<std::uint64_t> wide_field_of(nvmlDevice_t device, unsigned field, unsigned scope = 0) {
  nvmlFieldValue_t value{};
  value.fieldId = field;
  value.scopeId = scope;
  const auto get = library().nvmlDeviceGetFieldValues;
  if (get == nullptr || get(device, 1, &value) != NVML_SUCCESS || value.nvmlReturn != NVML_SUCCESS) return {};
  switch (value.valueType) {
    case NVML_VALUE_TYPE_UNSIGNED_INT: return value.value.uiVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG: return value.value.ulVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: return value.value.ullVal;
    default: return {};
  }
}

std::optional<unsigned> field_of(nvmlDevice_t device, unsigned field, unsigned scope = 0) {
  const auto value = wide_field_of(device, field, scope);
  if (!value) return {};
  return static_cast<unsigned>(*value);
}

// Newer than the oldest header that this builds with.
constexpr unsigned kNvLinkSpeed = 164;  // of the link in scopeId; Hopper and newer answer this one only
constexpr unsigned kC2cLinkCount = 170;
constexpr unsigned kC2cLinkStatus = 171;
constexpr unsigned kC2cLinkMaxBandwidth = 172;
constexpr unsigned kMaxC2cLinks = 64;
constexpr unsigned kNvLinkSentKib = 138;  // of payload, over the links in scopeId
constexpr unsigned kNvLinkReceivedKib = 139;
constexpr unsigned kAllNvLinks = 0xffffffff;

NvLink active_nvlink(nvmlDevice_t device, unsigned link) {
  NvLink found;
  found.is_active = true;
  if (const auto type = ask<nvmlIntNvLinkDeviceType_t>(library().nvmlDeviceGetNvLinkRemoteDeviceType, device, link)) {
    found.is_switch = *type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
  }
  if (const auto remote = ask<nvmlPciInfo_t>(library().nvmlDeviceGetNvLinkRemotePciInfo_v2, device, link)) {
    found.remote_pci.assign(remote->busId, ::strnlen(remote->busId, sizeof remote->busId));
  }
  found.mb_per_s = field_of(device, kNvLinkSpeed, link).value_or(0);
  if (found.mb_per_s == 0) found.mb_per_s = field_of(device, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON).value_or(0);
  return found;
}

// "00000000:3B:00.0" as the other components write it: four digits of domain, or more where it has them, in lower case.
std::optional<std::string> address_of(const nvmlPciInfo_t& pci) {
  const auto address = PciAddress::parse({pci.busId, ::strnlen(pci.busId, sizeof pci.busId)});
  if (!address) return {};
  return address->to_string();
}

std::optional<bool> is_enabled(std::optional<EnumNumber> state) {
  if (!state) return {};
  return *state == NVML_FEATURE_ENABLED;
}

template <class Function>
std::string text_of(Function function, nvmlDevice_t device) {
  char line[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};  // the longest of names and UUIDs
  if (function == nullptr || function(device, line, sizeof line - 1) != NVML_SUCCESS) return {};
  return line;
}

template <class Function>
std::optional<PcieLinkState> link_of(nvmlDevice_t device, Function get_generation, Function get_width) {
  const auto generation = ask<unsigned>(get_generation, device);
  const auto width = ask<unsigned>(get_width, device);
  if (!generation || !width) return {};
  return PcieLinkState{*generation, *width};
}

#ifdef NVML_GPU_FABRIC_STATE_COMPLETED
std::optional<std::string> fabric_state_of(nvmlDevice_t device) {
  const auto info = ask<nvmlGpuFabricInfo_t>(library().nvmlDeviceGetGpuFabricInfo, device);
  if (!info) return {};
  switch (info->state) {
    case NVML_GPU_FABRIC_STATE_NOT_SUPPORTED: return "not_supported";
    case NVML_GPU_FABRIC_STATE_NOT_STARTED: return "not_started";
    case NVML_GPU_FABRIC_STATE_IN_PROGRESS: return "in_progress";
    case NVML_GPU_FABRIC_STATE_COMPLETED: return "completed";
    default: return {};
  }
}
#else
std::optional<std::string> fabric_state_of(nvmlDevice_t) { return {}; }
#endif

std::optional<std::uint64_t> clocks_event_reasons_of(nvmlDevice_t device) {
#ifdef nvmlClocksEventReasonGpuIdle
  if (const auto reasons = ask<unsigned long long>(library().nvmlDeviceGetCurrentClocksEventReasons, device)) return *reasons;
#endif
  return ask<unsigned long long>(library().nvmlDeviceGetCurrentClocksThrottleReasons, device);
}

void add_memory_facts(nvmlDevice_t device, DeviceFacts& facts) {
  unsigned corrected = 0, uncorrected = 0, is_pending = 0, has_failed = 0;
  const auto rows = library().nvmlDeviceGetRemappedRows;
  if (rows != nullptr && rows(device, &corrected, &uncorrected, &is_pending, &has_failed) == NVML_SUCCESS) {
    facts.is_row_remap_pending = is_pending != 0;
    facts.has_row_remap_failed = has_failed != 0;
  }
  facts.is_page_retirement_pending = is_enabled(ask<nvmlEnableState_t>(library().nvmlDeviceGetRetiredPagesPendingStatus, device));
}

const char* name_of_p2p_status(EnumNumber status) {
  switch (status) {
    case NVML_P2P_STATUS_OK: return "ok";
    case NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED: return "chipset_not_supported";
    case NVML_P2P_STATUS_GPU_NOT_SUPPORTED: return "gpu_not_supported";
    case NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: return "topology_not_supported";
    case NVML_P2P_STATUS_DISABLED_BY_REGKEY: return "disabled_by_regkey";
    case NVML_P2P_STATUS_NOT_SUPPORTED: return "not_supported";
    default: return "unknown";
  }
}

nvmlGpuP2PCapsIndex_t index_of(PeerCapability capability) {
  constexpr std::array kIndexes{NVML_P2P_CAPS_INDEX_READ, NVML_P2P_CAPS_INDEX_WRITE, NVML_P2P_CAPS_INDEX_ATOMICS};
  return kIndexes[static_cast<std::size_t>(capability)];
}

}  // namespace

const Availability& availability() { return library().availability; }

std::optional<std::string> driver_version() {
  char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
  if (!availability().is_ok() || library().nvmlSystemGetDriverVersion(version, sizeof version) != NVML_SUCCESS) return {};
  return std::string(version);
}

std::optional<Bar1> bar1(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  const auto memory = device ? ask<nvmlBAR1Memory_t>(library().nvmlDeviceGetBAR1MemoryInfo, *device) : std::nullopt;
  if (!memory) return {};
  return Bar1{memory->bar1Total, memory->bar1Used};
}

std::optional<unsigned> device_minor(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  return device ? ask<unsigned>(library().nvmlDeviceGetMinorNumber, *device) : std::nullopt;
}

std::optional<PcieLinkState> pcie_link(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device) return {};
  return link_of(*device, library().nvmlDeviceGetCurrPcieLinkGeneration, library().nvmlDeviceGetCurrPcieLinkWidth);
}

std::optional<std::vector<NvLink>> nvlinks(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device || library().nvmlDeviceGetNvLinkState == nullptr || library().nvmlDeviceGetNvLinkRemoteDeviceType == nullptr ||
      library().nvmlDeviceGetNvLinkRemotePciInfo_v2 == nullptr)
    return {};
  std::vector<NvLink> links;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state{};
    const nvmlReturn_t result = library().nvmlDeviceGetNvLinkState(*device, link, &state);
    if (result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_INVALID_ARGUMENT) break;  // it has no more links
    if (result != NVML_SUCCESS) return {};
    links.push_back(state == NVML_FEATURE_ENABLED ? active_nvlink(*device, link) : NvLink{});
  }
  return links;
}

std::optional<C2cLinks> c2c_links(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device) return {};
  const auto count = field_of(*device, kC2cLinkCount);
  C2cLinks links;
  for (unsigned link = 0; link < std::min(count.value_or(0), kMaxC2cLinks); ++link) {
    if (field_of(*device, kC2cLinkStatus, link).value_or(0) != 1) continue;
    const auto speed = field_of(*device, kC2cLinkMaxBandwidth, link);
    if (!speed || *speed == 0) return {};
    ++links.active_count;
    links.mb_per_s = links.mb_per_s == 0 ? *speed : std::min(links.mb_per_s, *speed);
  }
  return links;
}

std::optional<MemoryBus> memory_bus(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device) return {};
  const auto width = ask<unsigned>(library().nvmlDeviceGetMemoryBusWidth, *device);
  const auto clock = ask<unsigned>(library().nvmlDeviceGetMaxClockInfo, *device, NVML_CLOCK_MEM);
  if (!width || !clock || *width == 0 || *clock == 0) return {};
  return MemoryBus{*width, *clock};
}

std::optional<double> pcie_traffic_gb_per_s(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device) return {};
  const auto sent = ask<unsigned>(library().nvmlDeviceGetPcieThroughput, *device, NVML_PCIE_UTIL_TX_BYTES);
  const auto received = ask<unsigned>(library().nvmlDeviceGetPcieThroughput, *device, NVML_PCIE_UTIL_RX_BYTES);
  if (!sent || !received) return {};
  return std::max(*sent, *received) * 1e-6;  // of KB/s
}

std::optional<std::uint64_t> nvlink_carried_bytes(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  if (!device) return {};
  const auto sent = wide_field_of(*device, kNvLinkSentKib, kAllNvLinks);
  const auto received = wide_field_of(*device, kNvLinkReceivedKib, kAllNvLinks);
  if (!sent || !received) return {};
  return (*sent + *received) * 1024;
}

std::vector<unsigned> compute_processes(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  const auto list = library().nvmlDeviceGetComputeRunningProcesses_v3;
  if (!device || list == nullptr) return {};
  std::vector<nvmlProcessInfo_t> found(kMaxProcesses);
  unsigned count = kMaxProcesses;
  if (list(*device, &count, found.data()) != NVML_SUCCESS) return {};
  std::vector<unsigned> processes;
  for (unsigned i = 0; i < std::min(count, kMaxProcesses); ++i) processes.push_back(found[i].pid);
  return processes;
}

std::vector<std::string> devices() {
  std::vector<std::string> addresses;
  if (!availability().is_ok() || library().nvmlDeviceGetHandleByIndex_v2 == nullptr) return addresses;
  const unsigned count = ask<unsigned>(library().nvmlDeviceGetCount_v2).value_or(0);
  for (unsigned index = 0; index < std::min(count, kMaxDevices); ++index) {
    const auto device = ask<nvmlDevice_t>(library().nvmlDeviceGetHandleByIndex_v2, index);
    if (!device) continue;
    const auto pci = ask<nvmlPciInfo_t>(library().nvmlDeviceGetPciInfo_v3, *device);
    if (auto address = pci ? address_of(*pci) : std::nullopt) addresses.push_back(std::move(*address));
  }
  return addresses;
}

std::optional<std::string> address_of_uuid(const std::string& uuid) {
  for (std::string& address : devices()) {
    const auto device = device_at(address);
    if (device && text_of(library().nvmlDeviceGetUUID, *device) == uuid) return std::move(address);
  }
  return {};
}

DeviceFacts facts(const std::string& pci_address) {
  DeviceFacts facts;
  const auto device = device_at(pci_address);
  if (!device) return facts;
  facts.name = text_of(library().nvmlDeviceGetName, *device);
  facts.uuid = text_of(library().nvmlDeviceGetUUID, *device);
  if (const auto most = link_of(*device, library().nvmlDeviceGetMaxPcieLinkGeneration, library().nvmlDeviceGetMaxPcieLinkWidth)) {
    facts.pcie_most_generation = most->generation;
    facts.pcie_most_width = most->width;
  }
  unsigned mig_now = 0, mig_pending = 0;
  const auto mig = library().nvmlDeviceGetMigMode;
  if (mig != nullptr && mig(*device, &mig_now, &mig_pending) == NVML_SUCCESS)
    facts.is_mig_enabled = mig_now == NVML_FEATURE_ENABLED;
  facts.is_persistence_enabled = is_enabled(ask<nvmlEnableState_t>(library().nvmlDeviceGetPersistenceMode, *device));
  facts.fabric_state = fabric_state_of(*device);
  facts.clocks_event_reasons = clocks_event_reasons_of(*device);
  add_memory_facts(*device, facts);
  return facts;
}

std::optional<std::string> peer_status(const std::string& from, const std::string& to, PeerCapability capability) {
  const auto first = device_at(from);
  const auto second = device_at(to);
  if (!first || !second) return {};
  const auto status = ask<nvmlGpuP2PStatus_t>(library().nvmlDeviceGetP2PStatus, *first, *second, index_of(capability));
  if (!status) return {};
  return name_of_p2p_status(*status);
}

#else

const Availability& availability() {
  static const Availability absent = not_built("NVML", "configure with nvml.h and GIGABAR_CUDA=ON");
  return absent;
}
std::optional<std::string> driver_version() { return {}; }
std::optional<Bar1> bar1(const std::string&) { return {}; }
std::optional<unsigned> device_minor(const std::string&) { return {}; }
std::optional<PcieLinkState> pcie_link(const std::string&) { return {}; }
std::optional<std::vector<NvLink>> nvlinks(const std::string&) { return {}; }
std::optional<C2cLinks> c2c_links(const std::string&) { return {}; }
std::optional<MemoryBus> memory_bus(const std::string&) { return {}; }
std::optional<double> pcie_traffic_gb_per_s(const std::string&) { return {}; }
std::optional<std::uint64_t> nvlink_carried_bytes(const std::string&) { return {}; }
std::vector<unsigned> compute_processes(const std::string&) { return {}; }
std::vector<std::string> devices() { return {}; }
std::optional<std::string> address_of_uuid(const std::string&) { return {}; }
DeviceFacts facts(const std::string&) { return {}; }
std::optional<std::string> peer_status(const std::string&, const std::string&, PeerCapability) { return {}; }

#endif

}  // namespace gigabar::nvml
