/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of GDRCopy 2.6, offered by Gigabar's libgdrapi.so.2: CPU mappings of GPU memory, with or without a kernel module.
 *
 * Names, values, layouts and return codes are GDRCopy's, so a program built against either header runs with either library.
 * Where GDRCopy does not define the result of a wrong call, the comments below do.
 *
 * Order of calls:  gdr_open > gdr_pin_buffer > gdr_map > gdr_copy_* > gdr_unmap > gdr_unpin_buffer > gdr_close.
 *
 * Return values. Functions that return int return 0, or a positive errno value. A failed call has changed nothing, outputs
 * included, unless its comment says otherwise. Codes that every function with that argument can return, not repeated below:
 *   EINVAL  a null or closed gdr_t, a null pointer for an output, a handle that is null, was unpinned or belongs to another gdr_t
 *   EACCES  in a forked child: the gdr_t or handle was made by the parent. Open and pin again in the child
 *   ENOMEM  no host memory for the library's own records
 *   EIO     the driver reported an error, or a new mapping showed other memory than it should
 * Nothing is printed unless GDRCOPY_ENABLE_LOGGING is in the environment, but for warnings (a variable with a wrong value, say):
 * GIGABAR_LOG=off turns them off.
 *
 * Threads. Any number of threads may call every function at once, also on one gdr_t and one handle. Copies through different
 * handles or by different threads do not wait for each other. gdr_unmap, gdr_unpin_buffer and gdr_close do not wait for
 * gdr_copy_* calls that other threads have begun: those end as if they had come first, and the memory of an unpinned handle is
 * released when the last of them ends. That protects the two copy functions only. The program's own loads and stores through a
 * mapping must have ended before it is unmapped. A thread that is cancelled (pthread_cancel) inside a function ends after it.
 *
 * Life time. Mappings are persistent: when the GPU memory is freed under a pinned handle, its pages stay until the handle is
 * unpinned, and accesses through the mapping reach the old pages.
 *
 * Fork. A forked child has none of the parent's mappings: loads and stores through them are SIGSEGV, calls are EACCES.
 *
 * Environment, read by gdr_open unless said otherwise, ignored when real and effective ids differ:
 *   GDRCOPY_ENABLE_LOGGING    any value, also 0: messages go to standard error. Read once, at the first message
 *   GDRCOPY_LOG_LEVEL         least level printed: 1 debug, 2 information, 3 warnings, 4 errors (default). Read once, likewise
 *   GDRCOPY_USE_DMABUF_MMAP   "1": dma-buf mappings (CUDA driver 13.3) or none
 *   GIGABAR_MAPPING           dmabuf, gdrdrv or rm: this backend or none
 *   GIGABAR_STAND_IN          N: host memory plays N GPUs, for tests; gigabar/stand_in.h allocates it
 *
 * Sources: GDRCopy 2.6, gdrapi.h and README (interface); gigabar/mapping.hpp and gigabar/copy.hpp (what the promises rest on).
 */
#ifndef GDRAPI_H
#define GDRAPI_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define MAJOR_VERSION_SHIFT 16
#define MINOR_VERSION_MASK 0xffff
#define GDR_API_VERSION ((GDR_API_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | GDR_API_MINOR_VERSION)

/* The oldest kernel module that the interface supports; this library needs none. */
#define MINIMUM_GDRDRV_MAJOR_VERSION 2
#define MINIMUM_GDRDRV_MINOR_VERSION 0
#define MINIMUM_GDRDRV_VERSION ((MINIMUM_GDRDRV_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | MINIMUM_GDRDRV_MINOR_VERSION)

/* The unit of pinning, in bytes of GPU memory. */
#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): the names are GDRCopy's */

/* A session with the drivers. Not an address: do not dereference it. */
struct gdr;
typedef struct gdr* gdr_t;

/* A pinned buffer. {0} is not a handle. The number is never reused after the unpin, so an old handle is EINVAL, not another
 * buffer. */
typedef struct gdr_mh_s {
  unsigned long h;
} gdr_mh_t;

/* How the CPU's caches treat a mapping. */
typedef enum gdr_mapping_type {
  GDR_MAPPING_TYPE_NONE = 0,    /* not mapped */
  GDR_MAPPING_TYPE_WC = 1,      /* write combining: GPU memory behind PCIe */
  GDR_MAPPING_TYPE_CACHING = 2, /* ordinary cached memory: coherent links, stand-ins */
  GDR_MAPPING_TYPE_DEVICE = 3   /* uncached */
} gdr_mapping_type_t;

typedef enum gdr_pin_flags {
  GDR_PIN_FLAG_DEFAULT = 0,
  GDR_PIN_FLAG_FORCE_PCIE = 1 /* access the memory through PCIe even where a coherent link exists */
} gdr_pin_flags_t;

/* One of these values; they are not bits. */
typedef enum gdr_map_flags {
  GDR_MAP_FLAG_DEFAULT = 0, /* the platform's type */
  GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
  GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
  GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3
} gdr_map_flags_t;

typedef enum gdr_attr {
  GDR_ATTR_USE_PERSISTENT_MAPPING = 1,      /* always 1 */
  GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2, /* 1 where the CPU has no coherent link to GPUs: every mapping is PCIe there */
  GDR_ATTR_USING_DMA_BUF_MMAP = 3,          /* 1 when pins use dma-buf mappings on every device of the session */
  GDR_ATTR_MAX
} gdr_attr_t;

/* A pinned buffer, as gdr_get_info reports it. */
struct gdr_info_v2 {
  uint64_t va;            /* GPU address of the first pinned byte; gdr_map's pointer is the CPU's address of the same byte */
  uint64_t mapped_size;   /* pinned bytes from va on: whole GPU pages, fewer only where the block of GPU memory ends before */
  uint32_t page_size;     /* GPU_PAGE_SIZE */
  uint64_t tm_cycles;     /* duration of the pin in cycles of the CPU's time stamp counter; 0 on CPUs without one */
  uint32_t cycles_per_ms; /* of that counter */
  unsigned mapped : 1;
  unsigned wc_mapping : 1; /* mapped, and mapping_type is GDR_MAPPING_TYPE_WC */
  gdr_mapping_type_t mapping_type;
};
typedef struct gdr_info_v2 gdr_info_v2_t;
typedef gdr_info_v2_t gdr_info_t;

/* Opens a session on every GPU that the CPU can map.
 * Returns the session, or NULL with errno and the reason in the log:
 *   ENODEV      no driver, no GPU, or no backend for its memory (of those that the environment allows).
 *               GIGABAR_STAND_IN=N replaces GPUs by host memory; without it stand-ins are never used
 *   EACCES      no permission for the device files. In a forked child of a process that has used the GPU it is the pin that fails
 *   EINVAL      a variable of the environment has a wrong value
 *   ENOMEM, EIO
 * Threads: any. Cost: the first call initialises CUDA (up to some hundred ms); fork before it when the child is to use a GPU. */
gdr_t gdr_open(void);

/* Closes `g`: unmaps and unpins every buffer of the session. Always ends the session, and returns 0.
 * Returns EINVAL for a session that is closed already. Threads: any; pins of other threads that have not returned yet fail.
 * Cost: enters the kernel per buffer. */
int gdr_close(gdr_t g);

/* Pins the GPU pages that hold [addr, addr + size) and keeps them until the unpin, even when the GPU memory is freed.
 * `addr` is a GPU address of any alignment; `size` at least 1. The range may begin and end outside the allocation, within the GPU
 * pages (64 KiB) that the allocation touches: callers that round to pages themselves are served. Where small allocations share a
 * page, gdrdrv and rm pin all of it, but dmabuf pins only the first of them: pin the buffer's own address there.
 * `p2p_token` and `va_space` belong to a scheme that persistent mappings do not have; they must be 0.
 * Writes `*handle` on success only. This call makes and verifies the mapping; gdr_map returns its address.
 *   EINVAL      addr or size 0; the range overflows or leaves the block; memory that is not GPU memory or
 *               cannot be mapped: host, managed, pool or VMM memory that is not exportable; a token that is not 0
 *   EACCES      the device files may not be opened
 *   ENOMEM      also: no space in the GPU's BAR1; more than a million handles
 *   EMFILE      no file descriptor left
 *   ENODEV      no backend can map the memory of this device
 *   EBUSY, ETIMEDOUT  from the driver; the call can be repeated
 * Threads: any. Cost: 50-100 us for the first buffer in a block of GPU memory, a few us for the next ones there. */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t* handle);

/* gdr_pin_buffer with flags of gdr_pin_flags_t instead of tokens.
 *   EINVAL      also: an unknown flag; GDR_PIN_FLAG_FORCE_PCIE for memory that can only be mapped over a coherent link */
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t* handle);

/* Ends the pin, and the mapping if there is one. The handle and gdr_map's address are invalid afterwards.
 * Threads: any. Cost: enters the kernel unless other handles or the cache of mappings keep the block. */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/* Writes to `*flag` whether the driver revoked the memory: always 0, because persistent mappings are never revoked.
 * Threads: any. */
int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int* flag);

/* Fills `*info`. Threads: any; fields are of one moment. Cost: a lock.
 * The library also has a function of the plain name, which fills only the 40 bytes before mapping_type. Programs that were built
 * before GDRCopy 2.4, or that look the name up at run time, get that function. */
#define gdr_get_info gdr_get_info_v2
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t* info);

/* Returns the CPU's address of the pinned buffer in `*va`. It corresponds to gdr_info_v2.va, the start of the first GPU page, so a
 * buffer at d_ptr is at (char *)*va + (d_ptr - info.va). At least `size` bytes from the pinned address on can be used, up to
 * the end of the host page and of the pinned range; more is refused by gdr_copy_*.
 *   EINVAL      size is 0 or more than the pinned GPU pages
 *   EAGAIN      the handle is mapped already
 * Threads: any. Cost: a lock; the mapping exists since the pin. */
int gdr_map(gdr_t g, gdr_mh_t handle, void** va, size_t size);

/* gdr_map with a value of gdr_map_flags_t.
 *   EINVAL      also: any other value
 *   EOPNOTSUPP  the mapping is of another type than the required one; the platform decides, not the caller */
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void** va, size_t size, int flags);

/* Ends the mapping: the copy functions reject the address from now on, and the program may no longer use it.
 * `va` and `size` as in gdr_map, `size` up to the host page.
 *   EINVAL      not mapped, another address, another size; the mapping stays as it was
 * Threads: any. Cost: a lock. The pages stay pinned. */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void* va, size_t size);

/* Copies `size` bytes from host memory at `h_ptr` to `map_d_ptr`, an address of any alignment in the handle's mapping.
 *   EINVAL      not mapped, [map_d_ptr, +size) leaves the mapping, h_ptr null; nothing was copied. Size 0 of a mapped handle is 0
 * Ordering: the stores have left the CPU when it returns; two calls of one thread become visible to the GPU in call order, bytes
 * within one call in any order. Nothing is promised about GPU work that is running and reads the same bytes.
 * Threads: any, also while others unmap, unpin or close. Cost: stores and one fence, no kernel call; see gigabar/copy.hpp. */
int gdr_copy_to_mapping(gdr_mh_t handle, void* map_d_ptr, const void* h_ptr, size_t size);

/* Copies `size` bytes from `map_d_ptr` in the handle's mapping to host memory at `h_ptr`. Errors, threads: as gdr_copy_to_mapping.
 * Ordering: reads what is in GPU memory now, never bytes kept from an earlier call; two calls of one thread read in call order.
 * Cost: about 1 us per 64 bytes over PCIe, several in flight. */
int gdr_copy_from_mapping(gdr_mh_t handle, void* h_ptr, const void* map_d_ptr, size_t size);

/* Writes the version of this library's interface, 2 and 6. Null pointers are skipped. Threads: any; never fails. */
void gdr_runtime_get_version(int* major, int* minor);

/* Writes 2 and 6: the interface that the session behaves like, whether or not a kernel module is loaded. Programs ask in order to
 * know which calls work, and all do; `gigabar info` shows an installed module. Threads: any. */
int gdr_driver_get_version(gdr_t g, int* major, int* minor);

/* Writes the value of `attr` to `*v`; writes 0 for an attribute that it rejects with EINVAL. Threads: any. */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int* v);

/* Points `*s` to the name of `type`, a constant: "None", "Write Combining", "Caching", "Device".
 *   EINVAL      any other value. Threads: any. */
int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char** s);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
