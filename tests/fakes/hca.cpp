// SPDX-License-Identifier: Apache-2.0
// A libibverbs.so.1 and a libmlx5.so.1 in one library, whose adapters are a software HCA of this process: queue pairs in memory
// that the caller's allocators give, executed in their binary format. GIGABAR_FAKE_HCA lists the devices as "NAME [ethernet]
// [down] [full]; ...", each with one port; those called mlx5_* are of mlx5; a full one has no queue pair left.
// gigabar_fake_hca_fail() names one call that fails from then on; "wire" lets no packet through, "stall" keeps packets until it is
// taken back, "word" has atomics bring another word than there was.
#include <infiniband/verbs.h>
// Behind it.
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"
#include "scenarios/soft_hca/memory_wire.hpp"

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace {

using namespace gigabar::soft_hca;

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kRegisterBytes = 64;  // between the doorbells of queue pairs, which share a page

struct Device : ibv_device {
  bool is_down = false, is_ethernet = false, is_full = false;
  std::uint16_t lid = 0;
};

struct Parent : ibv_pd {
  ibv_parent_domain_init_attr attributes{};
};

struct Queue : ibv_cq_ex {
  Parent* parent = nullptr;
  void* entries = nullptr;
  void* record = nullptr;
  std::uint32_t count = 0;
};

struct Pair;

// To the peer that the pair was connected with, once both ends are.
class PairWire final : public Wire {
 public:
  PairWire(const MemoryTable& memory, const Pair& pair) : inner_(memory, store), pair_(pair) {}
  bool begin(const WireOperation& operation) override;
  std::optional<Syndrome> poll() override {
    if (ended_.empty()) return {};
    const Syndrome first = ended_.front();
    ended_.pop_front();
    return first;
  }

 private:
  // A GPU's memory is behind a mapping that combines writes.
  static void store(void* to, const void* from, std::size_t bytes) {
    gigabar::detail::fence_stores();
    store_cached(to, from, bytes);
    gigabar::detail::fence_stores();
  }
  MemoryWire inner_;
  const Pair& pair_;
  std::deque<Syndrome> ended_;
};

struct Pair : ibv_qp {
  explicit Pair(const MemoryTable& memory) : wire(memory, *this) {}
  Parent* parent = nullptr;
  void* ring = nullptr;
  void* record = nullptr;
  std::uint32_t slots = 0;
  std::byte* bell = nullptr;
  std::atomic<std::uint32_t> peer{0};
  PairWire wire;
};

std::mutex mutex;
std::map<std::uint32_t, Pair*> pairs;  // by number
std::unique_ptr<ProxyThreads> engine;

SoftHca& hca() {
  static SoftHca one;
  return one;
}

// The page of doorbell registers, for ever.
std::byte* registers() {
  static auto* const page =
      static_cast<std::byte*>(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return page;
}

struct Fault {
  std::mutex mutex;
  std::string call;
  int error = 0;
} fault;

bool fails(const char* call, int& error) {
  const std::lock_guard lock(fault.mutex);
  error = fault.error;
  return fault.call == call;
}

template <class Pointer>
Pointer* refuse(int error) {
  errno = error;
  return nullptr;
}

bool PairWire::begin(const WireOperation& operation) {
  const std::lock_guard lock(mutex);
  const auto other = pairs.find(pair_.peer);
  int error = 0;
  if (fails("stall", error)) return false;
  const bool is_connected = other != pairs.end() && other->second->peer == pair_.qp_num && !fails("wire", error);
  if (!is_connected) {
    ended_.push_back(Syndrome::retries_exceeded);
    return true;
  }
  if (!inner_.begin(operation)) return false;
  ended_.push_back(*inner_.poll());
  if (operation.opcode == Opcode::fetch_add && fails("word", error)) {
    const std::uint64_t wrong = 5;
    std::memcpy(operation.local, &wrong, sizeof wrong);
  }
  return true;
}

std::deque<Device>& devices() {
  static std::deque<Device> all = [] {
    std::deque<Device> made;
    const char* const text = std::getenv("GIGABAR_FAKE_HCA");
    std::istringstream lines(text != nullptr ? text : "");
    for (std::string line; std::getline(lines, line, ';');) {
      std::istringstream words(line);
      std::string name;
      if (!(words >> name)) continue;
      Device& device = made.emplace_back();
      device.transport_type = IBV_TRANSPORT_IB;
      name.copy(device.name, sizeof device.name - 1);
      device.lid = static_cast<std::uint16_t>(made.size());
      for (std::string word; words >> word;) {
        device.is_down = device.is_down || word == "down";
        device.is_ethernet = device.is_ethernet || word == "ethernet";
        device.is_full = device.is_full || word == "full";
      }
    }
    return made;
  }();
  return all;
}

const Device& device_of(const ibv_context* context) { return *static_cast<const Device*>(context->device); }

struct Region : ibv_mr {
  std::optional<gigabar::Mapping> mapping;
};

Access rights_of(int access) {
  Access rights = Access::local_read;
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) rights = rights | Access::local_write;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) rights = rights | Access::remote_write;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) rights = rights | Access::remote_read;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights = rights | Access::remote_atomic;
  return rights;
}

Region* add_region(ibv_pd* domain, const MemoryRange& range) {
  const auto key = hca().memory().register_memory(range);
  if (!key) return refuse<Region>(EINVAL);
  auto* const region = new Region();
  region->context = domain->context;
  region->pd = domain;
  region->addr = range.cpu;
  region->length = range.bytes;
  region->lkey = region->rkey = *key;
  return region;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  int error = 0;
  if (fails("alloc_parent_domain", error)) return refuse<ibv_pd>(error);
  auto* const parent = new Parent();
  parent->context = context;
  parent->attributes = *attributes;
  return parent;
}

void* take(Parent& parent, std::size_t bytes, std::size_t alignment, std::uint64_t type) {
  return parent.attributes.alloc(&parent, parent.attributes.pd_context, bytes, alignment, type);
}
void give_back(Parent& parent, void* address, std::uint64_t type) {
  if (address != nullptr) parent.attributes.free(&parent, parent.attributes.pd_context, address, type);
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  int error = 0;
  if (fails("create_cq", error)) return refuse<ibv_cq_ex>(error);
  if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && fails("ignore_overrun", error)) return refuse<ibv_cq_ex>(error);
  auto* const queue = new Queue();
  queue->context = context;
  queue->parent = static_cast<Parent*>(attributes->parent_domain);
  queue->count = std::bit_ceil(attributes->cqe + 1);
  queue->entries = take(*queue->parent, std::size_t{queue->count} * 64, kPageBytes, MLX5DV_RES_TYPE_CQ);
  queue->record = take(*queue->parent, 8, 8, MLX5DV_RES_TYPE_DBR);
  if (queue->entries == nullptr || queue->record == nullptr) return refuse<ibv_cq_ex>(ENOMEM);
  return queue;
}

}  // namespace

extern "C" {

// Empty: none.
void gigabar_fake_hca_fail(const char* call, int error) {
  const std::lock_guard lock(fault.mutex);
  fault.call = call;
  fault.error = error;
}

ibv_device** ibv_get_device_list(int* count) {
  auto** const list = new ibv_device*[devices().size() + 1];
  std::size_t taken = 0;
  for (Device& device : devices()) list[taken++] = &device;
  list[taken] = nullptr;
  if (count != nullptr) *count = static_cast<int>(taken);
  return list;
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  int error = 0;
  if (fails("open_device", error)) return refuse<ibv_context>(error);
  auto* const all = new verbs_context();
  all->sz = sizeof *all;
  all->alloc_parent_domain = alloc_parent_domain;
  all->create_cq_ex = create_cq_ex;
  all->context.device = device;
  all->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  return &all->context;
}
int ibv_close_device(ibv_context* context) {
  delete verbs_get_ctx(context);
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  int error = 0;
  if (fails("query_device", error)) return error;
  attributes->phys_port_cnt = 1;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  attributes->atomic_cap = fails("atomics", error) ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA;
  return 0;
}
int ibv_query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* answer) {
  int error = 0;
  if (fails("query_port", error)) return error;
  const Device& device = device_of(context);
  auto* const port = reinterpret_cast<ibv_port_attr*>(answer);
  port->state = device.is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  port->link_layer = device.is_ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  port->active_mtu = IBV_MTU_4096;
  port->lid = device.is_ethernet ? 0 : device.lid;
  return 0;
}
int ibv_query_gid(ibv_context* context, std::uint8_t, int index, ibv_gid* gid) {
  int error = 0;
  if (fails("query_gid", error)) return error;
  if (index != 3) return EINVAL;
  std::memset(gid, 0, sizeof *gid);
  gid->raw[15] = static_cast<std::uint8_t>(device_of(context).lid);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  int error = 0;
  if (fails("alloc_pd", error)) return refuse<ibv_pd>(error);
  auto* const domain = new Parent();  // without allocators
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete static_cast<Parent*>(domain);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  int error = 0;
  if (fails("reg_mr", error)) return refuse<ibv_mr>(error);
  return add_region(domain, MemoryRange::plain(address, bytes, rights_of(access)));
}
// Of GPU memory, whose addresses the caller gives as those of the dma-buf's bytes: this process maps it for the CPU.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t, std::size_t bytes, std::uint64_t first, int, int access) {
  auto mapping = gigabar::map(reinterpret_cast<void*>(first), bytes);
  if (!mapping) return refuse<ibv_mr>(EOPNOTSUPP);
  auto* const region = add_region(domain, {mapping->address(), first, bytes, rights_of(access)});
  if (region != nullptr) region->mapping = std::move(*mapping);
  return region;
}
int ibv_dereg_mr(ibv_mr* region) {
  hca().memory().deregister_memory(region->lkey);
  delete static_cast<Region*>(region);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) { return refuse<ibv_cq>(EOPNOTSUPP); }
int ibv_destroy_cq(ibv_cq* raw) {
  auto* const queue = reinterpret_cast<Queue*>(raw);
  give_back(*queue->parent, queue->entries, MLX5DV_RES_TYPE_CQ);
  give_back(*queue->parent, queue->record, MLX5DV_RES_TYPE_DBR);
  delete queue;
  return 0;
}

bool mlx5dv_is_supported(ibv_device* device) { return std::string(device->name).starts_with("mlx5_"); }

// As libmlx5: room for requests of three blocks, a power of two of them in all.
ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* wanted, mlx5dv_qp_init_attr* mlx5) {
  int error = 0;
  if (fails("create_qp", error)) return refuse<ibv_qp>(error);
  if (device_of(context).is_full) return refuse<ibv_qp>(ENOMEM);
  const bool is_right = wanted->qp_type == IBV_QPT_RC && (wanted->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 &&
                        (mlx5->create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) != 0 && wanted->sq_sig_all == 0;
  if (!is_right) return refuse<ibv_qp>(EINVAL);
  auto pair = std::make_unique<Pair>(hca().memory());
  pair->context = context;
  pair->parent = static_cast<Parent*>(wanted->pd);
  pair->slots = std::bit_ceil(wanted->cap.max_send_wr * 3);
  pair->send_cq = pair->recv_cq = wanted->send_cq;
  pair->ring = take(*pair->parent, std::size_t{pair->slots} * 64, kPageBytes, MLX5DV_RES_TYPE_QP);
  pair->record = take(*pair->parent, 8, 8, MLX5DV_RES_TYPE_DBR);
  if (pair->ring == nullptr || pair->record == nullptr) return refuse<ibv_qp>(ENOMEM);
  const std::lock_guard lock(mutex);
  static std::size_t made = 0;
  pair->bell = registers() + made++ % (kPageBytes / kRegisterBytes) * kRegisterBytes;
  std::memset(pair->bell, 0, kRegisterBytes);
  const auto& completions = *reinterpret_cast<const Queue*>(wanted->send_cq);
  QueueOptions options;
  options.depth = pair->slots;
  options.cq_depth = completions.count;
  options.is_collapsed = false;
  const QueueMemory memory{Place::plain(pair->ring), Place::plain(pair->record), Place::plain(pair->bell),
                           Place::plain(completions.entries), nullptr};
  gigabar::device::Queue unused;
  const auto number = hca().create_queue(options, memory, pair->wire, unused);
  if (!number) return refuse<ibv_qp>(ENOMEM);
  pair->qp_num = *number;
  if (engine == nullptr) {
    auto started = ProxyThreads::start(hca(), 1);
    if (!started) return refuse<ibv_qp>(ENOMEM);
    engine = std::move(*started);
  }
  pairs[*number] = pair.get();
  return pair.release();
}

ibv_qp* ibv_create_qp(ibv_pd*, ibv_qp_init_attr*) { return refuse<ibv_qp>(EOPNOTSUPP); }

int ibv_modify_qp(ibv_qp* raw, ibv_qp_attr* attributes, int) {
  int error = 0;
  if (fails("modify_qp", error)) return error;
  auto& pair = *static_cast<Pair*>(raw);
  if (attributes->qp_state == IBV_QPS_RTR) {
    const auto& address = attributes->ah_attr;
    const bool is_addressed =
        device_of(pair.context).is_ethernet ? address.is_global == 1 && address.grh.dgid.raw[15] != 0 : address.dlid != 0;
    if (!is_addressed || attributes->path_mtu != IBV_MTU_4096 || attributes->max_dest_rd_atomic == 0) return EINVAL;
    pair.peer = attributes->dest_qp_num;
  }
  pair.state = attributes->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* raw) {
  auto* const pair = static_cast<Pair*>(raw);
  static_cast<void>(hca().close_queue(pair->qp_num).is_ok());
  std::unique_ptr<ProxyThreads> ended;
  {
    const std::lock_guard lock(mutex);
    pairs.erase(pair->qp_num);
    if (pairs.empty()) ended = std::move(engine);
  }
  ended.reset();
  give_back(*pair->parent, pair->ring, MLX5DV_RES_TYPE_QP);
  give_back(*pair->parent, pair->record, MLX5DV_RES_TYPE_DBR);
  delete pair;
  return 0;
}

int mlx5dv_init_obj(mlx5dv_obj* objects, std::uint64_t types) {
  int error = 0;
  if (fails("init_obj", error)) return error;
  if ((types & MLX5DV_OBJ_QP) != 0) {
    const auto& pair = *static_cast<const Pair*>(objects->qp.in);
    mlx5dv_qp& told = *objects->qp.out;
    told = {};
    told.dbrec = static_cast<__be32*>(pair.record);
    told.sq = {pair.ring, pair.slots, 64};
    told.bf = {pair.bell, 0};
  }
  if ((types & MLX5DV_OBJ_CQ) != 0) {
    const auto& queue = *reinterpret_cast<const Queue*>(objects->cq.in);
    mlx5dv_cq& told = *objects->cq.out;
    told = {};
    told.buf = queue.entries;
    told.dbrec = static_cast<__be32*>(queue.record);
    told.cqe_cnt = queue.count;
    told.cqe_size = fails("long_cqe", error) ? 128 : 64;
  }
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status) { return "status"; }
}
