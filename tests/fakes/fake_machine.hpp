// SPDX-License-Identifier: Apache-2.0
// The control panel of the fake GPU machine: a libcuda.so.1 over host memory, with the kernel side of the NVIDIA driver and of
// gdrdrv inside it. Plain structs, because it is reached with dlsym; support/fake_session.hpp is what tests use.
//
// The machine is strict where real hardware is only sometimes: device memory cannot be touched by the CPU except through a window,
// a small copy from pageable memory reaches the GPU only at the next synchronisation, addresses and RM handles are reused at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/system_calls.hpp"

namespace gigabar::fake {

inline constexpr std::size_t kMaxGpus = 8;
inline constexpr std::size_t kMaxFaults = 8;
inline constexpr std::uint32_t kForEver = UINT32_MAX;

struct Gpu {
  char pci_address[16];  // "0000:3b:00.0"
  char name[64];
  std::uint32_t gpu_id;           // the resource manager's
  std::uint32_t device_instance;  // the resource manager's; any order
  std::uint32_t minor;            // of /dev/nvidia<minor>; any order
  std::uint64_t memory_bytes;
  std::uint64_t bar1_bytes;
  int numa_node;
  // Planted lies; each equals the truth by default.
  std::uint32_t told_instance;    // what control 0x202 answers for this GPU id
  std::uint32_t told_proc_minor;  // what /proc/driver/nvidia says
  std::uint32_t told_gpu_id;      // what control 0x20800142 answers for a device object of this GPU
};

enum class Call : std::uint32_t { open, close, ioctl, mmap, munmap, madvise, cuda };

// Lets `skip` matching calls pass, then fails the next `count`. Unused while count is 0.
struct Fault {
  Call call;
  char name[48];          // open: part of the path; cuda: the function; empty: any
  std::uint32_t number;   // ioctl: its number (0x2A, ...); 0: any
  std::uint32_t command;  // RM_CONTROL: its command, RM_ALLOC: its class; 0: any
  std::uint32_t skip;
  std::uint32_t count;
  int error;             // errno or CUresult; 0 for an ioctl: it succeeds and carries `status`
  std::uint32_t status;  // RM status
  std::uint32_t hits;    // out: calls that were failed
};

struct Machine {
  std::uint32_t gpu_count;
  Gpu gpus[kMaxGpus];
  char driver_version[32];       // "580.159.04"
  int cuda_version;              // 13000
  int dma_buf_supported;         // attribute 124
  int dma_buf_mmap_supported;    // attribute 152; -1: unknown to this driver
  bool is_dma_buf_mappable;      // false: mmap of a dma-buf fails with ENOTSUPP
  bool is_dma_buf_mmap_shifted;  // plants a wrong window: a dma-buf shows the memory 64 KiB further on
  bool has_gdrdrv;
  std::uint32_t gdrdrv_version;  // major << 16 | minor
  bool is_gdrdrv_persistent;
  std::uint32_t bar1_status;     // RM status when a BAR1 aperture is full
  char hidden_symbol[48];        // cuGetProcAddress does not know it
  bool has_scrambled_ipc_words;  // cuIpcGetMemHandle answers in another order
  bool has_other_rm_structs;     // every RM structure has grown by 8 bytes
  bool is_rm_window_wrong;       // plants a wrong window: mmap of an RM mapping shows other memory
  bool are_window_stores_lost;   // plants a window that shows the memory, while what is stored through it never gets there
  // So many of the next copies from GPU memory see another first byte, as if the GPU had stored there and undone it since.
  std::uint32_t passing_stores;
  // Out: calls that wait for the kernels of is_busy; std::atomic_ref.
  std::uint32_t waiting_count;
  bool is_coherent;         // the CPU caches the memory of every GPU
  bool has_peer_access;     // between any two GPUs
  bool has_peer_atomics;    // likewise, native ones
  bool needs_rdma_flushes;  // no GPU orders a NIC's writes
  bool is_peer_copy_wrong;  // a bit of every copy between GPUs is lost
  bool is_one_queue;        // what a stream waits for holds up all streams
  bool is_busy;             // kernels run: cuCtxSynchronize and cuMemFree do not return; std::atomic_ref
  bool is_capturing;        // a stream capture in global mode is under way in the process
  bool was_capture_broken;  // out: a call that such a capture forbids was made
  bool runs_kernels;        // libcuda has the functions of modules, and the readback kernel can run
  bool waits_for_kernels;   // a launch returns when its kernel has ended
  bool is_full;             // no kernel begins; std::atomic_ref
  bool is_kernel_stuck;     // kernels that begin do nothing; std::atomic_ref
  bool is_kernel_wrong;     // the readback kernel delivers other bytes
  Fault faults[kMaxFaults];
};

// What is alive now, and a few totals since the process began.
struct Counts {
  // Kernel side.
  std::uint32_t rm_clients, rm_devices, rm_subdevices, rm_memory_objects, rm_mappings;
  std::uint32_t windows;  // mmaps of device memory of every kind
  std::uint32_t control_descriptors, device_descriptors, gdrdrv_descriptors, dma_bufs, exports;
  std::uint32_t gdrdrv_pins;
  std::uint64_t bar1_used_bytes[kMaxGpus];
  // CUDA side.
  std::uint32_t device_allocations, host_allocations, host_registrations, vmm_handles, vmm_reservations, streams, peers, modules,
      kernels;
  std::int64_t context_pushes;  // minus pops, all threads
  std::uint64_t memory_used_bytes[kMaxGpus];
  // Totals.
  std::uint64_t total_rm_maps, total_rm_dups, total_mmaps, total_dma_bufs, total_gdrdrv_pins, total_copies_from, total_copies_to,
      total_launches;
  // Calls that the real kernel accepts and that are wrong all the same, in this process and its forked children.
  std::uint32_t violations;
  char last_violation[160];
};

// What the shared object exports.
using MachineFunction = Machine* (*)();          // gigabar_fake_machine
using ResetFunction = void (*)();                // gigabar_fake_reset: default machine, no memory, no kernel objects
using CountsFunction = void (*)(Counts*);        // gigabar_fake_counts
using InsideFunction = bool (*)();               // gigabar_fake_is_inside: this thread runs the machine's own code
using CallsFunction = const SystemCalls* (*)();  // gigabar_fake_system_calls
inline constexpr const char* kMachineSymbol = "gigabar_fake_machine";
inline constexpr const char* kResetSymbol = "gigabar_fake_reset";
inline constexpr const char* kCountsSymbol = "gigabar_fake_counts";
inline constexpr const char* kInsideSymbol = "gigabar_fake_is_inside";
inline constexpr const char* kCallsSymbol = "gigabar_fake_system_calls";

}  // namespace gigabar::fake
