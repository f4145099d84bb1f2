/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of GPI-2 beyond GASPI 17.1. Returns and threads: as in GASPI.h. */
#ifndef GIGABAR_GASPI_EXT_H
#define GIGABAR_GASPI_EXT_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stores 1 between a successful gaspi_proc_init and gaspi_proc_term, else 0. NULLPTR. */
gaspi_return_t gaspi_initialized(gaspi_number_t* const initialized);
/* This rank among those of its host, and their number. NOINIT, NULLPTR. The number connects this rank with every other. */
gaspi_return_t gaspi_proc_local_rank(gaspi_rank_t* const local_rank);
gaspi_return_t gaspi_proc_local_num(gaspi_rank_t* const local_num);
/* Asks the rank to answer. GASPI_ERROR: it is dead, and CORRUPT in the state vector. NOINIT, INV_RANK. */
gaspi_return_t gaspi_proc_ping(const gaspi_rank_t rank, gaspi_timeout_t timeout_ms);

/* The smallest id of no segment. NOINIT, NULLPTR, MANY_SEG. */
gaspi_return_t gaspi_segment_avail_local(gaspi_segment_id_t* const avail_seg_id);
/* NOINIT, NULLPTR, INV_RANK, INV_SEG (the rank has none of that id). */
gaspi_return_t gaspi_segment_size(const gaspi_segment_id_t segment_id, const gaspi_rank_t rank, gaspi_size_t* const size);

/* MHz, of the first CPU. NULLPTR. */
gaspi_return_t gaspi_cpu_frequency(gaspi_float* const cpu_mhz);
/* Stores "CPU" or "GPU", of this rank's device. NULLPTR. */
gaspi_return_t gaspi_machine_type(char machine_type[16]);
/* The NUMA node of the CPU that the caller runs on. NULLPTR; GASPI_ERROR: the kernel reports none. */
gaspi_return_t gaspi_numa_socket(gaspi_uchar* const socket);
/* Binds the calling thread to the CPUs of a NUMA node. GASPI_ERROR: there is no such node, or none of its CPUs may be used. */
gaspi_return_t gaspi_set_socket_affinity(const gaspi_uchar socket);
/* Prints the CPUs of the calling thread. */
void gaspi_print_affinity_mask(void);

/* Print, with host and rank in front: here, or where `rank` runs. */
void gaspi_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
void gaspi_printf_to(gaspi_rank_t rank, const char* format, ...) __attribute__((format(printf, 2, 3)));
/* A text for the code, which lives as long as the library. */
gaspi_string_t gaspi_error_str(gaspi_return_t error_code);
/* A pause of the CPU inside a loop that polls. */
void gaspi_delay(void);

/* --- Kernels: of no other implementation
 * ---------------------------------------------------------------------------------------------------------------------------------
 */

/* What takes the notifications of a segment at each rank, by gaspi_notify_waitsome and gaspi_notify_reset: kernels of the rank's
 * GPU, or the CPU. Kernels and CPUs of all ranks raise both. */
typedef enum { GASPI_NOTIFY_KERNELS = 0, GASPI_NOTIFY_CPU = 1 } gaspi_notify_taker_t;
typedef struct {
  gaspi_segment_id_t segment_id;
  gaspi_notify_taker_t taker;
} gaspi_device_segment_t;

/* The handle that kernels take, by value: GASPI_Device.hpp has it and the functions for kernels. */
typedef struct gaspi_device gaspi_device_t;

/* Lets kernels of this rank's GPU use the segments, and stores where the handle is, in host memory. Every rank calls it with the
 * same arguments, for segments that exist at all ranks that use them; it waits for the ranks. Each id up to the highest takes 16
 * bytes of GPU memory for each notification of the configuration. `queue_num`: queues of kernels to each rank whose memory this GPU
 * does not access by loads and stores, and to every rank where a CPU takes notifications; a thread of the CPU that polls serves
 * them. One handle at a time: INITED. After GASPI_TIMEOUT nothing is kept, and all ranks call again. NOINIT, NULLPTR, INV_NUM (no
 * segment, or not 1 to gaspi_queue_max queues), INV_SEG (no such segment, or named twice), ERR_DEVICE. */
gaspi_return_t gaspi_device_open(const gaspi_device_segment_t* const segments, const gaspi_number_t segment_num,
                                 const gaspi_number_t queue_num, const gaspi_device_t** const device,
                                 const gaspi_timeout_t timeout_ms);
/* Ends it, as gaspi_proc_term does: waits until no kernel of this process runs and the other ranks have come as far. Notifications
 * that kernels had not taken are lost. gaspi_segment_delete of its segments is ERR_DEVICE before. After GASPI_TIMEOUT kernels go
 * on. NOINIT, NULLPTR (there is none). */
gaspi_return_t gaspi_device_close(const gaspi_timeout_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
