// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "gaspi/process.hpp"

namespace {

const char* text_of(gaspi_return_t code) {
  switch (code) {
    case GASPI_ERROR: return "general error";
    case GASPI_SUCCESS: return "success";
    case GASPI_TIMEOUT: return "time-out: make the same call again";
    case GASPI_ERR_EMFILE: return "too many open files";
    case GASPI_ERR_ENV: return "the launcher's environment is incomplete or contradicts itself";
    case GASPI_ERR_SN_PORT: return "the port of rank 0 cannot be used";
    case GASPI_ERR_CONFIG: return "a value of the configuration is out of its limits";
    case GASPI_ERR_NOINIT: return "GASPI is not initialised: call gaspi_proc_init first";
    case GASPI_ERR_INITED: return "GASPI is initialised already";
    case GASPI_ERR_NULLPTR: return "a pointer is null";
    case GASPI_ERR_INV_SEGSIZE: return "invalid segment size";
    case GASPI_ERR_INV_SEG: return "invalid segment: there is none of that id, or it exists already";
    case GASPI_ERR_INV_GROUP: return "invalid group: there is none of that id, or it is not committed";
    case GASPI_ERR_INV_RANK: return "invalid rank";
    case GASPI_ERR_INV_QUEUE: return "invalid queue";
    case GASPI_ERR_INV_LOC_OFF: return "invalid local offset: the transfer leaves the local segment";
    case GASPI_ERR_INV_REM_OFF: return "invalid remote offset: the transfer leaves the remote segment";
    case GASPI_ERR_INV_COMMSIZE: return "invalid transfer size";
    case GASPI_ERR_INV_NOTIF_VAL: return "invalid notification value: it must not be 0";
    case GASPI_ERR_INV_NOTIF_ID: return "invalid notification id";
    case GASPI_ERR_INV_NUM: return "invalid number of elements";
    case GASPI_ERR_INV_SIZE: return "invalid element size";
    case GASPI_ERR_MANY_SEG: return "too many segments";
    case GASPI_ERR_MANY_GRP: return "too many groups";
    case GASPI_QUEUE_FULL: return "the queue is full: call gaspi_wait first";
    case GASPI_ERR_UNALIGN_OFF: return "unaligned offset: atomics need a multiple of 8";
    case GASPI_ERR_ACTIVE_COLL: return "another collective of the group is active: make that call again first";
    case GASPI_ERR_DEVICE: return "device error: no usable network, or memory that it cannot use";
    case GASPI_ERR_SN: return "the start-up connection to rank 0 failed";
    case GASPI_ERR_MEMALLOC: return "no memory";
  }
  return "unknown return value";
}

}  // namespace

gaspi_string_t pgaspi_error_str(gaspi_return_t error_code) { return const_cast<char*>(text_of(error_code)); }
GASPI_NAMED(gaspi_error_str);

gaspi_return_t pgaspi_print_error(gaspi_return_t error_code, gaspi_string_t* const error_message) {
  if (error_message == nullptr) return GASPI_ERR_NULLPTR;
  *error_message = ::strdup(text_of(error_code));
  return *error_message != nullptr ? GASPI_SUCCESS : GASPI_ERR_MEMALLOC;
}
GASPI_NAMED(gaspi_print_error);
