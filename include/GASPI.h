/* SPDX-License-Identifier: Apache-2.0 */
/* GASPI 17.1: one-sided communication between the ranks of a job, with the extensions of GPI-2 1.6 that programs use. C and C++.
 * GASPI_Ext.h has the rest of GPI-2's. docs/gaspi.md says, for each function, where it differs from GPI-2.
 *
 * Every function returns a gaspi_return_t. GASPI_TIMEOUT is no error: make the same call again. An error code names the argument
 * that is wrong; nothing was changed then. GASPI_ERROR: see gaspi_state_vec_get for ranks that were lost; the cause is printed to
 * stderr unless `logger` of the configuration is 0. timeout_ms: milliseconds, GASPI_BLOCK (until done) or GASPI_TEST (look once).
 * Threads: any number may call at once. Calls of one queue, and collectives of one group, wait for each other, at most timeout_ms.
 * A thread that is cancelled (pthread_cancel) inside a call ends after it.
 * For each function there is pgaspi_*, which tools that replace gaspi_* call (PGASPI.h).
 */
#ifndef GIGABAR_GASPI_H
#define GIGABAR_GASPI_H

#ifdef __cplusplus
extern "C" {
#endif

/* --- Types -----------------------------------------------------------------------------------------------------------------------
 */

typedef char gaspi_char;
typedef unsigned char gaspi_uchar;
typedef short gaspi_short;
typedef unsigned short gaspi_ushort;
typedef int gaspi_int;
typedef unsigned int gaspi_uint;
typedef long gaspi_long;
typedef unsigned long gaspi_ulong;
typedef float gaspi_float;
typedef double gaspi_double;

typedef unsigned long gaspi_timeout_t; /* milliseconds */
typedef unsigned short gaspi_rank_t;
typedef unsigned char gaspi_group_t;
typedef unsigned int gaspi_number_t;
typedef void* gaspi_pointer_t;
typedef void* gaspi_reduce_state_t;
typedef unsigned char gaspi_queue_id_t;
typedef unsigned long gaspi_size_t; /* bytes */
typedef unsigned long gaspi_alloc_t;
typedef unsigned char gaspi_segment_id_t;
typedef unsigned long gaspi_offset_t; /* bytes */
typedef unsigned long gaspi_atomic_value_t;
typedef float gaspi_time_t; /* milliseconds */
typedef unsigned long gaspi_cycles_t;
typedef unsigned int gaspi_notification_id_t;
typedef unsigned int gaspi_notification_t;
typedef unsigned int gaspi_statistic_counter_t;
typedef char* gaspi_string_t;
typedef int gaspi_memory_description_t;

static const gaspi_group_t GASPI_GROUP_ALL = 0; /* all ranks of the job */
static const gaspi_timeout_t GASPI_BLOCK = 0xffffffffffffffffUL;
static const gaspi_timeout_t GASPI_TEST = 0;

typedef enum {
  GASPI_ERROR = -1,
  GASPI_SUCCESS = 0,
  GASPI_TIMEOUT = 1,
  GASPI_ERR_EMFILE = 2,         /* no more file descriptors */
  GASPI_ERR_ENV = 3,            /* the launcher's environment is incomplete or contradicts itself */
  GASPI_ERR_SN_PORT = 4,        /* the port of rank 0 cannot be used */
  GASPI_ERR_CONFIG = 5,         /* a value of the configuration is out of its limits */
  GASPI_ERR_NOINIT = 6,         /* gaspi_proc_init has not succeeded */
  GASPI_ERR_INITED = 7,         /* gaspi_proc_init has succeeded before */
  GASPI_ERR_NULLPTR = 8,        /* a pointer is null */
  GASPI_ERR_INV_SEGSIZE = 9,    /* a segment of no bytes */
  GASPI_ERR_INV_SEG = 10,       /* no such segment, or one of that id exists */
  GASPI_ERR_INV_GROUP = 11,     /* no such group, or it is not committed */
  GASPI_ERR_INV_RANK = 12,      /* no such rank, or it must not be this one */
  GASPI_ERR_INV_QUEUE = 13,     /* no such queue */
  GASPI_ERR_INV_LOC_OFF = 14,   /* offset and size leave the local segment */
  GASPI_ERR_INV_REM_OFF = 15,   /* offset and size leave the remote segment */
  GASPI_ERR_INV_COMMSIZE = 16,  /* a size above the largest transfer, or below the smallest */
  GASPI_ERR_INV_NOTIF_VAL = 17, /* a notification of value 0 */
  GASPI_ERR_INV_NOTIF_ID = 18,  /* a notification id outside of 0 .. gaspi_notification_num - 1 */
  GASPI_ERR_INV_NUM = 19,       /* a number of elements, or a counter, out of its limits */
  GASPI_ERR_INV_SIZE = 20,      /* an element size out of its limits */
  GASPI_ERR_MANY_SEG = 21,      /* gaspi_segment_max segments exist */
  GASPI_ERR_MANY_GRP = 22,      /* gaspi_group_max groups exist */
  GASPI_QUEUE_FULL = 23,        /* the queue holds gaspi_queue_size_max requests: gaspi_wait first */
  GASPI_ERR_UNALIGN_OFF = 24,   /* an atomic at an offset that is no multiple of 8 */
  GASPI_ERR_ACTIVE_COLL = 25,   /* another collective of the group has timed out: make that call again first */
  GASPI_ERR_DEVICE = 26,        /* no network, or memory that it cannot use */
  GASPI_ERR_SN = 27,            /* the start-up connection to rank 0 failed */
  GASPI_ERR_MEMALLOC = 28       /* no memory */
} gaspi_return_t;

typedef enum { GASPI_IB = 0, GASPI_ROCE = 1, GASPI_ETHERNET = 2, GASPI_GEMINI = 3, GASPI_ARIES = 4 } gaspi_network_t;

typedef enum { GASPI_OP_MIN = 0, GASPI_OP_MAX = 1, GASPI_OP_SUM = 2 } gaspi_operation_t;

typedef enum {
  GASPI_TYPE_INT = 0,
  GASPI_TYPE_UINT = 1,
  GASPI_TYPE_FLOAT = 2,
  GASPI_TYPE_DOUBLE = 3,
  GASPI_TYPE_LONG = 4,
  GASPI_TYPE_ULONG = 5
} gaspi_datatype_t;

/* Of a rank, as this process has seen it. */
typedef enum { GASPI_STATE_HEALTHY = 0, GASPI_STATE_CORRUPT = 1 } gaspi_state_t;
typedef gaspi_state_t* gaspi_state_vector_t; /* one for each rank */

/* Allocation policies, and, of gaspi_segment_bind and _use, memory descriptions. GASPI_MEM_GPU: memory of this rank's GPU. */
enum gaspi_alloc_policy_flags { GASPI_MEM_UNINITIALIZED = 0, GASPI_MEM_INITIALIZED = 1, GASPI_MEM_GPU = 2 };
#define GASPI_ALLOC_DEFAULT GASPI_MEM_UNINITIALIZED

/* What gaspi_proc_init connects. NONE: nothing, and GASPI_GROUP_ALL must be committed before its first collective. STATIC: every
 * rank to every rank. DYNAMIC: it waits for all ranks; they are connected at first use. */
typedef enum { GASPI_TOPOLOGY_NONE = 0, GASPI_TOPOLOGY_STATIC = 1, GASPI_TOPOLOGY_DYNAMIC = 2 } gaspi_topology_t;

typedef enum { GASPI_STATISTIC_ARGUMENT_NONE = 0, GASPI_STATISTIC_ARGUMENT_RANK = 1 } gaspi_statistic_argument_t;

/* Of GPI-2's devices; only kept. The fabric finds its devices itself (GIGABAR_RAILS). */
typedef struct {
  gaspi_network_t network_type;
  struct {
    struct {
      gaspi_int netdev_id;
      gaspi_uint mtu;
      gaspi_uint port_check;
    } ib;
    struct {
      gaspi_uint port;
    } tcp;
  } params;
} gaspi_dev_config_t;

typedef struct gaspi_config {
  gaspi_uint logger;             /* 0: causes of GASPI_ERROR are not printed */
  gaspi_uint sn_port;            /* of rank 0, when GASPI_RANK and GASPI_MASTER start the job */
  gaspi_uint net_info;           /* not 0: gaspi_proc_init prints the fabric's settings */
  gaspi_uint user_net;           /* not 0: `network` was chosen, and others are refused */
  gaspi_int sn_persistent;       /* only kept */
  gaspi_timeout_t sn_timeout;    /* of gaspi_segment_delete, milliseconds */
  gaspi_dev_config_t dev_config; /* only kept */
  gaspi_network_t network;
  gaspi_uint queue_size_max; /* requests of a queue */
  gaspi_uint queue_num;      /* queues that exist at start */
  gaspi_number_t group_max;  /* with GASPI_GROUP_ALL */
  gaspi_number_t segment_max;
  gaspi_size_t transfer_size_max;           /* bytes of a write or read */
  gaspi_number_t notification_num;          /* of a segment */
  gaspi_number_t passive_queue_size_max;    /* only kept */
  gaspi_number_t passive_transfer_size_max; /* bytes of a passive message */
  gaspi_size_t allreduce_buf_size;          /* bytes of the values of gaspi_allreduce_user */
  gaspi_number_t allreduce_elem_max;
  gaspi_topology_t build_infrastructure;
  void* user_defined; /* only kept */
} gaspi_config_t;

/* Joins two operands of `num` elements into `result`, for gaspi_allreduce_user. Associative and commutative. A code other than
 * GASPI_SUCCESS, or an exception (GASPI_ERROR), ends the call of this rank without a result; the operation may also end its thread
 * (pthread_exit). The collective is over by then: other ranks get their result. */
typedef gaspi_return_t (*gaspi_reduce_operation_t)(gaspi_pointer_t const operand_one, gaspi_pointer_t const operand_two,
                                                   gaspi_pointer_t const result, gaspi_reduce_state_t const state,
                                                   const gaspi_number_t num, const gaspi_size_t element_size,
                                                   const gaspi_timeout_t timeout_ms);

/* --- Configuration ---------------------------------------------------------------------------------------------------------------
 */

/* Stores the configuration. NULLPTR. */
gaspi_return_t gaspi_config_get(gaspi_config_t* const config);
/* Replaces it, before gaspi_proc_init. INITED; CONFIG: a value is out of its limits. */
gaspi_return_t gaspi_config_set(const gaspi_config_t new_config);
/* Stores the version of the standard, 17.1. NULLPTR. */
gaspi_return_t gaspi_version(float* const version);

/* --- Processes -------------------------------------------------------------------------------------------------------------------
 */

/* Joins the job, and waits for the other ranks (build_infrastructure). INITED, ENV, SN_PORT, SN, DEVICE, MEMALLOC. */
gaspi_return_t gaspi_proc_init(const gaspi_timeout_t timeout_ms);
/* Completes what was posted and leaves the job. Others that still need this rank see it as lost: use a barrier before. NOINIT. */
gaspi_return_t gaspi_proc_term(const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_proc_rank(gaspi_rank_t* const rank);    /* NOINIT, NULLPTR */
gaspi_return_t gaspi_proc_num(gaspi_rank_t* const proc_num); /* NOINIT, NULLPTR */
/* Ends another rank. NOINIT, INV_RANK (also of this rank itself). */
gaspi_return_t gaspi_proc_kill(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms);
/* Connects now rather than at first use; also again after the rank was lost. NOINIT, INV_RANK. */
gaspi_return_t gaspi_connect(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms);
/* Waits until what was posted to the rank is in place, and forgets a lost rank. NOINIT, INV_RANK. */
gaspi_return_t gaspi_disconnect(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms);
/* Stores the state of each rank: CORRUPT since an operation with it failed, until gaspi_connect succeeds. NOINIT, NULLPTR. */
gaspi_return_t gaspi_state_vec_get(gaspi_state_vector_t state_vector);
gaspi_return_t gaspi_network_type(gaspi_network_t* const network_type); /* NOINIT, NULLPTR */
gaspi_return_t gaspi_build_infrastructure(gaspi_number_t* const build); /* NULLPTR */

/* --- Groups ----------------------------------------------------------------------------------------------------------------------
 */

gaspi_return_t gaspi_group_create(gaspi_group_t* const group); /* NOINIT, NULLPTR, MANY_GRP */
/* NOINIT, INV_GROUP (also of GASPI_GROUP_ALL). */
gaspi_return_t gaspi_group_delete(const gaspi_group_t group);
/* NOINIT, INV_GROUP (none, or committed), INV_RANK (none, or in it). */
gaspi_return_t gaspi_group_add(const gaspi_group_t group, const gaspi_rank_t rank);
/* Waits until every rank of the group has committed it. NOINIT, INV_GROUP (none, or this rank is not in it). */
gaspi_return_t gaspi_group_commit(const gaspi_group_t group, const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_group_num(gaspi_number_t* const group_num);                              /* NOINIT, NULLPTR */
gaspi_return_t gaspi_group_size(const gaspi_group_t group, gaspi_number_t* const group_size); /* NOINIT, NULLPTR, INV_GROUP */
gaspi_return_t gaspi_group_ranks(const gaspi_group_t group, gaspi_rank_t* const group_ranks); /* ascending; as group_size */
gaspi_return_t gaspi_group_max(gaspi_number_t* const group_max);                              /* NULLPTR */

/* --- Segments --------------------------------------------------------------------------------------------------------------------
 */

/* Allocates memory as segment `segment_id`. NOINIT, INV_SEGSIZE, INV_SEG (out of range, or in use), MANY_SEG, MEMALLOC, DEVICE. */
gaspi_return_t gaspi_segment_alloc(const gaspi_segment_id_t segment_id, const gaspi_size_t size, const gaspi_alloc_t alloc_policy);
/* Lets a rank use the segment. NOINIT, INV_SEG, INV_RANK. */
gaspi_return_t gaspi_segment_register(const gaspi_segment_id_t segment_id, const gaspi_rank_t rank,
                                      const gaspi_timeout_t timeout_ms);
/* Allocates, registers with every rank of the group, and waits for all of them. Also INV_GROUP, ACTIVE_COLL. */
gaspi_return_t gaspi_segment_create(const gaspi_segment_id_t segment_id, const gaspi_size_t size, const gaspi_group_t group,
                                    const gaspi_timeout_t timeout_ms, const gaspi_alloc_t alloc_policy);
/* As alloc and create, of memory of the program: host memory, or memory of a GPU, which is recognised by its address. It must live
 * until the segment is deleted. NULLPTR; DEVICE: described as GASPI_MEM_GPU, and is not. */
gaspi_return_t gaspi_segment_bind(gaspi_segment_id_t const segment_id, gaspi_pointer_t const pointer, gaspi_size_t const size,
                                  gaspi_memory_description_t const memory_description);
gaspi_return_t gaspi_segment_use(gaspi_segment_id_t const segment_id, gaspi_pointer_t const pointer, gaspi_size_t const size,
                                 gaspi_group_t const group, gaspi_timeout_t const timeout_ms,
                                 gaspi_memory_description_t const memory_description);
/* No rank can access the segment afterwards. NOINIT, INV_SEG. */
gaspi_return_t gaspi_segment_delete(const gaspi_segment_id_t segment_id);
gaspi_return_t gaspi_segment_num(gaspi_number_t* const segment_num); /* NOINIT, NULLPTR */
/* Stores the first `num` ids, ascending. NOINIT, NULLPTR, INV_NUM (there are fewer). */
gaspi_return_t gaspi_segment_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_list);
gaspi_return_t gaspi_segment_ptr(const gaspi_segment_id_t segment_id,
                                 gaspi_pointer_t* const pointer);    /* NOINIT, NULLPTR, INV_SEG */
gaspi_return_t gaspi_segment_max(gaspi_number_t* const segment_max); /* NULLPTR */

/* --- One-sided communication -----------------------------------------------------------------------------------------------------
 */
/* Each posts and returns; gaspi_wait waits until local memory may be used again. timeout_ms is for another thread at the queue and
 * for the first connection. Size 0 moves nothing. NOINIT, INV_SEG, INV_LOC_OFF, INV_RANK, INV_REM_OFF, INV_COMMSIZE, INV_QUEUE,
 * QUEUE_FULL; lists: NULLPTR, INV_NUM; notifications: INV_NOTIF_ID, INV_NOTIF_VAL. Ordering: a notification is seen after the data
 * of its own call, and of earlier writes of the queue to the rank. */

gaspi_return_t gaspi_write(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local, const gaspi_rank_t rank,
                           const gaspi_segment_id_t segment_id_remote, const gaspi_offset_t offset_remote, const gaspi_size_t size,
                           const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_read(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local, const gaspi_rank_t rank,
                          const gaspi_segment_id_t segment_id_remote, const gaspi_offset_t offset_remote, const gaspi_size_t size,
                          const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
/* `num` writes, or reads, of one rank. A queue holds each of them as a request. */
gaspi_return_t gaspi_write_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                gaspi_size_t* const size, const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_read_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                               gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                               gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                               gaspi_size_t* const size, const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
/* Waits for everything that was posted to the queue. GASPI_ERROR: a request failed, perhaps since its rank was lost; all have
 * ended. NOINIT, INV_QUEUE. */
gaspi_return_t gaspi_wait(const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);

/* --- Notifications ---------------------------------------------------------------------------------------------------------------
 */

gaspi_return_t gaspi_notify(const gaspi_segment_id_t segment_id_remote, const gaspi_rank_t rank,
                            const gaspi_notification_id_t notification_id, const gaspi_notification_t notification_value,
                            const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_write_notify(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                  const gaspi_rank_t rank, const gaspi_segment_id_t segment_id_remote,
                                  const gaspi_offset_t offset_remote, const gaspi_size_t size,
                                  const gaspi_notification_id_t notification_id, const gaspi_notification_t notification_value,
                                  const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_write_list_notify(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                       gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                       gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                       gaspi_size_t* const size, const gaspi_segment_id_t segment_id_notification,
                                       const gaspi_notification_id_t notification_id, const gaspi_notification_t notification_value,
                                       const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
/* Sets the notification of the local segment (of lists: of segment_id_notification) to 1 when the data has arrived. */
gaspi_return_t gaspi_read_notify(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                 const gaspi_rank_t rank, const gaspi_segment_id_t segment_id_remote,
                                 const gaspi_offset_t offset_remote, const gaspi_size_t size,
                                 const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                 const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_read_list_notify(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                      gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                      gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                      gaspi_size_t* const size, const gaspi_segment_id_t segment_id_notification,
                                      const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                      const gaspi_timeout_t timeout_ms);
/* Waits until one of `num` notifications from notification_begin on is not 0, and stores the lowest such id; never TIMEOUT when
 * there is one. num 0: SUCCESS, nothing is stored. NOINIT, NULLPTR, INV_SEG, INV_NOTIF_ID. */
gaspi_return_t gaspi_notify_waitsome(const gaspi_segment_id_t segment_id_local, const gaspi_notification_id_t notification_begin,
                                     const gaspi_number_t num, gaspi_notification_id_t* const first_id,
                                     const gaspi_timeout_t timeout_ms);
/* Sets the notification to 0 and stores its value before, in one step: of several threads one gets it, the others 0. As waitsome.
 */
gaspi_return_t gaspi_notify_reset(const gaspi_segment_id_t segment_id_local, const gaspi_notification_id_t notification_id,
                                  gaspi_notification_t* const old_notification_val);

/* --- Passive communication -------------------------------------------------------------------------------------------------------
 */

/* Sends to whoever receives at `rank`; returns when local memory may be used again. After GASPI_TIMEOUT nothing was sent.
 * NOINIT, INV_SEG, INV_LOC_OFF, INV_RANK, INV_COMMSIZE. */
gaspi_return_t gaspi_passive_send(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                  const gaspi_rank_t rank, const gaspi_size_t size, const gaspi_timeout_t timeout_ms);
/* Receives from any rank, and stores which. NOINIT, NULLPTR, INV_SEG, INV_LOC_OFF, INV_COMMSIZE (also: the message is longer than
 * `size`; it is lost). */
gaspi_return_t gaspi_passive_receive(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                     gaspi_rank_t* const rem_rank, const gaspi_size_t size, const gaspi_timeout_t timeout_ms);
/* Passive requests end with their call: SUCCESS. NOINIT. */
gaspi_return_t gaspi_passive_queue_purge(const gaspi_timeout_t timeout_ms);

/* --- Atomics ---------------------------------------------------------------------------------------------------------------------
 */
/* Change 8 bytes and store the value before. After GASPI_TIMEOUT the same call goes on, and changes them once. NOINIT, NULLPTR,
 * INV_SEG, INV_RANK, INV_REM_OFF, UNALIGN_OFF. */

gaspi_return_t gaspi_atomic_fetch_add(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                      const gaspi_atomic_value_t val_add, gaspi_atomic_value_t* const val_old,
                                      const gaspi_timeout_t timeout_ms);
gaspi_return_t gaspi_atomic_compare_swap(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                         const gaspi_atomic_value_t comparator, const gaspi_atomic_value_t val_new,
                                         gaspi_atomic_value_t* const val_old, const gaspi_timeout_t timeout_ms);

/* --- Collectives -----------------------------------------------------------------------------------------------------------------
 */
/* After GASPI_TIMEOUT the same call goes on; another one of the group is ACTIVE_COLL until then. GASPI_ERROR: a rank of the group
 * was lost; every rank of the group is told. NOINIT, INV_GROUP. */

gaspi_return_t gaspi_barrier(const gaspi_group_t group, const gaspi_timeout_t timeout_ms);
/* NULLPTR, INV_NUM, INV_SIZE (the type), GASPI_ERROR (the operation). The buffers may be one. */
gaspi_return_t gaspi_allreduce(const gaspi_pointer_t buffer_send, gaspi_pointer_t const buffer_receive, const gaspi_number_t num,
                               const gaspi_operation_t operation, const gaspi_datatype_t datatype, const gaspi_group_t group,
                               const gaspi_timeout_t timeout_ms);
/* Every rank folds the values of all in ascending order of ranks: all get the same bytes. NULLPTR, INV_NUM, INV_SIZE. */
gaspi_return_t gaspi_allreduce_user(const gaspi_pointer_t buffer_send, gaspi_pointer_t const buffer_receive,
                                    const gaspi_number_t num, const gaspi_size_t element_size,
                                    gaspi_reduce_operation_t const reduce_operation, gaspi_reduce_state_t const reduce_state,
                                    const gaspi_group_t group, const gaspi_timeout_t timeout_ms);

/* --- Queues and limits -----------------------------------------------------------------------------------------------------------
 */

gaspi_return_t gaspi_queue_create(gaspi_queue_id_t* const queue,
                                  const gaspi_timeout_t timeout_ms); /* NOINIT, NULLPTR, INV_QUEUE: max */
/* The queue must be empty: GASPI_ERROR otherwise. NOINIT, INV_QUEUE. */
gaspi_return_t gaspi_queue_delete(const gaspi_queue_id_t queue);
/* As gaspi_wait; failures of requests are forgotten. */
gaspi_return_t gaspi_queue_purge(const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms);
/* Requests since the last gaspi_wait that succeeded. NOINIT, NULLPTR, INV_QUEUE. */
gaspi_return_t gaspi_queue_size(const gaspi_queue_id_t queue, gaspi_number_t* const queue_size);
gaspi_return_t gaspi_queue_num(gaspi_number_t* const queue_num); /* NOINIT, NULLPTR */

/* NULLPTR. */
gaspi_return_t gaspi_queue_size_max(gaspi_number_t* const queue_size_max);
gaspi_return_t gaspi_queue_max(gaspi_number_t* const queue_max);
gaspi_return_t gaspi_transfer_size_min(gaspi_size_t* const transfer_size_min);
gaspi_return_t gaspi_transfer_size_max(gaspi_size_t* const transfer_size_max);
gaspi_return_t gaspi_notification_num(gaspi_number_t* const notification_num);
gaspi_return_t gaspi_passive_transfer_size_min(gaspi_size_t* const passive_transfer_size_min);
gaspi_return_t gaspi_passive_transfer_size_max(gaspi_size_t* const passive_transfer_size_max);
gaspi_return_t gaspi_atomic_max(gaspi_atomic_value_t* const max_value);
gaspi_return_t gaspi_allreduce_buf_size(gaspi_size_t* const buf_size);
gaspi_return_t gaspi_allreduce_elem_max(gaspi_number_t* const elem_max);
gaspi_return_t gaspi_rw_list_elem_max(gaspi_number_t* const elem_max);

/* --- Time, texts, statistics -----------------------------------------------------------------------------------------------------
 */

gaspi_return_t gaspi_time_ticks(gaspi_cycles_t* const ticks); /* nanoseconds of a steady clock; NULLPTR */
gaspi_return_t gaspi_time_get(gaspi_time_t* const wtime);     /* milliseconds since the process used GASPI first; NULLPTR */
/* Stores a text for the code, which the caller frees with free(). NULLPTR, MEMALLOC. */
gaspi_return_t gaspi_print_error(gaspi_return_t error_code, gaspi_string_t* const error_message);

/* Counters count while their level is at most this one: 0 none, 1 calls and bytes. */
gaspi_return_t gaspi_statistic_verbosity_level(gaspi_number_t verbosity_level);
gaspi_return_t gaspi_statistic_counter_max(gaspi_statistic_counter_t* const counter_max); /* NULLPTR */
/* The texts live as long as the library. NULLPTR, INV_NUM. */
gaspi_return_t gaspi_statistic_counter_info(gaspi_statistic_counter_t counter, gaspi_statistic_argument_t* const counter_argument,
                                            gaspi_string_t* const counter_name, gaspi_string_t* const counter_description,
                                            gaspi_number_t* const verbosity_level);
/* NULLPTR, INV_NUM. No counter has an argument yet: `argument` is ignored. */
gaspi_return_t gaspi_statistic_counter_get(gaspi_statistic_counter_t counter, gaspi_number_t argument, gaspi_ulong* const value);
gaspi_return_t gaspi_statistic_counter_reset(gaspi_statistic_counter_t counter); /* INV_NUM */
/* For tools that replace it: does nothing. */
gaspi_return_t gaspi_pcontrol(gaspi_pointer_t argument);

#ifdef __cplusplus
}
#endif

#endif
