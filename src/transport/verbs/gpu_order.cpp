// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/gpu_order.hpp"

#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"
#include "memory/cuda_context.hpp"

namespace gigabar::transport::rdma {
#if GIGABAR_HAS_CUDA
namespace {

Error cuda_failed(const char* call, int device, CUresult result) {
  return make_error(cuda::status_of(result), call, text("device ", device), cuda::describe_result(result), {},
                    cuda::native_code(result));
}

Result<int> attribute_of(int device, CUdevice_attribute attribute) {
  const cuda::Functions& functions = cuda::driver().functions;
  CUdevice handle = 0;
  int value = 0;
  CUresult result = functions.cuDeviceGet(&handle, device);
  if (result == CUDA_SUCCESS) result = functions.cuDeviceGetAttribute(&value, attribute, handle);
  if (result != CUDA_SUCCESS) return cuda_failed("cuDeviceGetAttribute", device, result);
  return value;
}

Result<void> flush_device(int device) {
  const auto context = primary_context(device);
  if (!context) return context.error();
  const cuda::Functions& functions = cuda::driver().functions;
  const ContextGuard guard(functions, *context);
  if (guard.result() != CUDA_SUCCESS) return cuda_failed("cuCtxPushCurrent", device, guard.result());
  const CUresult result = functions.cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                               CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  if (result != CUDA_SUCCESS) return cuda_failed("cuFlushGPUDirectRDMAWrites", device, result);
  return {};
}

}  // namespace

Result<void> GpuOrder::add(int device) {
  if (const auto known = unordered_.find(device); known != unordered_.end()) {
    ++known->second;
    return {};
  }
  if (!cuda::driver().availability.is_ok())
    return make_error("order NIC writes", text("device ", device), cuda::driver().availability);
  const auto ordering = attribute_of(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  if (!ordering) return ordering.error();
  if (*ordering >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) return {};
  const auto options = attribute_of(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  if (!options) return options.error();
  const bool can_flush = (*options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 &&
                         cuda::driver().functions.cuFlushGPUDirectRDMAWrites != nullptr;
  if (!can_flush) {
    return make_error(Status::not_supported, "order NIC writes", text("device ", device),
                      "the GPU does not order a NIC's writes with its kernels, and the driver cannot flush them");
  }
  unordered_[device] = 1;
  return {};
}

void GpuOrder::remove(int device) noexcept {
  const auto known = unordered_.find(device);
  if (known != unordered_.end() && --known->second == 0) unordered_.erase(known);
}

Result<void> GpuOrder::flush() const {
  for (const auto& [device, regions] : unordered_) {
    if (Result<void> flushed = flush_device(device); !flushed) return flushed;
  }
  return {};
}

#else

Result<void> GpuOrder::add(int device) {
  return make_error("order NIC writes", text("device ", device), cuda::driver().availability);
}
void GpuOrder::remove(int) noexcept {}
Result<void> GpuOrder::flush() const { return {}; }

#endif
}  // namespace gigabar::transport::rdma
