// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda/cuda.hpp"

#include <utility>

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "driver/loader.hpp"

namespace gigabar::cuda {

#if GIGABAR_HAS_CUDA
namespace {

std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

// cuGetProcAddress came with CUDA 11.3 and got its fifth parameter with 12.0 under the name cuGetProcAddress_v2.
struct SymbolFinder {
  PFN_cuGetProcAddress_v12000 modern;
  PFN_cuGetProcAddress_v11030 classic;

  void* find(const char* name, int version) const {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult result = modern != nullptr ? modern(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found)
                                              : classic(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT);
    return result == CUDA_SUCCESS ? address : nullptr;
  }
};

NativeCode native_code(const Functions& functions, CUresult result) {
  const char* name = nullptr;
  if (functions.cuGetErrorName != nullptr) functions.cuGetErrorName(result, &name);
  return {NativeDomain::cuda_driver, result, name != nullptr ? name : text("CUresult ", static_cast<int>(result))};
}

// The first required function that is missing, or null.
const char* fill(Functions& functions, const SymbolFinder& finder) {
  const char* missing = nullptr;
#define GIGABAR_CUDA_SYMBOL(function, version, need)                                                    \
  functions.function = reinterpret_cast<decltype(functions.function)>(finder.find(#function, version)); \
  if (functions.function == nullptr && Need::need == Need::required && missing == nullptr) missing = #function;
#include "driver/cuda/symbols.def"
#undef GIGABAR_CUDA_SYMBOL
  return missing;
}

Availability initialise(Driver& driver) {
  const CUresult result = driver.functions.cuInit(0);
  int device_count = 0;
  if (result == CUDA_SUCCESS && driver.functions.cuDeviceGetCount(&device_count) == CUDA_SUCCESS && device_count > 0) {
    return {AvailabilityCode::ok, text("CUDA ", version_text(driver.version), ", ", device_count, " device(s)"), {}};
  }
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE) {
    return {AvailabilityCode::no_device, "libcuda is installed but finds no GPU",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, that /dev/nvidia* were passed in",
            native_code(driver.functions, result)};
  }
  const char* sentence = nullptr;
  driver.functions.cuGetErrorString(result, &sentence);
  return {AvailabilityCode::driver_unknown, text("cuInit failed: ", sentence != nullptr ? sentence : "no description"),
          "check nvidia-smi; set GIGABAR_STAND_IN=1 to work without a GPU", native_code(driver.functions, result)};
}

Availability open(Driver& driver) {
  const OpenedLibrary library = open_library("libcuda.so.1", "GIGABAR_CUDA_LIBRARY",
                                             "install the NVIDIA driver, or set GIGABAR_CUDA_LIBRARY to its libcuda.so.1");
  if (!library.availability.is_ok()) return library.availability;

  // The version comes first, by its plain name: an old driver should hear that it is old, not which symbol it lacks.
  const auto get_version = reinterpret_cast<PFN_cuDriverGetVersion_v2020>(find_symbol(library, "cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&driver.version) != CUDA_SUCCESS) {
    return {AvailabilityCode::symbol_missing, text(library.path, " has no working cuDriverGetVersion"),
            "reinstall the NVIDIA driver"};
  }
  if (driver.version < kOldestVersion) {
    return {AvailabilityCode::driver_too_old,
            text(library.path, " supports CUDA ", version_text(driver.version), "; ", version_text(kOldestVersion), " is needed"),
            "install NVIDIA driver 515 or newer"};
  }
  const SymbolFinder finder{reinterpret_cast<PFN_cuGetProcAddress_v12000>(find_symbol(library, "cuGetProcAddress_v2")),
                            reinterpret_cast<PFN_cuGetProcAddress_v11030>(find_symbol(library, "cuGetProcAddress"))};
  if (finder.modern == nullptr && finder.classic == nullptr) {
    return {AvailabilityCode::entry_point_missing, text(library.path, " has no cuGetProcAddress"), "reinstall the NVIDIA driver"};
  }
  if (const char* missing = fill(driver.functions, finder)) {
    return {AvailabilityCode::symbol_missing, text(library.path, " has no ", missing), "reinstall the NVIDIA driver"};
  }
  return initialise(driver);
}

}  // namespace

Driver load() {
  Driver driver;
  driver.availability = open(driver);
  Availability& availability = driver.availability;
  // The library was usable once there is a device to miss: then it is the driver behind it.
  const bool is_of_driver =
      availability.code == AvailabilityCode::no_device || availability.code == AvailabilityCode::driver_unknown;
  if (!availability.is_ok()) availability.check = is_of_driver ? check_id::kDriverLoaded : check_id::kLibraries;
  return driver;
}

std::string name_of(const Functions& functions, CUdevice device) {
  char name[256] = {};
  return functions.cuDeviceGetName(name, sizeof name - 1, device) == CUDA_SUCCESS ? name : "";
}

std::string uuid_of(const Functions& functions, CUdevice device) {
  CUuuid uuid{};
  if (functions.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) return {};
  std::string line = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) line += '-';
    line += hexadecimal_text(static_cast<unsigned char>(uuid.bytes[i]), 2);
  }
  return line;
}

std::optional<PciAddress> address_of(const Functions& functions, CUdevice device) {
  char bus_id[32] = {};
  if (functions.cuDeviceGetPCIBusId(bus_id, sizeof bus_id - 1, device) != CUDA_SUCCESS) return {};
  return PciAddress::parse(bus_id);
}

NativeCode native_code(CUresult result) { return native_code(driver().functions, result); }

std::string describe_result(CUresult result) {
  const char* sentence = nullptr;
  if (const Functions& functions = driver().functions; functions.cuGetErrorString != nullptr) {
    functions.cuGetErrorString(result, &sentence);
  }
  return sentence != nullptr ? sentence : text("CUDA error ", static_cast<int>(result));
}

Status status_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS: return Status::ok;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE: return Status::invalid_argument;
    case CUDA_ERROR_OUT_OF_MEMORY: return Status::out_of_memory;
    case CUDA_ERROR_NOT_SUPPORTED: return Status::not_supported;
    case CUDA_ERROR_NOT_PERMITTED: return Status::no_permission;
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return Status::busy;          // another process has it, in exclusive mode
    case CUDA_ERROR_NOT_INITIALIZED: return Status::foreign_process;  // cuInit succeeded, so it was in the parent of this process
    default: return Status::device_error;
  }
}

Error failure(std::string operation, std::string object, CUresult result, std::string remedy) {
  if (result == CUDA_ERROR_NOT_INITIALIZED)
    remedy = "CUDA does not work in a forked child; fork before it is used, or start the child with exec";
  return make_error(status_of(result), std::move(operation), std::move(object), describe_result(result), std::move(remedy),
                    native_code(result));
}

#else

Driver load() {
  Driver driver;
  driver.availability = not_built("NVIDIA GPUs", "configure with CUDA's headers (cuda.h) and GIGABAR_CUDA=ON");
  return driver;
}

#endif

const Driver& driver() {
  static const Driver instance = load();
  return instance;
}

}  // namespace gigabar::cuda
