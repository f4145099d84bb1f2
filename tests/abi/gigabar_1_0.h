/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/abi/declarations.py: what libgigabar.so.1 promised to C programs in one version. Never changed. */
/* clang-format off */
#include <stddef.h>
#include <stdint.h>
#define GIGABAR_ANY_RANK UINT32_C(0xffffffff)
#define GIGABAR_DEVICE_ALL (GIGABAR_DEVICE_COMPUTE_CAPABILITY * 2 - 1)
#define GIGABAR_DEVICE_BAR1_BYTES (UINT64_C(1) << 6)
#define GIGABAR_DEVICE_BAR1_USED_BYTES (UINT64_C(1) << 7)
#define GIGABAR_DEVICE_COMPUTE_CAPABILITY (UINT64_C(1) << 8)
#define GIGABAR_DEVICE_IS_STAND_IN (UINT64_C(1) << 3)
#define GIGABAR_DEVICE_MEMORY_BYTES (UINT64_C(1) << 5)
#define GIGABAR_DEVICE_NAME (UINT64_C(1) << 0)
#define GIGABAR_DEVICE_NUMA_NODE (UINT64_C(1) << 4)
#define GIGABAR_DEVICE_PCI_ADDRESS (UINT64_C(1) << 2)
#define GIGABAR_DEVICE_UUID (UINT64_C(1) << 1)
#define GIGABAR_DOCTOR_DEADLINE_NS (UINT64_C(1) << 3)
#define GIGABAR_DOCTOR_MACHINE (UINT64_C(1) << 0)
#define GIGABAR_DOCTOR_ONLY (UINT64_C(1) << 1)
#define GIGABAR_DOCTOR_WITH_PROBES (UINT64_C(1) << 2)
#define GIGABAR_ERROR_ALL (GIGABAR_ERROR_MESSAGE * 2 - 1)
#define GIGABAR_ERROR_CAUSE (UINT64_C(1) << 3)
#define GIGABAR_ERROR_CHECK (UINT64_C(1) << 8)
#define GIGABAR_ERROR_MESSAGE (UINT64_C(1) << 9)
#define GIGABAR_ERROR_NATIVE_CODE (UINT64_C(1) << 6)
#define GIGABAR_ERROR_NATIVE_DOMAIN (UINT64_C(1) << 5)
#define GIGABAR_ERROR_NATIVE_NAME (UINT64_C(1) << 7)
#define GIGABAR_ERROR_OBJECT (UINT64_C(1) << 2)
#define GIGABAR_ERROR_OPERATION (UINT64_C(1) << 1)
#define GIGABAR_ERROR_REMEDY (UINT64_C(1) << 4)
#define GIGABAR_ERROR_STATUS (UINT64_C(1) << 0)
#define GIGABAR_FABRIC_CHUNK_BYTES (UINT64_C(1) << 16)
#define GIGABAR_FABRIC_CHUNK_COUNT (UINT64_C(1) << 17)
#define GIGABAR_FABRIC_CONNECT_TIMEOUT_NS (UINT64_C(1) << 24)
#define GIGABAR_FABRIC_CPUS (UINT64_C(1) << 11)
#define GIGABAR_FABRIC_DEVICE (UINT64_C(1) << 10)
#define GIGABAR_FABRIC_EAGER_BYTES (UINT64_C(1) << 13)
#define GIGABAR_FABRIC_GDR_BYTES (UINT64_C(1) << 14)
#define GIGABAR_FABRIC_GDR_READ_BYTES (UINT64_C(1) << 15)
#define GIGABAR_FABRIC_GID_INDEX (UINT64_C(1) << 20)
#define GIGABAR_FABRIC_INFO_ALL (GIGABAR_FABRIC_INFO_REFUSED_STRANGERS * 2 - 1)
#define GIGABAR_FABRIC_INFO_DEVICE (UINT64_C(1) << 3)
#define GIGABAR_FABRIC_INFO_LOCAL_RANK (UINT64_C(1) << 2)
#define GIGABAR_FABRIC_INFO_MESSAGES (UINT64_C(1) << 5)
#define GIGABAR_FABRIC_INFO_OPERATIONS (UINT64_C(1) << 4)
#define GIGABAR_FABRIC_INFO_RANK (UINT64_C(1) << 0)
#define GIGABAR_FABRIC_INFO_RANK_COUNT (UINT64_C(1) << 1)
#define GIGABAR_FABRIC_INFO_REFUSED_STRANGERS (UINT64_C(1) << 7)
#define GIGABAR_FABRIC_INFO_STAGED_OPERATIONS (UINT64_C(1) << 6)
#define GIGABAR_FABRIC_JOB_KEY (UINT64_C(1) << 4)
#define GIGABAR_FABRIC_KERNEL_BYTES (UINT64_C(1) << 18)
#define GIGABAR_FABRIC_MASTER_ADDRESS (UINT64_C(1) << 2)
#define GIGABAR_FABRIC_MASTER_PORT (UINT64_C(1) << 3)
#define GIGABAR_FABRIC_POLICY (UINT64_C(1) << 12)
#define GIGABAR_FABRIC_PROGRESS_THREAD (UINT64_C(1) << 23)
#define GIGABAR_FABRIC_RAILS (UINT64_C(1) << 7)
#define GIGABAR_FABRIC_RAIL_COUNT (UINT64_C(1) << 8)
#define GIGABAR_FABRIC_RAIL_POLICY (UINT64_C(1) << 9)
#define GIGABAR_FABRIC_RANK (UINT64_C(1) << 0)
#define GIGABAR_FABRIC_RANK_COUNT (UINT64_C(1) << 1)
#define GIGABAR_FABRIC_SERVICE_LEVEL (UINT64_C(1) << 22)
#define GIGABAR_FABRIC_STRIPE_BYTES (UINT64_C(1) << 19)
#define GIGABAR_FABRIC_TRAFFIC_CLASS (UINT64_C(1) << 21)
#define GIGABAR_FABRIC_TRANSPORTS (UINT64_C(1) << 5)
#define GIGABAR_FABRIC_UCX_TRUST_NETWORK (UINT64_C(1) << 6)
#define GIGABAR_FOREVER INT64_C(-1)
#define GIGABAR_MAPPING_ADDRESS (UINT64_C(1) << 0)
#define GIGABAR_MAPPING_ALL (GIGABAR_MAPPING_IS_SHARED * 2 - 1)
#define GIGABAR_MAPPING_BACKEND (UINT64_C(1) << 4)
#define GIGABAR_MAPPING_BYTES (UINT64_C(1) << 1)
#define GIGABAR_MAPPING_DEVICE (UINT64_C(1) << 5)
#define GIGABAR_MAPPING_DEVICE_ADDRESS (UINT64_C(1) << 2)
#define GIGABAR_MAPPING_IS_SHARED (UINT64_C(1) << 7)
#define GIGABAR_MAPPING_IS_STAND_IN (UINT64_C(1) << 6)
#define GIGABAR_MAPPING_TYPE (UINT64_C(1) << 3)
#define GIGABAR_MAP_BACKEND (UINT64_C(1) << 0)
#define GIGABAR_MAP_INHERIT_ON_FORK (UINT64_C(1) << 2)
#define GIGABAR_MAP_VERIFICATION (UINT64_C(1) << 1)
#define GIGABAR_POST_CHUNK_BYTES (UINT64_C(1) << 2)
#define GIGABAR_POST_POLICY (UINT64_C(1) << 1)
#define GIGABAR_POST_QUEUE (UINT64_C(1) << 0)
#define GIGABAR_POST_STRIPE_BYTES (UINT64_C(1) << 3)
#define GIGABAR_REPORT_ALL (GIGABAR_REPORT_RAILS * 2 - 1)
#define GIGABAR_REPORT_BYTES (UINT64_C(1) << 4)
#define GIGABAR_REPORT_CHUNKS (UINT64_C(1) << 5)
#define GIGABAR_REPORT_DURATION_NS (UINT64_C(1) << 7)
#define GIGABAR_REPORT_IS_DONE (UINT64_C(1) << 0)
#define GIGABAR_REPORT_PATH (UINT64_C(1) << 2)
#define GIGABAR_REPORT_RAILS (UINT64_C(1) << 9)
#define GIGABAR_REPORT_REASON (UINT64_C(1) << 8)
#define GIGABAR_REPORT_RETRIES (UINT64_C(1) << 6)
#define GIGABAR_REPORT_STATUS (UINT64_C(1) << 1)
#define GIGABAR_REPORT_TRANSPORT (UINT64_C(1) << 3)
typedef int32_t gigabar_status;
enum { GIGABAR_OK = 0, GIGABAR_INVALID_ARGUMENT = 1, GIGABAR_OUT_OF_RANGE = 2, GIGABAR_NOT_SUPPORTED = 3, GIGABAR_UNAVAILABLE = 4, GIGABAR_NO_PERMISSION = 5, GIGABAR_OUT_OF_MEMORY = 6, GIGABAR_OUT_OF_DESCRIPTORS = 7, GIGABAR_OUT_OF_BAR1 = 8, GIGABAR_BUSY = 9, GIGABAR_TIMED_OUT = 10, GIGABAR_VERIFICATION_FAILED = 11, GIGABAR_BAD_FILE = 12, GIGABAR_DEVICE_ERROR = 13, GIGABAR_PEER_LOST = 14, GIGABAR_FOREIGN_PROCESS = 15 };
typedef int32_t gigabar_native_domain;
enum { GIGABAR_NATIVE_NONE = 0, GIGABAR_NATIVE_ERRNO = 1, GIGABAR_NATIVE_CUDA_DRIVER = 2, GIGABAR_NATIVE_NVML = 3, GIGABAR_NATIVE_RESOURCE_MANAGER = 4, GIGABAR_NATIVE_LOADER = 5 };
typedef struct gigabar_error { uint64_t struct_size; uint64_t field_mask; gigabar_status status; gigabar_native_domain native_domain; int64_t native_code; const char* operation; const char* object; const char* cause; const char* remedy; const char* native_name; const char* check; const char* message; } gigabar_error;
gigabar_status gigabar_last_error(gigabar_error* error);
const char* gigabar_last_error_message(void);
const char* gigabar_status_name(gigabar_status status);
const char* gigabar_version(void);
gigabar_status gigabar_text_free(char* text);
typedef struct gigabar_fabric gigabar_fabric;
typedef uint64_t gigabar_operation;
typedef int32_t gigabar_transport;
enum { GIGABAR_TRANSPORT_NONE = -1, GIGABAR_TRANSPORT_LOCAL = 0, GIGABAR_TRANSPORT_VERBS = 1, GIGABAR_TRANSPORT_UCX = 2 };
typedef int32_t gigabar_path;
enum { GIGABAR_PATH_NONE = 0, GIGABAR_PATH_HOST = 1, GIGABAR_PATH_BAR = 2, GIGABAR_PATH_P2P = 3, GIGABAR_PATH_GDR = 4, GIGABAR_PATH_STAGED = 5 };
typedef int32_t gigabar_preference;
enum { GIGABAR_ALLOW = 0, GIGABAR_PREFER = 1, GIGABAR_REQUIRE = 2, GIGABAR_FORBID = 3 };
typedef struct gigabar_path_policy { gigabar_preference gdr, p2p, bar, staged; } gigabar_path_policy;
typedef int32_t gigabar_rail_policy;
enum { GIGABAR_RAILS_FIRST = 0, GIGABAR_RAILS_ROUND_ROBIN = 1, GIGABAR_RAILS_FIXED = 2 };
typedef struct gigabar_fabric_options { uint64_t struct_size; uint64_t field_mask; uint32_t rank; uint32_t rank_count; const char* master_address; const char* job_key; const gigabar_transport* transports; uint64_t transport_count; const char* rails; const char* cpus; gigabar_path_policy policy; uint64_t eager_bytes; uint64_t gdr_bytes; uint64_t gdr_read_bytes; uint64_t chunk_bytes; uint64_t kernel_bytes; uint64_t stripe_bytes; int64_t connect_timeout_ns; uint32_t chunk_count; uint32_t rail_count; gigabar_rail_policy rail_policy; int32_t device; int32_t gid_index, traffic_class, service_level; int32_t ucx_trust_network; int32_t progress_thread; uint16_t master_port; } gigabar_fabric_options;
gigabar_status gigabar_fabric_open(const gigabar_fabric_options* options, gigabar_fabric** fabric);
gigabar_status gigabar_fabric_close(gigabar_fabric* fabric, int64_t timeout_ns);
gigabar_status gigabar_fabric_abandon(gigabar_fabric* fabric);
typedef struct gigabar_fabric_info { uint64_t struct_size; uint64_t field_mask; uint32_t rank; uint32_t rank_count; uint32_t local_rank; int32_t device; uint64_t operations; uint64_t messages; uint64_t staged_operations; uint64_t refused_strangers; } gigabar_fabric_info;
gigabar_status gigabar_fabric_describe(const gigabar_fabric* fabric, gigabar_fabric_info* info);
gigabar_status gigabar_fabric_json(const gigabar_fabric* fabric, char** text);
gigabar_status gigabar_fabric_connect(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns);
gigabar_status gigabar_fabric_forget(gigabar_fabric* fabric, uint32_t rank);
gigabar_status gigabar_segment_register(gigabar_fabric* fabric, uint16_t id, void* address, uint64_t bytes);
gigabar_status gigabar_segment_quiesce(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns);
gigabar_status gigabar_segment_enable(gigabar_fabric* fabric, uint16_t id);
gigabar_status gigabar_segment_deregister(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns);
gigabar_status gigabar_segment_remote_bytes(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns, uint64_t* bytes);
typedef int32_t gigabar_mapped_for;
enum { GIGABAR_MAPPED_FOR_KERNELS = 0, GIGABAR_MAPPED_FOR_CPU = 1 };
gigabar_status gigabar_segment_map(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns, gigabar_mapped_for mapped_for, void** address);
gigabar_status gigabar_segment_unmap(gigabar_fabric* fabric, uint32_t rank, uint16_t id, gigabar_mapped_for mapped_for);
typedef struct gigabar_local_place { uint64_t offset_bytes; uint16_t segment; } gigabar_local_place;
typedef struct gigabar_remote_place { uint64_t offset_bytes; uint32_t rank; uint16_t segment; } gigabar_remote_place;
typedef struct gigabar_list_piece { gigabar_local_place local; uint64_t remote_offset_bytes; uint64_t bytes; uint16_t remote_segment; } gigabar_list_piece;
typedef struct gigabar_post_options { uint64_t struct_size; uint64_t field_mask; gigabar_path_policy policy; uint64_t chunk_bytes; uint64_t stripe_bytes; uint8_t queue; } gigabar_post_options;
gigabar_status gigabar_fabric_write(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_read(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_write_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces, uint64_t piece_count, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_read_list(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces, uint64_t piece_count, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_write_notify(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, uint32_t id, uint32_t value, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_write_notify_add(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, uint32_t id, uint32_t value, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_write_list_notify(gigabar_fabric* fabric, uint32_t rank, const gigabar_list_piece* pieces, uint64_t piece_count, uint16_t segment, uint32_t id, uint32_t value, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_notify(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id, uint32_t value, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_notify_add(gigabar_fabric* fabric, uint32_t rank, uint16_t segment, uint32_t id, uint32_t value, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_write_in_order(gigabar_fabric* fabric, const void* source, gigabar_remote_place remote, uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_fabric_fetch_add(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t value, int64_t timeout_ns, uint64_t* previous);
gigabar_status gigabar_fabric_compare_swap(gigabar_fabric* fabric, gigabar_remote_place remote, uint64_t expected, uint64_t desired, int64_t timeout_ns, uint64_t* previous);
gigabar_status gigabar_notification_wait(gigabar_fabric* fabric, uint16_t segment, uint32_t first, uint32_t count, int64_t timeout_ns, uint32_t* id);
gigabar_status gigabar_notification_wait_count(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t value, int64_t timeout_ns);
gigabar_status gigabar_notification_reset(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t* previous);
gigabar_status gigabar_fabric_wait(gigabar_fabric* fabric, uint8_t queue, int64_t timeout_ns);
gigabar_status gigabar_fabric_flush(gigabar_fabric* fabric, uint32_t rank, int64_t timeout_ns);
gigabar_status gigabar_fabric_progress(gigabar_fabric* fabric);
typedef struct gigabar_operation_report { uint64_t struct_size; uint64_t field_mask; int32_t is_done; gigabar_status status; gigabar_path path; gigabar_transport transport; uint64_t bytes; uint32_t chunks; uint32_t retries; int64_t duration_ns; char reason[512]; char rails[256]; } gigabar_operation_report;
gigabar_status gigabar_fabric_report(const gigabar_fabric* fabric, gigabar_operation operation, gigabar_operation_report* report);
gigabar_status gigabar_fabric_explain_write(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options, char** text);
gigabar_status gigabar_fabric_explain_read(gigabar_fabric* fabric, gigabar_local_place local, gigabar_remote_place remote, uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options, char** text);
typedef struct gigabar_received { uint64_t tag; uint64_t bytes; uint32_t rank; } gigabar_received;
gigabar_status gigabar_message_post_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source, uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_message_post_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, uint64_t mask, void* destination, uint64_t bytes, const gigabar_post_options* options, gigabar_operation* operation);
gigabar_status gigabar_message_wait(gigabar_fabric* fabric, gigabar_operation operation, int64_t timeout_ns, gigabar_received* received);
gigabar_status gigabar_message_cancel_recv(gigabar_fabric* fabric, gigabar_operation operation);
gigabar_status gigabar_message_send(gigabar_fabric* fabric, uint32_t to, uint64_t tag, const void* source, uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options);
gigabar_status gigabar_message_recv(gigabar_fabric* fabric, uint32_t from, uint64_t tag, void* destination, uint64_t bytes, int64_t timeout_ns, const gigabar_post_options* options, gigabar_received* received);
typedef int32_t gigabar_reduction;
enum { GIGABAR_MINIMUM = 0, GIGABAR_MAXIMUM = 1, GIGABAR_SUM = 2 };
gigabar_status gigabar_barrier(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count, int64_t timeout_ns);
gigabar_status gigabar_all_reduce_int64(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count, gigabar_reduction reduction, const int64_t* values, int64_t* results, uint64_t count, int64_t timeout_ns);
gigabar_status gigabar_all_reduce_double(gigabar_fabric* fabric, const uint32_t* ranks, uint64_t rank_count, gigabar_reduction reduction, const double* values, double* results, uint64_t count, int64_t timeout_ns);
gigabar_status gigabar_availability_json(const char* machine, char** text);
gigabar_status gigabar_topology_json(const char* machine, char** text);
typedef struct gigabar_doctor_options { uint64_t struct_size; uint64_t field_mask; const char* machine; const char* only; int64_t deadline_ns; int32_t with_probes; } gigabar_doctor_options;
gigabar_status gigabar_doctor_json(const gigabar_doctor_options* options, char** text);
typedef struct gigabar_device_info { uint64_t struct_size; uint64_t field_mask; char name[128]; char uuid[64]; char pci_address[32]; uint64_t memory_bytes; uint64_t bar1_bytes; uint64_t bar1_used_bytes; int32_t is_stand_in; int32_t numa_node; int32_t compute_major; int32_t compute_minor; } gigabar_device_info;
gigabar_status gigabar_device_count(int32_t* count);
gigabar_status gigabar_device_describe(int32_t device, gigabar_device_info* info);
typedef struct gigabar_memory gigabar_memory;
typedef int32_t gigabar_allocator;
enum { GIGABAR_ALLOCATOR_CUDA_MALLOC = 0, GIGABAR_ALLOCATOR_VMM = 1 };
gigabar_status gigabar_memory_allocate(int32_t device, size_t bytes, gigabar_allocator allocator, gigabar_memory** memory);
gigabar_status gigabar_memory_free(gigabar_memory* memory);
gigabar_status gigabar_memory_address(const gigabar_memory* memory, void** address);
typedef struct gigabar_mapping gigabar_mapping;
typedef int32_t gigabar_backend;
enum { GIGABAR_BACKEND_DMABUF = 0, GIGABAR_BACKEND_GDRDRV = 1, GIGABAR_BACKEND_RM = 2, GIGABAR_BACKEND_HOST = 3 };
typedef int32_t gigabar_mapping_type;
enum { GIGABAR_WRITE_COMBINED = 0, GIGABAR_UNCACHED = 1, GIGABAR_CACHED = 2 };
typedef int32_t gigabar_verification;
enum { GIGABAR_VERIFY_COMPARE = 0, GIGABAR_VERIFY_NONCE = 1 };
typedef struct gigabar_map_options { uint64_t struct_size; uint64_t field_mask; gigabar_backend backend; gigabar_verification verification; int32_t inherit_on_fork; } gigabar_map_options;
gigabar_status gigabar_map(const void* address, size_t bytes, const gigabar_map_options* options, gigabar_mapping** mapping);
gigabar_status gigabar_unmap(gigabar_mapping* mapping);
typedef struct gigabar_mapping_info { uint64_t struct_size; uint64_t field_mask; void* address; uint64_t bytes; uint64_t device_address; gigabar_mapping_type type; gigabar_backend backend; int32_t device; int32_t is_stand_in; int32_t is_shared; } gigabar_mapping_info;
gigabar_status gigabar_mapping_describe(const gigabar_mapping* mapping, gigabar_mapping_info* info);
gigabar_status gigabar_mapping_json(const gigabar_mapping* mapping, char** text);
gigabar_status gigabar_mapping_trim(size_t keep_bytes, size_t* released_bytes);
gigabar_status gigabar_copy_to(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes);
gigabar_status gigabar_copy_from(const gigabar_mapping* mapping, size_t offset_bytes, void* destination, size_t bytes);
gigabar_status gigabar_fill(gigabar_mapping* mapping, size_t offset_bytes, uint8_t value, size_t bytes);
gigabar_status gigabar_fence(void);
typedef int32_t gigabar_copy_method;
enum { GIGABAR_COPY_CHOOSE = -1, GIGABAR_COPY_CPU = 0, GIGABAR_COPY_CPU_PARALLEL = 1, GIGABAR_COPY_ENGINE = 2 };
gigabar_status gigabar_copy_to_by(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes, gigabar_copy_method method, gigabar_copy_method* used);
gigabar_status gigabar_copy_from_by(const gigabar_mapping* mapping, size_t offset_bytes, void* destination, size_t bytes, gigabar_copy_method method, gigabar_copy_method* used);
gigabar_status gigabar_publish32(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes, size_t flag_offset_bytes, uint32_t value);
gigabar_status gigabar_publish64(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes, size_t flag_offset_bytes, uint64_t value);
typedef struct gigabar_batch gigabar_batch;
gigabar_status gigabar_batch_open(gigabar_mapping* mapping, gigabar_batch** batch);
gigabar_status gigabar_batch_copy_to(gigabar_batch* batch, size_t offset_bytes, const void* source, size_t bytes);
gigabar_status gigabar_batch_commit(gigabar_batch* batch);
gigabar_status gigabar_batch_close(gigabar_batch* batch);
