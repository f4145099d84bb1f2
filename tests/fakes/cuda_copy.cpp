// SPDX-License-Identifier: Apache-2.0
// libcuda: copies, streams, events. A copy from host memory is done as late as the real one may do it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>

#include "fakes/entry.hpp"

namespace gigabar::fake {
namespace {

constexpr std::uint64_t kMaxDeferred = 64 * kKiB;  // a synchronous copy of up to so many pageable bytes may return early

bool is_pinned(const void* address) {
  const Allocation* allocation = find_allocation(reinterpret_cast<Address>(address));
  return allocation != nullptr && (allocation->kind == Kind::host_allocated || allocation->kind == Kind::host_registered);
}

bool is_valid(CUdeviceptr address, std::uint64_t bytes) {
  while (bytes > 0) {
    std::uint64_t contiguous = 0;
    if (translate(address, &contiguous) == nullptr) return false;
    const std::uint64_t part = std::min(contiguous, bytes);
    address += part;
    bytes -= part;
  }
  return true;
}

// Copies piece by piece over the ranges that follow each other; memory that was freed since is left alone.
template <class Piece>
void for_each_piece(CUdeviceptr address, std::uint64_t bytes, const Piece& piece) {
  std::uint64_t done = 0;
  while (done < bytes) {
    std::uint64_t contiguous = 0;
    std::byte* view = translate(address + done, &contiguous);
    if (view == nullptr) return;
    const std::uint64_t part = std::min(contiguous, bytes - done);
    piece(view, done, part);
    done += part;
  }
}

void write_now(CUdeviceptr destination, const void* source, std::uint64_t bytes) {
  for_each_piece(destination, bytes, [source](std::byte* view, std::uint64_t done, std::uint64_t part) {
    std::memcpy(view, static_cast<const std::byte*>(source) + done, part);
  });
}

void read_now(void* destination, CUdeviceptr source, std::uint64_t bytes) {
  for_each_piece(source, bytes, [destination](const std::byte* view, std::uint64_t done, std::uint64_t part) {
    std::memcpy(static_cast<std::byte*>(destination) + done, view, part);
  });
}

void move_now(CUdeviceptr destination, CUdeviceptr source, std::uint64_t bytes) {
  std::vector<std::byte> between(bytes);
  read_now(between.data(), source, bytes);
  if (state().machine.is_peer_copy_wrong) between[bytes / 2] ^= std::byte{0x08};
  write_now(destination, between.data(), bytes);
}

int gpu_of(CUdeviceptr address) {
  const Allocation* allocation = find_allocation(address);
  return allocation != nullptr ? allocation->gpu : -1;
}

void set_now(CUdeviceptr destination, unsigned char value, std::uint64_t bytes) {
  for_each_piece(destination, bytes,
                 [value](std::byte* view, std::uint64_t, std::uint64_t part) { std::memset(view, value, part); });
}

// True when nothing is left of what was asked for.
bool run_pending(const CUstream* only) {
  auto& pending = state().pending;
  const bool is_one_queue = state().machine.is_one_queue;
  std::set<CUstream> waiting;
  for (std::size_t i = 0; i < pending.size();) {
    const bool is_asked = only == nullptr || is_one_queue || pending[i].stream == *only;
    if (is_asked && pending[i].may_run && !pending[i].may_run()) waiting.insert(pending[i].stream);
    if (!is_asked || waiting.contains(pending[i].stream) || (is_one_queue && !waiting.empty())) {
      ++i;
      continue;
    }
    pending[i].run();
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return waiting.empty();
}

std::int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The legacy stream may not be touched while a capture is under way, whatever the thread's mode.
bool breaks_capture(CUstream stream) {
  if (stream != nullptr || !state().machine.is_capturing) return false;
  state().machine.was_capture_broken = true;
  return true;
}

CUresult enqueue_write(CUdeviceptr destination, const void* source, std::uint64_t bytes, CUstream stream) {
  if (is_pinned(source)) {
    // The source is read when the copy runs: changing it before the synchronisation is a mistake that shows.
    state().pending.push_back({stream, [=] { write_now(destination, source, bytes); }});
  } else {
    const auto* first = static_cast<const std::byte*>(source);
    state().pending.push_back({stream, [destination, staged = std::vector<std::byte>(first, first + bytes)] {
                                 write_now(destination, staged.data(), staged.size());
                               }});
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gigabar::fake

using namespace gigabar::fake;

extern "C" {

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr destination, const void* source, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemcpyHtoD, context_unsafe);
  if (breaks_capture(nullptr)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes) || source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++s.totals.total_copies_to;
  run_pending(nullptr);
  if (bytes <= kMaxDeferred && !is_pinned(source)) return enqueue_write(destination, source, bytes, nullptr);
  write_now(destination, source, bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyDtoH(void* destination, CUdeviceptr source, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemcpyDtoH, context_unsafe);
  if (breaks_capture(nullptr)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(source, bytes) || destination == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++s.totals.total_copies_from;
  run_pending(nullptr);
  read_now(destination, source, bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr destination, const void* source, std::size_t bytes, CUstream stream) {
  GIGABAR_FAKE_ENTER(cuMemcpyHtoDAsync, context);
  if (breaks_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes) || source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++s.totals.total_copies_to;
  return enqueue_write(destination, source, bytes, stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  GIGABAR_FAKE_ENTER(cuMemcpyDtoHAsync, context);
  if (breaks_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(source, bytes) || destination == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++s.totals.total_copies_from;
  s.pending.push_back({stream, [=] {
                         read_now(destination, source, bytes);
                         if (state().machine.passing_stores == 0 || bytes == 0) return;
                         --state().machine.passing_stores;
                         *static_cast<std::byte*>(destination) ^= std::byte{1};
                       }});
  if (!is_pinned(destination)) run_pending(&stream);  // to pageable memory it returns when it is done
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  GIGABAR_FAKE_ENTER(cuMemcpyDtoDAsync, context);
  if (breaks_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes) || !is_valid(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
  s.pending.push_back({stream, [=] { move_now(destination, source, bytes); }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from, std::size_t bytes,
                                   CUstream stream) {
  GIGABAR_FAKE_ENTER(cuMemcpyPeerAsync, context);
  if (breaks_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes) || !is_valid(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (to->gpu != gpu_of(destination) || from->gpu != gpu_of(source)) return CUDA_ERROR_INVALID_CONTEXT;
  s.pending.push_back({stream, [=] { move_now(destination, source, bytes); }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  GIGABAR_FAKE_ENTER(cuDeviceCanAccessPeer, init);
  const auto count = static_cast<int>(s.machine.gpu_count);
  if (device < 0 || device >= count || peer < 0 || peer >= count) return CUDA_ERROR_INVALID_DEVICE;
  *can_access = device != peer && s.machine.has_peer_access ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  GIGABAR_FAKE_ENTER(cuDeviceGetP2PAttribute, init);
  const auto count = static_cast<int>(s.machine.gpu_count);
  if (device < 0 || device >= count || peer < 0 || peer >= count || device == peer) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute != CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) return CUDA_ERROR_INVALID_VALUE;
  *value = s.machine.has_peer_access && s.machine.has_peer_atomics ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuCtxEnablePeerAccess, context);
  if (flags != 0 || peer == current_context()) return CUDA_ERROR_INVALID_VALUE;
  if (!s.machine.has_peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return s.peers.emplace(current_context(), peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr destination, unsigned char value, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemsetD8, context_unsafe);
  if (breaks_capture(nullptr)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes)) return CUDA_ERROR_INVALID_VALUE;
  run_pending(nullptr);
  set_now(destination, value, bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr destination, unsigned char value, std::size_t bytes, CUstream stream) {
  GIGABAR_FAKE_ENTER(cuMemsetD8Async, context);
  if (breaks_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!is_valid(destination, bytes)) return CUDA_ERROR_INVALID_VALUE;
  s.pending.push_back({stream, [=] { set_now(destination, value, bytes); }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize() {
  GIGABAR_FAKE_ENTER(cuCtxSynchronize, context_unsafe);
  run_pending(nullptr);
  entry.wait_for_kernels();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int) {
  GIGABAR_FAKE_ENTER(cuStreamCreate, context_unsafe);
  *stream = new CUstream_st{current_context()->gpu};
  s.streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  GIGABAR_FAKE_ENTER(cuStreamDestroy, context);
  if (s.streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  run_pending(&stream);
  delete stream;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  GIGABAR_FAKE_ENTER(cuStreamSynchronize, context_unsafe);
  if (stream != nullptr && !s.streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  run_pending(&stream);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream stream) {
  GIGABAR_FAKE_ENTER(cuStreamQuery, context_unsafe);
  if (stream != nullptr && !s.streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return run_pending(&stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuStreamWaitValue32, context);
  if (!s.streams.contains(stream) || flags != CU_STREAM_WAIT_VALUE_GEQ || !is_pinned(reinterpret_cast<void*>(address)))
    return CUDA_ERROR_INVALID_VALUE;
  auto* const word = reinterpret_cast<cuuint32_t*>(address);
  s.pending.push_back({stream, [] {}, [=] { return std::atomic_ref(*word).load() >= value; }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuStreamWriteValue32, context);
  if (!s.streams.contains(stream) || flags != CU_STREAM_WRITE_VALUE_DEFAULT || !is_pinned(reinterpret_cast<void*>(address)))
    return CUDA_ERROR_INVALID_VALUE;
  auto* const word = reinterpret_cast<cuuint32_t*>(address);
  s.pending.push_back({stream, [=] { std::atomic_ref(*word).store(value); }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int) {
  GIGABAR_FAKE_ENTER(cuEventCreate, context);
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  GIGABAR_FAKE_ENTER(cuEventDestroy, context);
  delete event;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  GIGABAR_FAKE_ENTER(cuEventRecord, context);
  event->is_recorded = true;
  event->has_happened = false;
  s.pending.push_back({stream, [event] {
                         event->has_happened = true;
                         event->at_ns = clock_ns();
                       }});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  GIGABAR_FAKE_ENTER(cuEventQuery, context);
  run_pending(nullptr);
  return event->has_happened || !event->is_recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  GIGABAR_FAKE_ENTER(cuEventElapsedTime, context);
  if (!begin->is_recorded || !end->is_recorded) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->has_happened || !end->has_happened) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->at_ns - begin->at_ns) / 1e6F;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventSynchronize(CUevent) {
  GIGABAR_FAKE_ENTER(cuEventSynchronize, context);
  run_pending(nullptr);
  return CUDA_SUCCESS;
}

}  // extern "C"
