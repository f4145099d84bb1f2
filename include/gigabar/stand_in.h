// SPDX-License-Identifier: Apache-2.0
/* Memory of stand-in devices, for C programs that use libgdrapi on a machine without a GPU and therefore without cudaMalloc.
 *
 * With GIGABAR_STAND_IN=N in the environment host memory plays N GPUs. libgdrapi.so.2 exports these two functions in addition to
 * those of gdrapi.h, and can pin the memory that they allocate. GDRCopy's own library does not have them: a program that must run
 * with both libraries looks them up with dlsym.
 *
 * Return values: 0, or a positive errno value; a failed call has changed nothing. The cause is printed with
 * GDRCOPY_ENABLE_LOGGING. Threads: any number at once.
 */
#ifndef GIGABAR_STAND_IN_H
#define GIGABAR_STAND_IN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `bytes` of zeroed memory of stand-in `device` at the beginning of a GPU page (GPU_PAGE_SIZE), and stores its address in
 * `*address`. Only this copy of the library knows the memory: neither libgigabar nor another process does.
 * EINVAL  `address` is null, `bytes` is 0, there is no stand-in of that number, or GIGABAR_STAND_IN is not a number
 * ENODEV  GIGABAR_STAND_IN is not set: the devices are GPUs, or there are none
 * ENOMEM, EMFILE */
int gigabar_stand_in_allocate(int device, size_t bytes, void** address);

/* Frees memory of gigabar_stand_in_allocate. Pages under a pinned handle stay until the handle is unpinned, as those of a GPU do.
 * EINVAL  `address` is not from gigabar_stand_in_allocate, or was freed before
 * EACCES  in a forked child: the parent allocated it */
int gigabar_stand_in_free(void* address);

#ifdef __cplusplus
}
#endif

#endif
