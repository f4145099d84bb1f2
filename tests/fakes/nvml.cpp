// libnvidia-ml.so.1 for one GPU whose minor and BAR1 differ from what /proc would say, so that a test can tell who answered.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kAddress = "0000:06:00.0";
int device_object = 0;

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
  if (std::strcmp(address, kAddress) != 0) return NVML_ERROR_NOT_FOUND;
  *device = reinterpret_cast<nvmlDevice_t>(&device_object);
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

}  // extern "C"
