/* SPDX-License-Identifier: Apache-2.0 */
/* The result of every call of the C interface (gigabar.h), and the record of the last one that failed.
 *
 * Every function that can fail returns a gigabar_status. On a failure nothing has changed but perhaps members of
 * the structure that the call fills, and gigabar_last_error() has the record. Outputs are the last arguments. No exception leaves
 * the library. A null pointer where none is allowed, a size that cannot be and a bit or value that this library does not know are
 * GIGABAR_INVALID_ARGUMENT, whose record names the argument.
 *
 * Structures. One that may grow begins with two members, which the caller sets:
 *   struct_size  sizeof of the structure, as the caller was compiled
 *   field_mask   the members behind them that count, one bit each. Of options: the members that the caller has set; the others have
 *                their defaults, whatever their bytes are. Of information: the members that the caller asks for; afterwards those
 *                that the call has filled, where a value is not known on every machine.
 * A program that was compiled with an earlier version of this header therefore works with a later library. Initialise with
 * designators: `gigabar_map_options options = {.struct_size = sizeof options, .field_mask = ...}`.
 *
 * Handles (gigabar_mapping and the other incomplete types) are made by one function and ended by another, once; each names its
 * partner. An ended handle must not be used. A handle of a parent process is not usable in its forked child.
 *
 * A thread that is cancelled (pthread_cancel) inside a call ends after it, at its next cancellation point.
 */
#ifndef GIGABAR_STATUS_H
#define GIGABAR_STATUS_H

#include <stddef.h>
#include <stdint.h>

#define GIGABAR_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Grouped by what must be done before the same call can succeed. Numbers are never given to another meaning. */
typedef int32_t gigabar_status;
enum {
  GIGABAR_OK = 0,

  /* The call: change the argument. */
  GIGABAR_INVALID_ARGUMENT = 1,
  GIGABAR_OUT_OF_RANGE = 2,
  GIGABAR_NOT_SUPPORTED = 3, /* this memory or this combination can never work here */

  /* The operation: the same call can succeed later, or after the remedy. */
  GIGABAR_UNAVAILABLE = 4, /* the requested path does not exist on this machine */
  GIGABAR_NO_PERMISSION = 5,
  GIGABAR_OUT_OF_MEMORY = 6,
  GIGABAR_OUT_OF_DESCRIPTORS = 7,
  GIGABAR_OUT_OF_BAR1 = 8, /* the GPU's BAR1 aperture has no space for the window */
  GIGABAR_BUSY = 9,
  GIGABAR_TIMED_OUT = 10,           /* nothing is lost: the same call can be made again */
  GIGABAR_VERIFICATION_FAILED = 11, /* a new mapping did not show the memory it should; it was not handed out */
  GIGABAR_BAD_FILE = 12,            /* a file that was read is truncated, malformed or hostile */

  /* The device: its driver reported an error; allocations on it may be lost. */
  GIGABAR_DEVICE_ERROR = 13,

  /* The connection: the peer is gone or refused; other peers are unaffected. */
  GIGABAR_PEER_LOST = 14,

  /* The process: the object belongs to another process, for example to the parent of a fork. */
  GIGABAR_FOREIGN_PROCESS = 15
};

/* The numbering that a native code belongs to. */
typedef int32_t gigabar_native_domain;
enum {
  GIGABAR_NATIVE_NONE = 0,
  GIGABAR_NATIVE_ERRNO = 1,
  GIGABAR_NATIVE_CUDA_DRIVER = 2,
  GIGABAR_NATIVE_NVML = 3,
  GIGABAR_NATIVE_RESOURCE_MANAGER = 4, /* NV_STATUS of the NVIDIA driver */
  GIGABAR_NATIVE_LOADER = 5            /* the dynamic linker, which has no codes */
};

/* The record of a failure. Texts are never null, and empty where there is nothing to say. */
#define GIGABAR_ERROR_STATUS (UINT64_C(1) << 0)
#define GIGABAR_ERROR_OPERATION (UINT64_C(1) << 1)
#define GIGABAR_ERROR_OBJECT (UINT64_C(1) << 2)
#define GIGABAR_ERROR_CAUSE (UINT64_C(1) << 3)
#define GIGABAR_ERROR_REMEDY (UINT64_C(1) << 4)
#define GIGABAR_ERROR_NATIVE_DOMAIN (UINT64_C(1) << 5)
#define GIGABAR_ERROR_NATIVE_CODE (UINT64_C(1) << 6)
#define GIGABAR_ERROR_NATIVE_NAME (UINT64_C(1) << 7)
#define GIGABAR_ERROR_CHECK (UINT64_C(1) << 8)
#define GIGABAR_ERROR_MESSAGE (UINT64_C(1) << 9)
#define GIGABAR_ERROR_ALL (GIGABAR_ERROR_MESSAGE * 2 - 1)
typedef struct gigabar_error {
  uint64_t struct_size;
  uint64_t field_mask;
  gigabar_status status;
  gigabar_native_domain native_domain;
  int64_t native_code;
  const char* operation;   /* "map" */
  const char* object;      /* "0x7f0000000000 +65536 on device 0"; the argument's name where the argument is wrong */
  const char* cause;       /* what was observed, not an assumption */
  const char* remedy;      /* one sentence */
  const char* native_name; /* "EMFILE", "CUDA_ERROR_INVALID_VALUE" */
  const char* check;       /* the doctor's check that explains the cause, for `gigabar explain` */
  const char* message;     /* all of it in one line */
} gigabar_error;

/* Fills `error` with the record of the last call of this thread that failed; its status is GIGABAR_OK when none has.
 * The texts live until the next call of this thread that fails, and at most as long as the thread.
 * Errors: INVALID_ARGUMENT (null, struct_size, an unknown bit), which does not replace the record.
 * Ordering: none. Threads: any; each has its own record. Cost: allocates the message at its first use. */
GIGABAR_C_API gigabar_status gigabar_last_error(gigabar_error* error);

/* Returns the message of that record: one line, never null, "ok" when no call of this thread has failed. Lives as long as the texts
 * of gigabar_last_error(). Cannot fail. Ordering: none. Threads: any. Cost: as gigabar_last_error(). */
GIGABAR_C_API const char* gigabar_last_error_message(void);

/* Returns the name of a status, "out_of_bar1"; "unknown" for a number that this library does not know. Cannot fail.
 * Ordering: none. Threads: any. Cost: none. */
GIGABAR_C_API const char* gigabar_status_name(gigabar_status status);

/* Returns the version of the library that is running, "0.1.0". Cannot fail. Ordering: none. Threads: any. Cost: none. */
GIGABAR_C_API const char* gigabar_version(void);

/* Frees a text that a call of this interface has returned. Errors: INVALID_ARGUMENT (null).
 * Ordering: none. Threads: any. Cost: none. */
GIGABAR_C_API gigabar_status gigabar_text_free(char* text);

#ifdef __cplusplus
}
#endif

#endif
