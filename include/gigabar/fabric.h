/* SPDX-License-Identifier: Apache-2.0 */
/* Communication between the ranks of a job (gigabar.h): segments, queues, notifications, messages, collectives. The semantics are
 * those of gigabar/fabric.hpp. What is true of structures, handles and errors stands in status.h.
 *
 * Every waiting call has a deadline: `timeout_ns` in nanoseconds, 0 tests once, GIGABAR_FOREVER ends with the operation or with
 * GIGABAR_PEER_LOST. GIGABAR_TIMED_OUT loses nothing.
 *
 * Errors of every call: INVALID_ARGUMENT and OUT_OF_RANGE name the argument; FOREIGN_PROCESS (a forked child); OUT_OF_MEMORY. When
 * a peer died, broke its connection or did not connect within the connect timeout, every operation with it ends with PEER_LOST
 * within the deadline, until gigabar_fabric_forget(); other peers are unaffected. A wait that is made again after TIMED_OUT goes
 * on: however short its parts are, it finds a dead rank as one long wait does. (One for any rank with a timeout of 0 is no part of
 * a wait.)
 * Threads of every call: any number at once. Calls of one queue are served one after the other; one that another thread keeps from
 * its queue for its timeout, or a post for the connect timeout, gets TIMED_OUT. Collectives of one group are for one thread at a
 * time; a second one gets BUSY. */
#ifndef GIGABAR_FABRIC_H
#define GIGABAR_FABRIC_H

#include <gigabar/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GIGABAR_FOREVER INT64_C(-1)
#define GIGABAR_ANY_RANK UINT32_C(0xffffffff)

typedef struct gigabar_fabric gigabar_fabric;

/* Names a posted operation of this process; never reused. */
typedef uint64_t gigabar_operation;

typedef int32_t gigabar_transport;
enum {
  GIGABAR_TRANSPORT_NONE = -1, /* no bytes were moved, or not yet */
  GIGABAR_TRANSPORT_LOCAL = 0, /* one host: shared memory, CUDA IPC, CPU mappings */
  GIGABAR_TRANSPORT_VERBS = 1, /* InfiniBand, RoCE, iWARP */
  GIGABAR_TRANSPORT_UCX = 2,   /* TCP and every network that UCX supports */
  GIGABAR_TRANSPORT_TCP = 3    /* TCP, over connections that have proved the job's key */
};

typedef int32_t gigabar_path;
enum {
  GIGABAR_PATH_NONE = 0,
  GIGABAR_PATH_HOST = 1,  /* host memory at both ends */
  GIGABAR_PATH_BAR = 2,   /* CPUs load from and store to GPU memory through mappings */
  GIGABAR_PATH_P2P = 3,   /* a GPU's copy engine, over NVLink or PCIe */
  GIGABAR_PATH_GDR = 4,   /* the NIC reads and writes GPU memory */
  GIGABAR_PATH_STAGED = 5 /* through pinned host memory in chunks */
};

typedef int32_t gigabar_preference;
enum {
  GIGABAR_ALLOW = 0, /* as the limits and the topology decide */
  GIGABAR_PREFER = 1,
  GIGABAR_REQUIRE = 2, /* an operation that would take another path is an error with the reason */
  GIGABAR_FORBID = 3
};
/* The paths that a fabric, or one operation, may use for GPU memory. At most one can be required. Never grows. */
typedef struct gigabar_path_policy {
  gigabar_preference gdr, p2p, bar, staged;
} gigabar_path_policy;

typedef int32_t gigabar_rail_policy;
enum {
  GIGABAR_RAILS_FIRST = 0,       /* the nearest rail carries everything */
  GIGABAR_RAILS_ROUND_ROBIN = 1, /* operations take turns */
  GIGABAR_RAILS_FIXED = 2        /* rail (local rank modulo rails) */
};

/* --- The job ---------------------------------------------------------------------------------------------------------------- */

#define GIGABAR_FABRIC_RANK (UINT64_C(1) << 0)
#define GIGABAR_FABRIC_RANK_COUNT (UINT64_C(1) << 1)
#define GIGABAR_FABRIC_MASTER_ADDRESS (UINT64_C(1) << 2)
#define GIGABAR_FABRIC_MASTER_PORT (UINT64_C(1) << 3)
#define GIGABAR_FABRIC_JOB_KEY (UINT64_C(1) << 4)
#define GIGABAR_FABRIC_TRANSPORTS (UINT64_C(1) << 5)
#define GIGABAR_FABRIC_UCX_TRUST_NETWORK (UINT64_C(1) << 6)
#define GIGABAR_FABRIC_RAILS (UINT64_C(1) << 7)
#define GIGABAR_FABRIC_RAIL_COUNT (UINT64_C(1) << 8)
#define GIGABAR_FABRIC_RAIL_POLICY (UINT64_C(1) << 9)
#define GIGABAR_FABRIC_DEVICE (UINT64_C(1) << 10)
#define GIGABAR_FABRIC_CPUS (UINT64_C(1) << 11)
#define GIGABAR_FABRIC_POLICY (UINT64_C(1) << 12)
#define GIGABAR_FABRIC_EAGER_BYTES (UINT64_C(1) << 13)
#define GIGABAR_FABRIC_GDR_BYTES (UINT64_C(1) << 14)
#define GIGABAR_FABRIC_GDR_READ_BYTES (UINT64_C(1) << 15)
#define GIGABAR_FABRIC_CHUNK_BYTES (UINT64_C(1) << 16)
#define GIGABAR_FABRIC_CHUNK_COUNT (UINT64_C(1) << 17)
#define GIGABAR_FABRIC_KERNEL_BYTES (UINT64_C(1) << 18)
#define GIGABAR_FABRIC_STRIPE_BYTES (UINT64_C(1) << 19)
#define GIGABAR_FABRIC_GID_INDEX (UINT64_C(1) << 20)
#define GIGABAR_FABRIC_TRAFFIC_CLASS (UINT64_C(1) << 21)
#define GIGABAR_FABRIC_SERVICE_LEVEL (UINT64_C(1) << 22)
#define GIGABAR_FABRIC_PROGRESS_THREAD (UINT64_C(1) << 23)
#define GIGABAR_FABRIC_CONNECT_TIMEOUT_NS (UINT64_C(1) << 24)
/* Members that are not set have the launcher's values and those of the environment, else the defaults (docs/fabric.md). */
typedef struct gigabar_fabric_options {
  uint64_t struct_size;
  uint64_t field_mask;
  uint32_t rank;
  uint32_t rank_count;
  const char* master_address;          /* host name or address of rank 0 */
  const char* job_key;                 /* at least 16 bytes, the same at every rank */
  const gigabar_transport* transports; /* those allowed, best first; `transport_count` belongs to the same bit */
  uint64_t transport_count;
  const char* rails; /* separated by commas: "mlx5_0,mlx5_1/1" */
  const char* cpus;  /* of the fabric's threads: "near", "any", or "0-7,16" */
  gigabar_path_policy policy;
  uint64_t eager_bytes;       /* messages and writes up to this size travel inside one message */
  uint64_t gdr_bytes;         /* writes to GPU memory by the NIC up to this size */
  uint64_t gdr_read_bytes;    /* reads from GPU memory by the NIC up to this size */
  uint64_t chunk_bytes;       /* of the staged pipeline */
  uint64_t kernel_bytes;      /* p2p copies up to this size may use the persistent copy kernel */
  uint64_t stripe_bytes;      /* operations from this size on use all rails at once */
  int64_t connect_timeout_ns; /* for a rank to appear, and for making a connection; default 30 s */
  uint32_t chunk_count;       /* in flight for each operation */
  uint32_t rail_count;        /* rails for each peer, at most */
  gigabar_rail_policy rail_policy;
  int32_t device; /* the GPU this rank works with */
  int32_t gid_index, traffic_class, service_level;
  int32_t ucx_trust_network; /* 1: everybody who reaches UCX's ports is trusted; UCX is opened only then */
  int32_t progress_thread;   /* 0: peers' operations wait for this rank's calls; default 1 */
  uint16_t master_port;
} gigabar_fabric_options;

/* Joins the job; connections are made at first use. `options` may be null. Ended by gigabar_fabric_close() or
 * gigabar_fabric_abandon(). Errors: INVALID_ARGUMENT (a null output, an option or a variable of the environment), UNAVAILABLE (no
 * transport: each with its reason; the address of rank 0 is unknown), TIMED_OUT (rank 0 never appeared), NO_PERMISSION (another job
 * key; no thread may be started). Ordering: none. Cost: waits for the rank that has the job's directory; enters the kernel. */
GIGABAR_C_API gigabar_status gigabar_fabric_open(const gigabar_fabric_options* options, gigabar_fabric** fabric);

/* Leaves the job in order, and ends the handle: posted operations are complete and the peers told.
 * Errors: TIMED_OUT and BUSY (segments are mapped), after which the fabric is open as before. Ordering: as gigabar_fabric_flush()
 * of every rank. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_fabric_close(gigabar_fabric* fabric, int64_t timeout_ns);

/* Leaves the job at once, and ends the handle: peers that still need this rank see it as lost. Ordering: none. Cost: ends threads.
 */
GIGABAR_C_API gigabar_status gigabar_fabric_abandon(gigabar_fabric* fabric);

#define GIGABAR_FABRIC_INFO_RANK (UINT64_C(1) << 0)
#define GIGABAR_FABRIC_INFO_RANK_COUNT (UINT64_C(1) << 1)
#define GIGABAR_FABRIC_INFO_LOCAL_RANK (UINT64_C(1) << 2)
#define GIGABAR_FABRIC_INFO_DEVICE (UINT64_C(1) << 3)
#define GIGABAR_FABRIC_INFO_OPERATIONS (UINT64_C(1) << 4)
#define GIGABAR_FABRIC_INFO_MESSAGES (UINT64_C(1) << 5)
#define GIGABAR_FABRIC_INFO_STAGED_OPERATIONS (UINT64_C(1) << 6)
#define GIGABAR_FABRIC_INFO_REFUSED_STRANGERS (UINT64_C(1) << 7)
#define GIGABAR_FABRIC_INFO_ALL (GIGABAR_FABRIC_INFO_REFUSED_STRANGERS * 2 - 1)
typedef struct gigabar_fabric_info {
  uint64_t struct_size;
  uint64_t field_mask;
  uint32_t rank;
  uint32_t rank_count;
  uint32_t local_rank; /* among the ranks of this host */
  int32_t device;      /* a CUDA ordinal or a stand-in's number */
  uint64_t operations;
  uint64_t messages;
  uint64_t staged_operations; /* staged because a preferred path was not possible */
  uint64_t refused_strangers; /* connections without the job's key, or with another protocol */
} gigabar_fabric_info;

/* Fills `info` with this rank's place in the job and its counts since gigabar_fabric_open(). Ordering: none. Cost: a lock. */
GIGABAR_C_API gigabar_status gigabar_fabric_describe(const gigabar_fabric* fabric, gigabar_fabric_info* info);

/* Stores every setting in effect with its source, the CPUs of the fabric's threads, and the peers with their connections. Never the
 * job's key. Schema: common.schema.json, `fabric_report`. The caller frees the text with gigabar_text_free(). Where memory runs
 * out, the call fails, or some of the lists are empty. Ordering: none. Cost: allocates. */
GIGABAR_C_API gigabar_status gigabar_fabric_json(const gigabar_fabric* fabric, char** text);

/* Connects to a rank now. Errors: TIMED_OUT (`timeout_ns` is over: call again), PEER_LOST (also when the connect timeout, which
 * counts from the first attempt, is over), UNAVAILABLE (no transport reaches it). Ordering: none. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_fabric_connect(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns);

/* Forgets a lost peer: the next operation connects again. Errors: BUSY (the connection is intact, or there was no memory to end
 * it). Ordering: none. Cost: a lock; waits for copies on the memory of its operations, which end or are given up in 10 s. */
GIGABAR_C_API gigabar_status gigabar_fabric_forget(gigabar_fabric* fabric, uint32_t rank);

/* --- Segments --------------------------------------------------------------------------------------------------------------- */

/* Registers [address, address + bytes) of host, device or stand-in memory as segment `id`, 0 to 1023, for all peers. The memory
 * must live until gigabar_segment_deregister(). Errors: INVALID_ARGUMENT (null, 0 bytes, an id in use), OUT_OF_RANGE (id),
 * DEVICE_ERROR. Ordering: none. Cost: enters the kernel; pins pages. */
GIGABAR_C_API gigabar_status gigabar_segment_register(gigabar_fabric* fabric, uint16_t id, void* address, uint64_t bytes);

/* No remote write or read can access the segment until gigabar_segment_enable(). Errors: TIMED_OUT (a peer of this host neither
 * answered nor ended: its copies may still land). Ordering: what peers wrote before is in place. Cost: a round trip to each peer.
 */
GIGABAR_C_API gigabar_status gigabar_segment_quiesce(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns);

/* Peers can access the segment again; of one that is enabled, nothing changes. Ordering: none. Cost: a message to each peer. */
GIGABAR_C_API gigabar_status gigabar_segment_enable(gigabar_fabric* fabric, uint16_t id);

/* Quiesces the segment and removes it. On TIMED_OUT it stays registered. Ordering, cost: as gigabar_segment_quiesce(). */
GIGABAR_C_API gigabar_status gigabar_segment_deregister(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns);

/* Stores the size of a peer's segment. Errors: TIMED_OUT, PEER_LOST, OUT_OF_RANGE (it has no such segment). Ordering: none. Cost: a
 * round trip. */
GIGABAR_C_API gigabar_status gigabar_segment_remote_bytes(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                                          uint64_t* bytes);

typedef int32_t gigabar_mapped_for;
enum {
  GIGABAR_MAPPED_FOR_KERNELS = 0, /* kernels of this rank's GPU; CPU threads on a machine without one */
  GIGABAR_MAPPED_FOR_CPU = 1      /* threads of this process, also to GPU memory, through its BAR */
};

/* Stores the address of a segment of this rank, or of a peer of this host, for loads and stores. It is valid until
 * gigabar_segment_unmap(), which must be called as often. Until then quiesce and deregister wait at the peer.
 * Errors: TIMED_OUT, PEER_LOST, OUT_OF_RANGE, NOT_SUPPORTED (another host, no peer access, memory that cannot be shared),
 * DEVICE_ERROR, INVALID_ARGUMENT (an unknown `mapped_for`). Ordering: the caller's own fences. Cost: a round trip; enters the
 * driver. */
GIGABAR_C_API gigabar_status gigabar_segment_map(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                                 gigabar_mapped_for mapped_for, void** address);

/* Nothing may use the address any more. Errors: INVALID_ARGUMENT (not mapped). Ordering: none. Cost: enters the driver. */
GIGABAR_C_API gigabar_status gigabar_segment_unmap(gigabar_fabric* fabric, uint32_t rank, uint16_t id,
                                                   gigabar_mapped_for mapped_for);

/* --- One-sided operations ------------------------------------------------------------------------------------------------------
 * Each posts an operation and returns; the first one with a peer connects. Where `operation` is not null, its name is stored. Zero
 * bytes move nothing. `options` may be null.
 * Errors: BUSY (1024 operations of the queue are not waited for), TIMED_OUT (another thread was at the queue for the connect
 * timeout; or the peer did not answer in it), PEER_LOST (also: it did not connect), UNAVAILABLE (no path: each with its reason; or
 * the required path is not possible), OUT_OF_RANGE (a segment, an offset, a notification, a queue).
 * Ordering: none between operations, except that a notification is raised after the data of its own operation, and of every earlier
 * write of the same queue to the same rank, is in place. Cost: below a us for small ones; never waits for the peer. */

typedef struct gigabar_local_place { /* never grows */
  uint64_t offset_bytes;
  uint16_t segment;
} gigabar_local_place;
typedef struct gigabar_remote_place { /* never grows */
  uint64_t offset_bytes;
  uint32_t rank;
  uint16_t segment;
} gigabar_remote_place;
/* One element of a list, whose elements all go to one rank. Never grows. */
typedef struct gigabar_list_piece {
  gigabar_local_place local;
  uint64_t remote_offset_bytes;
  uint64_t bytes;
  uint16_t remote_segment;
} gigabar_list_piece;

#define GIGABAR_POST_QUEUE (UINT64_C(1) << 0)
#define GIGABAR_POST_POLICY (UINT64_C(1) << 1)
#define GIGABAR_POST_CHUNK_BYTES (UINT64_C(1) << 2)
#define GIGABAR_POST_STRIPE_BYTES (UINT64_C(1) << 3)
typedef struct gigabar_post_options {
  uint64_t struct_size;
  uint64_t field_mask;
  gigabar_path_policy policy; /* instead of the fabric's */
  uint64_t chunk_bytes;       /* of staged writes, from 4096 to the fabric's */
  uint64_t stripe_bytes;      /* instead of the fabric's */
  uint8_t queue;              /* 0 to 15; default 0 */
} gigabar_post_options;

/* Writes `bytes` of a local segment to a remote one. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_write(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                                  uint64_t bytes, const gigabar_post_options* options,
                                                  gigabar_operation* operation);
/* Reads `bytes` of a remote segment into a local one. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_read(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote,
                                                 uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
/* Writes 1 to 1024 pieces to one rank as one operation. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_write_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces,
                                                       uint64_t piece_count, const gigabar_post_options* options,
                                                       gigabar_operation* operation);
/* Reads 1 to 1024 pieces of one rank as one operation. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_read_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces,
                                                      uint64_t piece_count, const gigabar_post_options* options,
                                                      gigabar_operation* operation);
/* Writes, and sets notification `id`, 0 to 65535, of the remote segment to `value`, not 0, after the data. Errors, ordering, cost:
 * above. */
GIGABAR_C_API gigabar_status gigabar_fabric_write_notify(gigabar_fabric* fabric, gigabar_local_place local,
                                                         gigabar_remote_place remote, uint64_t bytes, uint32_t id, uint32_t value,
                                                         const gigabar_post_options* options, gigabar_operation* operation);
/* As gigabar_fabric_write_notify(), but adds `value` to the notification. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_write_notify_add(gigabar_fabric* fabric, gigabar_local_place local,
                                                             gigabar_remote_place remote, uint64_t bytes, uint32_t id,
                                                             uint32_t value, const gigabar_post_options* options,
                                                             gigabar_operation* operation);
/* Writes a list, and sets a notification of `segment` after all pieces, which takes no place of its own in the queue. Errors,
 * ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_write_list_notify(gigabar_fabric* fabric, uint32_t rank,
                                                              const gigabar_list_piece* pieces, uint64_t piece_count,
                                                              uint16_t segment, uint32_t id, uint32_t value,
                                                              const gigabar_post_options* options, gigabar_operation* operation);
/* Sets a notification of a remote segment to `value`, not 0. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_notify(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id,
                                                   uint32_t value, const gigabar_post_options* options,
                                                   gigabar_operation* operation);
/* Adds `value` to a notification of a remote segment: many writers, one counter. Errors, ordering, cost: above. */
GIGABAR_C_API gigabar_status gigabar_fabric_notify_add(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id,
                                                       uint32_t value, const gigabar_post_options* options,
                                                       gigabar_operation* operation);
/* Copies up to 64 bytes of host memory before it returns. Errors, cost: above; OUT_OF_RANGE (more than 64 bytes).
 * Ordering: they are in place after the data of every earlier write of the same queue to the same rank, and before those of later
 * calls of this function; aligned 4 and 8 bytes are seen whole. */
GIGABAR_C_API gigabar_status gigabar_fabric_write_in_order(gigabar_fabric* fabric, const void* source, gigabar_remote_place remote,
                                                           uint64_t bytes, const gigabar_post_options* options,
                                                           gigabar_operation* operation);

/* Changes 8 aligned bytes of a segment by adding `value`, and stores what they were before. The target's CPU does it, atomically
 * among all such calls of all ranks. Errors: TIMED_OUT (it may or may not be done), INVALID_ARGUMENT (not a multiple of 8).
 * Ordering: none with other operations. Cost: a round trip. */
GIGABAR_C_API gigabar_status gigabar_fabric_fetch_add(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t value,
                                                      int64_t timeout_ns, uint64_t* previous);
/* Replaces 8 aligned bytes by `desired` where they are `expected`, and stores what they were before. The rest: as
 * gigabar_fabric_fetch_add(). */
GIGABAR_C_API gigabar_status gigabar_fabric_compare_swap(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t expected,
                                                         uint64_t desired, int64_t timeout_ns, uint64_t* previous);

/* Waits until one of `count` notifications of a segment of this rank from `first` on is not 0, and stores the lowest such id.
 * Errors: TIMED_OUT, PEER_LOST (every other rank is lost), OUT_OF_RANGE. Ordering: the data before the notification is in place.
 * Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_notification_wait(gigabar_fabric* fabric, uint16_t segment, uint32_t first, uint32_t count,
                                                       int64_t timeout_ns, uint32_t* id);
/* Waits until a notification is at least `value`, and subtracts `value` from it. Errors, ordering, cost: as
 * gigabar_notification_wait(). */
GIGABAR_C_API gigabar_status gigabar_notification_wait_count(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t value,
                                                             int64_t timeout_ns);
/* Sets a notification to 0 and stores its previous value, in one step. Errors: OUT_OF_RANGE. Ordering: as
 * gigabar_notification_wait(). Cost: none. */
GIGABAR_C_API gigabar_status gigabar_notification_reset(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t* previous);

/* Everything that was posted to the queue, 0 to 15, is complete here: local memory may be used again. Errors: TIMED_OUT; the first
 * failure of an operation of the queue since the last wait. Ordering: none at the peers. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_fabric_wait(gigabar_fabric* fabric, uint8_t queue, int64_t timeout_ns);
/* Everything that was posted to `rank` is in place there. Errors: as gigabar_fabric_wait(). Ordering: that one. Cost: a round trip.
 */
GIGABAR_C_API gigabar_status gigabar_fabric_flush(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns);
/* Makes progress without waiting. Ordering: none. Cost: polls the transports. */
GIGABAR_C_API gigabar_status gigabar_fabric_progress(gigabar_fabric* fabric);

#define GIGABAR_REPORT_IS_DONE (UINT64_C(1) << 0)
#define GIGABAR_REPORT_STATUS (UINT64_C(1) << 1)
#define GIGABAR_REPORT_PATH (UINT64_C(1) << 2)
#define GIGABAR_REPORT_TRANSPORT (UINT64_C(1) << 3)
#define GIGABAR_REPORT_BYTES (UINT64_C(1) << 4)
#define GIGABAR_REPORT_CHUNKS (UINT64_C(1) << 5)
#define GIGABAR_REPORT_RETRIES (UINT64_C(1) << 6)
#define GIGABAR_REPORT_DURATION_NS (UINT64_C(1) << 7)
#define GIGABAR_REPORT_REASON (UINT64_C(1) << 8)
#define GIGABAR_REPORT_RAILS (UINT64_C(1) << 9)
#define GIGABAR_REPORT_ALL (GIGABAR_REPORT_RAILS * 2 - 1)
typedef struct gigabar_operation_report {
  uint64_t struct_size;
  uint64_t field_mask;
  int32_t is_done;       /* 1: complete here */
  gigabar_status status; /* of the operation */
  gigabar_path path;
  gigabar_transport transport;
  uint64_t bytes;
  uint32_t chunks;  /* number of pieces */
  uint32_t retries; /* posts that were repeated after a full queue */
  int64_t duration_ns;
  char reason[512]; /* why this path; cut where it is longer */
  char rails[256];  /* with the bytes of each: "mlx5_0 1048576, mlx5_1 1048576"; cut where it is longer */
} gigabar_operation_report;

/* Fills `report` with the result of one of the last 4096 operations. Errors: OUT_OF_RANGE. Ordering: none. Cost: a lock. */
GIGABAR_C_API gigabar_status gigabar_fabric_report(const gigabar_fabric* fabric, gigabar_operation operation,
                                                   gigabar_operation_report* report);

/* Stores which path a write would take, with the reason, and why not each other one. Schema: common.schema.json, `explanation`.
 * The caller frees the text. Errors: TIMED_OUT, PEER_LOST, OUT_OF_RANGE. Ordering: none. Cost: connects and queries the segment
 * where that was not done. */
GIGABAR_C_API gigabar_status gigabar_fabric_explain_write(gigabar_fabric* fabric, gigabar_local_place local,
                                                          gigabar_remote_place remote, uint64_t bytes, int64_t timeout_ns,
                                                          const gigabar_post_options* options, char** text);
/* The same for a read. */
GIGABAR_C_API gigabar_status gigabar_fabric_explain_read(gigabar_fabric* fabric, gigabar_local_place local,
                                                         gigabar_remote_place remote, uint64_t bytes, int64_t timeout_ns,
                                                         const gigabar_post_options* options, char** text);

/* --- Messages ------------------------------------------------------------------------------------------------------------------
 * Between host or device buffers that need not be registered, in order for each pair of ranks and matching tag. 0 bytes are a
 * message. */

typedef struct gigabar_received { /* never grows */
  uint64_t tag;
  uint64_t bytes;
  uint32_t rank;
} gigabar_received;

/* Posts a message. The program must not use the buffer until gigabar_message_wait(). Errors: as a write. Ordering: above. Cost: as
 * a write. */
GIGABAR_C_API gigabar_status gigabar_message_post_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source,
                                                       uint64_t bytes, const gigabar_post_options* options,
                                                       gigabar_operation* operation);
/* Posts the receive of the first message of `from`, or GIGABAR_ANY_RANK, whose tag equals `tag` in the bits of `mask`. A longer
 * message is OUT_OF_RANGE and consumed; nothing beyond `bytes` is written. Errors, ordering, cost: as gigabar_message_post_send().
 */
GIGABAR_C_API gigabar_status gigabar_message_post_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, uint64_t mask,
                                                       void* destination, uint64_t bytes, const gigabar_post_options* options,
                                                       gigabar_operation* operation);
/* Waits for a message operation, once for each, and stores what was received where `received` is not null. Errors: TIMED_OUT (it
 * goes on), its failure, PEER_LOST. Ordering: the bytes are in the buffer. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_message_wait(gigabar_fabric* fabric, gigabar_operation operation, int64_t timeout_ns,
                                                  gigabar_received* received);
/* Cancels a receive that has not matched. Errors: BUSY (it is being filled, or complete). Ordering: none. Cost: a lock. */
GIGABAR_C_API gigabar_status gigabar_message_cancel_recv(gigabar_fabric* fabric, gigabar_operation operation);
/* Sends, and waits: the buffer is the caller's when it returns. On TIMED_OUT nothing is sent later. Errors: as
 * gigabar_message_wait(). Ordering: above. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_message_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source,
                                                  uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options);
/* Receives, and waits; stores what was received where `received` is not null. Errors, ordering, cost: as gigabar_message_send(). */
GIGABAR_C_API gigabar_status gigabar_message_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, void* destination,
                                                  uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options,
                                                  gigabar_received* received);

/* --- Collectives ---------------------------------------------------------------------------------------------------------------
 * Of a group that contains this rank: `ranks` ascending, each once; null with a count of 0: all ranks. Each member makes the same
 * call. After TIMED_OUT call again with the same arguments. Errors: PEER_LOST (a member; the record names it), INVALID_ARGUMENT
 * (members call different collectives, or `ranks` is not such a group), BUSY (another collective of the group). */

typedef int32_t gigabar_reduction;
enum { GIGABAR_MINIMUM = 0, GIGABAR_MAXIMUM = 1, GIGABAR_SUM = 2 };

/* Every member has called it. Errors: above. Ordering: none of data; flush before. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_barrier(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                                             int64_t timeout_ns);
/* `results` has the reduction of `count` (1 to 255) values of every member, element by element. Errors: above; INVALID_ARGUMENT (an
 * unknown reduction), OUT_OF_RANGE (count). Ordering: none. Cost: waits. */
GIGABAR_C_API gigabar_status gigabar_all_reduce_int64(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                                                      gigabar_reduction reduction, const int64_t* values, int64_t* results,
                                                      uint64_t count, int64_t timeout_ns);
/* The same of floating-point numbers. */
GIGABAR_C_API gigabar_status gigabar_all_reduce_double(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count,
                                                       gigabar_reduction reduction, const double* values, double* results,
                                                       uint64_t count, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
