// SPDX-License-Identifier: Apache-2.0
/* Memory of stand-in devices for C programs that use libgdrapi on a machine without a GPU, where no cudaMalloc can give them any.
 *
 * With GIGABAR_STAND_IN=N in the environment host memory plays N GPUs. libgdrapi.so.2 exports these two functions beside those of
 * gdrapi.h, and pins what they allocate. GDRCopy's own library has neither: a program that is to run with both looks them up by
 * dlsym.
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

/* Gives `*address` that many bytes of the memory of stand-in `device`, zeroed, at the beginning of a GPU page (GPU_PAGE_SIZE). Only
 * this copy of the library knows it: not libgigabar, and no other process.
 * EINVAL  `address` is null, `bytes` is 0, there is no stand-in of that number, or GIGABAR_STAND_IN is not a number
 * ENODEV  GIGABAR_STAND_IN is not set: the devices are GPUs, or there are none
 * ENOMEM, EMFILE */
int gigabar_stand_in_allocate(int device, size_t bytes, void** address);

/* Frees it. Under a pinned handle its pages stay until the handle is unpinned, as those of a GPU do.
 * EINVAL  `address` is not what gigabar_stand_in_allocate gave, or was freed
 * EACCES  in a forked child: the parent allocated it */
int gigabar_stand_in_free(void* address);

#ifdef __cplusplus
}
#endif

#endif
