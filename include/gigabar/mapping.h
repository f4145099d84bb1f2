/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, device memory, CPU mappings of it, and copies through a mapping (gigabar.h). What is true of structures, handles and
 * errors stands in status.h. Sizes and offsets are in bytes. */
#ifndef GIGABAR_MAPPING_H
#define GIGABAR_MAPPING_H

#include <gigabar/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Devices ---------------------------------------------------------------------------------------------------------------- */

#define GIGABAR_DEVICE_NAME (UINT64_C(1) << 0)
#define GIGABAR_DEVICE_UUID (UINT64_C(1) << 1)        /* cleared for a stand-in */
#define GIGABAR_DEVICE_PCI_ADDRESS (UINT64_C(1) << 2) /* cleared for a stand-in */
#define GIGABAR_DEVICE_IS_STAND_IN (UINT64_C(1) << 3)
#define GIGABAR_DEVICE_NUMA_NODE (UINT64_C(1) << 4) /* cleared where the machine does not report it */
#define GIGABAR_DEVICE_MEMORY_BYTES (UINT64_C(1) << 5)
#define GIGABAR_DEVICE_BAR1_BYTES (UINT64_C(1) << 6) /* cleared where NVML does not report it */
#define GIGABAR_DEVICE_BAR1_USED_BYTES (UINT64_C(1) << 7)
#define GIGABAR_DEVICE_COMPUTE_CAPABILITY (UINT64_C(1) << 8) /* cleared for a stand-in */
#define GIGABAR_DEVICE_ALL (GIGABAR_DEVICE_COMPUTE_CAPABILITY * 2 - 1)
typedef struct gigabar_device_info {
  uint64_t struct_size;
  uint64_t field_mask;
  char name[128];       /* "NVIDIA H200", "stand-in (host memory)"; cut where it is longer */
  char uuid[64];        /* "GPU-xxxxxxxx-xxxx-..." */
  char pci_address[32]; /* "0000:3b:00.0" */
  uint64_t memory_bytes;
  uint64_t bar1_bytes;      /* of the aperture */
  uint64_t bar1_used_bytes; /* by all processes */
  int32_t is_stand_in;      /* 1: host memory plays a GPU */
  int32_t numa_node;
  int32_t compute_major;
  int32_t compute_minor;
} gigabar_device_info;

/* Stores the number of devices of this process: GPUs in CUDA's order, or stand-ins where there is no usable GPU or
 * GIGABAR_STAND_IN=N asks for N of them. At least 1. Errors: INVALID_ARGUMENT (`count` is null, GIGABAR_STAND_IN is not a number
 * from 1 to 64), DEVICE_ERROR. Ordering: none. Threads: any. Cost: the first call initialises CUDA (tens to hundreds of ms); later
 * ones query the driver. */
GIGABAR_C_API gigabar_status gigabar_device_count(int32_t* count);

/* Fills `info` with the properties of a device, 0 to count - 1.
 * Errors: as gigabar_device_count(); INVALID_ARGUMENT (no such device). Ordering, threads, cost: as gigabar_device_count(). */
GIGABAR_C_API gigabar_status gigabar_device_describe(int32_t device, gigabar_device_info* info);

/* --- Memory ----------------------------------------------------------------------------------------------------------------- */

typedef struct gigabar_memory gigabar_memory;

typedef int32_t gigabar_allocator;
enum {
  GIGABAR_ALLOCATOR_CUDA_MALLOC = 0, /* any size; small allocations share a 2 MiB block */
  GIGABAR_ALLOCATOR_VMM = 1          /* sizes are rounded up to 2 MiB; another process can have the memory */
};

/* Allocates `bytes` (> 0) on a device; on a stand-in the memory is host memory. Programs that have CUDA's own need no other. Ended
 * by gigabar_memory_free(). Errors: INVALID_ARGUMENT (a null output, no such device or allocator, 0 bytes), OUT_OF_MEMORY,
 * DEVICE_ERROR. Ordering: none. Threads: any; the thread's CUDA context stays as it was. Cost: enters the kernel. */
GIGABAR_C_API gigabar_status gigabar_memory_allocate(int32_t device, size_t bytes, gigabar_allocator allocator,
                                                     gigabar_memory** memory);

/* Frees the memory. Unmap its mappings and deregister its segments before. Errors: INVALID_ARGUMENT (null).
 * Ordering: none. Threads: any, one at a time for one handle. Cost: enters the kernel. */
GIGABAR_C_API gigabar_status gigabar_memory_free(gigabar_memory* memory);

/* Stores the memory's device address, which the CPU must not dereference. Errors: INVALID_ARGUMENT (null).
 * Ordering: none. Threads: any. Cost: none. */
GIGABAR_C_API gigabar_status gigabar_memory_address(const gigabar_memory* memory, void** address);

/* --- Mappings --------------------------------------------------------------------------------------------------------------- */

/* A piece of GPU memory in this process's address space. Any number of threads may use one at once. When the GPU memory is freed
 * under a mapping, access stays safe, but may reach what a later allocation holds: unmap first. */
typedef struct gigabar_mapping gigabar_mapping;

/* What makes a mapping, in order of preference. */
typedef int32_t gigabar_backend;
enum {
  GIGABAR_BACKEND_DMABUF = 0, /* the driver's dma-buf: CUDA driver 13.3 or newer */
  GIGABAR_BACKEND_GDRDRV = 1, /* GDRCopy's kernel module, 2.5 or newer */
  GIGABAR_BACKEND_RM = 2,     /* the NVIDIA driver's resource manager: no kernel module, no root */
  GIGABAR_BACKEND_HOST = 3    /* pinned host memory and stand-ins */
};

/* How the CPU's caches treat a mapping. */
typedef int32_t gigabar_mapping_type;
enum {
  GIGABAR_WRITE_COMBINED = 0, /* stores gather in 64-byte lines until a fence; loads are not cached */
  GIGABAR_UNCACHED = 1,       /* each access leaves the CPU as it is written */
  GIGABAR_CACHED = 2          /* coherent, ordinary memory */
};

typedef int32_t gigabar_verification;
enum {
  GIGABAR_VERIFY_COMPARE = 0, /* three pages are read through the mapping and by the copy engine */
  GIGABAR_VERIFY_NONCE = 1    /* as before; uniform bytes are changed for a moment, so nothing else may use those pages meanwhile */
};

#define GIGABAR_MAP_BACKEND (UINT64_C(1) << 0)
#define GIGABAR_MAP_VERIFICATION (UINT64_C(1) << 1)
#define GIGABAR_MAP_INHERIT_ON_FORK (UINT64_C(1) << 2)
typedef struct gigabar_map_options {
  uint64_t struct_size;
  uint64_t field_mask;
  gigabar_backend backend;           /* only this one; default: GIGABAR_MAPPING, then the best that works */
  gigabar_verification verification; /* default COMPARE */
  int32_t inherit_on_fork;           /* 1: forked children have the mapping too; default 0 */
} gigabar_map_options;

/* Makes [address, address + bytes) of GPU memory accessible for the CPU, verified. `address` is a device pointer at any byte of its
 * allocation, `bytes` > 0 ends within it; `options` may be null. Ended by gigabar_unmap().
 * Errors: INVALID_ARGUMENT (null, 0 bytes, an option, memory that this process does not own), OUT_OF_RANGE (the range leaves its
 * allocation), NOT_SUPPORTED (managed, pageable or pool memory), UNAVAILABLE (no backend works, or the required one does not; the
 * cause has each with its reason), OUT_OF_BAR1, OUT_OF_DESCRIPTORS, OUT_OF_MEMORY, NO_PERMISSION, DEVICE_ERROR,
 * VERIFICATION_FAILED, FOREIGN_PROCESS.
 * Ordering: none. Threads: any. Cost: the first mapping of a block 50 to 100 us; of a mapped block a few us. */
GIGABAR_C_API gigabar_status gigabar_map(const void* address, size_t bytes, const gigabar_map_options* options,
                                         gigabar_mapping** mapping);

/* Unmaps. Errors: INVALID_ARGUMENT (null). Ordering: the thread's stores through the mapping are not waited for: fence first.
 * Threads: no other may use the mapping. Cost: none, or a call of the kernel. */
GIGABAR_C_API gigabar_status gigabar_unmap(gigabar_mapping* mapping);

#define GIGABAR_MAPPING_ADDRESS (UINT64_C(1) << 0)
#define GIGABAR_MAPPING_BYTES (UINT64_C(1) << 1)
#define GIGABAR_MAPPING_DEVICE_ADDRESS (UINT64_C(1) << 2)
#define GIGABAR_MAPPING_TYPE (UINT64_C(1) << 3)
#define GIGABAR_MAPPING_BACKEND (UINT64_C(1) << 4)
#define GIGABAR_MAPPING_DEVICE (UINT64_C(1) << 5)
#define GIGABAR_MAPPING_IS_STAND_IN (UINT64_C(1) << 6)
#define GIGABAR_MAPPING_IS_SHARED (UINT64_C(1) << 7)
#define GIGABAR_MAPPING_ALL (GIGABAR_MAPPING_IS_SHARED * 2 - 1)
typedef struct gigabar_mapping_info {
  uint64_t struct_size;
  uint64_t field_mask;
  void* address; /* for loads and stores of the CPU; their order is the caller's, see the type */
  uint64_t bytes;
  uint64_t device_address;
  gigabar_mapping_type type;
  gigabar_backend backend;
  int32_t device;
  int32_t is_stand_in;
  int32_t is_shared; /* 1: an existing window was used */
} gigabar_mapping_info;

/* Fills `info` with the properties of a mapping. Errors: INVALID_ARGUMENT. Ordering: none. Threads: any. Cost: none. */
GIGABAR_C_API gigabar_status gigabar_mapping_describe(const gigabar_mapping* mapping, gigabar_mapping_info* info);

/* Stores a JSON text that names the path of the mapping and, for each better backend, why it was not used: `mapping` of
 * common.schema.json. The caller frees it with gigabar_text_free().
 * Errors: INVALID_ARGUMENT (null), OUT_OF_MEMORY. Ordering: none. Threads: any. Cost: allocates. */
GIGABAR_C_API gigabar_status gigabar_mapping_json(const gigabar_mapping* mapping, char** text);

/* Unmaps idle windows until at most `keep_bytes` of them remain, and stores the bytes released where `released_bytes` is not null.
 * Errors: none but OUT_OF_MEMORY. Ordering: none. Threads: any. Cost: enters the kernel for each window. */
GIGABAR_C_API gigabar_status gigabar_mapping_trim(size_t keep_bytes, size_t* released_bytes);

/* --- Copies ------------------------------------------------------------------------------------------------------------------
 * Errors of each: INVALID_ARGUMENT (a null argument; a null host address with bytes > 0), OUT_OF_RANGE (the range leaves the
 * mapping), FOREIGN_PROCESS (a forked child). Threads: any; ranges that are written at the same time must not overlap.
 * Ordering, by mapping type, as in the table of copy.hpp: the stores of a call have left the CPU when it returns, calls of one
 * thread become visible in their order, bytes inside a call in any order; an aligned 1, 2, 4 or 8-byte copy is one access. */

/* Copies `bytes` from host memory to the mapping at `offset_bytes`; 0 bytes are allowed.
 * Cost: stores to MMIO and one fence; never blocks, allocates or enters the kernel. */
GIGABAR_C_API gigabar_status gigabar_copy_to(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes);

/* Copies `bytes` from the mapping to host memory: the current content of GPU memory, never a stale line.
 * Ordering: calls of one thread read in their order. Cost: about 1 us for 64 bytes over PCIe, several in flight. */
GIGABAR_C_API gigabar_status gigabar_copy_from(const gigabar_mapping* mapping, size_t offset_bytes, void* destination,
                                               size_t bytes);

/* Sets `bytes` bytes of the mapping to `value`. Ordering, cost: as gigabar_copy_to(). */
GIGABAR_C_API gigabar_status gigabar_fill(gigabar_mapping* mapping, size_t offset_bytes, uint8_t value, size_t bytes);

/* Every earlier store of this thread through any mapping leaves the CPU before any later one. Cannot fail, and returns GIGABAR_OK.
 * Ordering: that one. Threads: any. Cost: about 0.1 us after stores. */
GIGABAR_C_API gigabar_status gigabar_fence(void);

typedef int32_t gigabar_copy_method;
enum {
  GIGABAR_COPY_CHOOSE = -1,      /* the fastest by the calibration of this machine, or by the documented defaults */
  GIGABAR_COPY_CPU = 0,          /* as gigabar_copy_to() and gigabar_copy_from() */
  GIGABAR_COPY_CPU_PARALLEL = 1, /* several threads */
  GIGABAR_COPY_ENGINE = 2,       /* the GPU's copy engine; on a stand-in memcpy */
  GIGABAR_COPY_READBACK = 3      /* from the device only: a kernel that stays for up to 10 ms (docs/mapping.md) */
};

/* Copies by a method, and stores the one that was used where `used` is not null. Complete when it returns; not ordered with the
 * caller's CUDA streams. More errors: INVALID_ARGUMENT (an unknown method), DEVICE_ERROR (the copy engine failed), OUT_OF_MEMORY
 * and NO_PERMISSION (no thread can be started). Ordering: as above. Cost: the method's; the copy engine enters the driver and
 * waits. */
GIGABAR_C_API gigabar_status gigabar_copy_to_by(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes,
                                                gigabar_copy_method method, gigabar_copy_method* used);
/* The other direction. Everything else: as gigabar_copy_to_by(). */
GIGABAR_C_API gigabar_status gigabar_copy_from_by(const gigabar_mapping* mapping, size_t offset_bytes, void* destination,
                                                  size_t bytes, gigabar_copy_method method, gigabar_copy_method* used);

/* Copies `bytes` from `source` to `data_offset_bytes`, then stores the flag at `flag_offset_bytes` as one access, in this order: a
 * reader that sees the flag also sees the data, and everything that this thread stored before. With 0 bytes only the flag is
 * stored. Stores nothing when a range is refused. More errors: INVALID_ARGUMENT (the flag's address is no multiple of its size).
 * Ordering: that one; on a cached mapping the flag is a release. Cost: two fences and the stores. */
GIGABAR_C_API gigabar_status gigabar_publish32(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes,
                                               size_t flag_offset_bytes, uint32_t value);
/* The same with a flag of 8 bytes. */
GIGABAR_C_API gigabar_status gigabar_publish64(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes,
                                               size_t flag_offset_bytes, uint64_t value);

/* Many stores with one fence. Threads: one at a time. */
typedef struct gigabar_batch gigabar_batch;

/* Makes an empty batch of a mapping, which must outlive it. Ended by gigabar_batch_close().
 * Errors: INVALID_ARGUMENT (null), OUT_OF_MEMORY. Ordering: none. Cost: allocates. */
GIGABAR_C_API gigabar_status gigabar_batch_open(gigabar_mapping* mapping, gigabar_batch** batch);

/* As gigabar_copy_to() without the fence. A copy that is refused stores nothing and leaves the batch usable.
 * Ordering: none before gigabar_batch_commit() has returned. Cost: stores to MMIO. */
GIGABAR_C_API gigabar_status gigabar_batch_copy_to(gigabar_batch* batch, size_t offset_bytes, const void* source, size_t bytes);

/* The stores of the batch have left the CPU. Errors: INVALID_ARGUMENT (null). Ordering: as gigabar_copy_to(). Cost: one fence. */
GIGABAR_C_API gigabar_status gigabar_batch_commit(gigabar_batch* batch);

/* Commits what is not committed and ends the batch. Errors, ordering, cost: as gigabar_batch_commit(). */
GIGABAR_C_API gigabar_status gigabar_batch_close(gigabar_batch* batch);

#ifdef __cplusplus
}
#endif

#endif
