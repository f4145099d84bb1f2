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

#ifdef __cplusplus
}
#endif

#endif
