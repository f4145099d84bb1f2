// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1, opened at run time: one table of functions, or the reason why there is none.
#pragma once

#include <optional>
#include <string>

#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

#if GIGABAR_HAS_CUDA
#include <cuda.h>
#include <cudaTypedefs.h>
#endif

namespace gigabar::cuda {

#if GIGABAR_HAS_CUDA
// Optional functions may be null.
struct Functions {
#define GIGABAR_CUDA_SYMBOL(function, version, need) PFN_##function##_v##version function = nullptr;
#include "driver/cuda/symbols.def"
#undef GIGABAR_CUDA_SYMBOL
};
#else
struct Functions {};
#endif

struct Driver {
  Availability availability;  // ok: the functions can be called and cuInit(0) succeeded
  Functions functions;
  int version = 0;  // cuDriverGetVersion: 13000 is CUDA 13.0
};

// The oldest driver interface that is accepted: CUDA 11.7, which comes with driver branch 515.
inline constexpr int kOldestVersion = 11070;

// Opens the library that GIGABAR_CUDA_LIBRARY names, else libcuda.so.1, takes every function of symbols.def by name and version,
// and initialises it. Each call works anew; driver() is the process's one.
Driver load();

// The process's driver, loaded on first use. Threads: any.
const Driver& driver();

#if GIGABAR_HAS_CUDA
// Of a device; empty, or nothing: the driver does not tell. The UUID is "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML writes
// it.
std::string name_of(const Functions& functions, CUdevice device);
std::string uuid_of(const Functions& functions, CUdevice device);
std::optional<PciAddress> address_of(const Functions& functions, CUdevice device);

// "CUDA_ERROR_INVALID_VALUE" with its number; works without a driver too.
NativeCode native_code(CUresult result);
// The sentence the driver has for it.
std::string describe_result(CUresult result);
// The status it stands for: out of memory, invalid value, ...
Status status_of(CUresult result);
// All three: failure("record an event", "device 0", result).
Error failure(std::string operation, std::string object, CUresult result, std::string remedy = {});
#endif

}  // namespace gigabar::cuda
