#include "driver/nvml/nvml.hpp"

#if GIGABAR_HAS_NVML
// The header renames older functions to newer ones; the table below takes the exported names as they are.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#endif

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::nvml {
#if GIGABAR_HAS_NVML
namespace {

struct Library {
#define GIGABAR_NVML_SYMBOL(function) decltype(&::function) function = nullptr;
#include "driver/nvml/symbols.def"
#undef GIGABAR_NVML_SYMBOL
  Availability availability;
};

const char* fill(Library& library, const OpenedLibrary& opened) {
#define GIGABAR_NVML_SYMBOL(function)                                                              \
  library.function = reinterpret_cast<decltype(library.function)>(find_symbol(opened, #function)); \
  if (library.function == nullptr) return #function;
#include "driver/nvml/symbols.def"
#undef GIGABAR_NVML_SYMBOL
  return nullptr;
}

Library load() {
  Library library;
  const OpenedLibrary opened =
      open_library("libnvidia-ml.so.1", "GIGABAR_NVML_LIBRARY", "install the NVIDIA driver's management library");
  library.availability = opened.availability;
  if (!library.availability.is_ok()) return library;
  if (const char* missing = fill(library, opened)) {
    library.availability = {
        AvailabilityCode::symbol_missing, text(opened.path, " has no ", missing), "install a newer NVIDIA driver", {}};
    return library;
  }
  if (const nvmlReturn_t result = library.nvmlInit_v2(); result != NVML_SUCCESS) {
    library.availability = {result == NVML_ERROR_NO_PERMISSION ? AvailabilityCode::no_permission : AvailabilityCode::no_device,
                            text("nvmlInit failed: ", library.nvmlErrorString(result)),
                            "check nvidia-smi",
                            {NativeDomain::nvml, result, text("nvmlReturn ", static_cast<int>(result))}};
    return library;
  }
  library.availability.reason = "initialised";
  return library;
}

const Library& library() {
  static const Library instance = load();
  return instance;
}

std::optional<nvmlDevice_t> device_at(const std::string& pci_address) {
  nvmlDevice_t device{};
  if (!library().availability.is_ok() || library().nvmlDeviceGetHandleByPciBusId_v2(pci_address.c_str(), &device) != NVML_SUCCESS)
    return {};
  return device;
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
  nvmlBAR1Memory_t memory{};
  if (!device || library().nvmlDeviceGetBAR1MemoryInfo(*device, &memory) != NVML_SUCCESS) return {};
  return Bar1{memory.bar1Total, memory.bar1Used};
}

std::optional<unsigned> device_minor(const std::string& pci_address) {
  const auto device = device_at(pci_address);
  unsigned minor = 0;
  if (!device || library().nvmlDeviceGetMinorNumber(*device, &minor) != NVML_SUCCESS) return {};
  return minor;
}

#else

const Availability& availability() {
  static const Availability not_built{
      AvailabilityCode::not_built, "this build has no support for NVML", "configure with nvml.h and GIGABAR_CUDA=ON", {}};
  return not_built;
}
std::optional<std::string> driver_version() { return {}; }
std::optional<Bar1> bar1(const std::string&) { return {}; }
std::optional<unsigned> device_minor(const std::string&) { return {}; }

#endif

}  // namespace gigabar::nvml
