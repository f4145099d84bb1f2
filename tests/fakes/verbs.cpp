// SPDX-License-Identifier: Apache-2.0
// libibverbs.so.1 for the RDMA devices that GIGABAR_FAKE_VERBS_DEVICES lists, as "NAME [KEY[=VALUE]]...; NAME ...":
//   mtu=4096      active MTU of a port; once per port. None: one port of 1024
//   down          no port is active
//   infiniband    link layer InfiniBand; else Ethernet
//   iwarp         transport iWARP
//   unspecified   a transport of its own, as EFA has
//   peermem       GPU pointers can be registered; else they are EFAULT, as they are for a kernel without peer memory
//   open=13 host=12 gpu=22 dmabuf=95 pair=12 connect=110
//                 errno of ibv_open_device, ibv_reg_mr of host memory and of a GPU pointer, ibv_reg_dmabuf_mr, ibv_create_qp, the
//                 step of ibv_modify_qp that needs the GID
//   query=5 domain=12 queue=12 post=22 poll=5
//                 errno of ibv_query_device, ibv_alloc_pd, ibv_create_cq, posting and polling
//   completion=12 status of every completion
//   stuck         nothing ever completes
//   wrong, wrong-gpu   a bit of every transfer (to or from a GPU) is lost
//   slow=500, slow-gpu=500   microseconds that a transfer (to or from a GPU) takes longer
// A device of its own memory does not exist: transfers are copies, those of GPU memory by the CUDA library that is loaded. Built
// with GIGABAR_FAKE_VERBS_IS_OLD it has no dma-bufs.
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace {

struct Settings {
  std::string name;
  std::map<std::string, int> values;
  std::vector<unsigned> mtus;

  bool has(const char* key) const { return values.contains(key); }
  int of(const char* key) const {
    const auto found = values.find(key);
    return found != values.end() ? found->second : 0;
  }
};

struct FakeDevice : ibv_device {
  Settings settings;
};

struct FakeRegion : ibv_mr {
  bool is_gpu = false;
};

struct FakeContext : ibv_context {
  Settings settings;
  std::map<std::uint32_t, FakeRegion*> regions;
  std::uint32_t next_key = 1;
};

struct FakeQueue : ibv_cq {
  std::deque<ibv_wc> completions;
};

std::atomic<int> alive{0};  // contexts, domains, regions, queues and pairs
std::atomic<int> next_pair{100};

FakeContext& context_of(ibv_context* context) { return *static_cast<FakeContext*>(context); }

std::vector<Settings> listed() {
  std::vector<Settings> all;
  const char* text = std::getenv("GIGABAR_FAKE_VERBS_DEVICES");
  std::istringstream devices(text != nullptr ? text : "");
  for (std::string line; std::getline(devices, line, ';');) {
    Settings settings;
    std::istringstream words(line);
    words >> settings.name;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const int value = equals == std::string::npos ? 1 : std::atoi(word.c_str() + equals + 1);
      if (word.starts_with("mtu=")) {
        settings.mtus.push_back(static_cast<unsigned>(value));
      } else {
        settings.values[word.substr(0, equals)] = value;
      }
    }
    if (settings.mtus.empty()) settings.mtus.push_back(1024);
    if (!settings.name.empty()) all.push_back(std::move(settings));
  }
  return all;
}

// Memory that the CPU cannot read is a GPU's.
bool is_gpu_pointer(const void* address) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool is_readable = ::write(ends[1], address, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return !is_readable;
}

void* cuda_function(const char* name) {
  const char* path = std::getenv("GIGABAR_CUDA_LIBRARY");
  static void* const library = ::dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

using CopyToGpu = int (*)(unsigned long long, const void*, std::size_t);
using CopyFromGpu = int (*)(void*, unsigned long long, std::size_t);
using Synchronise = int (*)();

bool read_memory(bool is_gpu, std::uint64_t address, std::vector<char>& bytes) {
  if (!is_gpu) {
    std::memcpy(bytes.data(), reinterpret_cast<const void*>(address), bytes.size());
    return true;
  }
  const auto copy = reinterpret_cast<CopyFromGpu>(cuda_function("cuMemcpyDtoH_v2"));
  return copy != nullptr && copy(bytes.data(), address, bytes.size()) == 0;
}

bool write_memory(bool is_gpu, std::uint64_t address, const std::vector<char>& bytes) {
  if (!is_gpu) {
    std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
    return true;
  }
  const auto copy = reinterpret_cast<CopyToGpu>(cuda_function("cuMemcpyHtoD_v2"));
  const auto synchronise = reinterpret_cast<Synchronise>(cuda_function("cuCtxSynchronize"));
  return copy != nullptr && synchronise != nullptr && copy(address, bytes.data(), bytes.size()) == 0 && synchronise() == 0;
}

// What the adapter does with one work request.
ibv_wc_status transfer(FakeContext& context, const ibv_send_wr& request) {
  if (context.settings.has("completion")) return static_cast<ibv_wc_status>(context.settings.of("completion"));
  const ibv_sge& piece = request.sg_list[0];
  const auto local = context.regions.find(piece.lkey);
  const auto remote = context.regions.find(request.wr.rdma.rkey);
  if (local == context.regions.end()) return IBV_WC_LOC_PROT_ERR;
  if (remote == context.regions.end()) return IBV_WC_REM_ACCESS_ERR;
  const bool is_write = request.opcode == IBV_WR_RDMA_WRITE;
  const bool touches_gpu = local->second->is_gpu || remote->second->is_gpu;
  std::vector<char> bytes(piece.length);
  const bool is_local_first = is_write;
  const bool was_read = is_local_first ? read_memory(local->second->is_gpu, piece.addr, bytes)
                                       : read_memory(remote->second->is_gpu, request.wr.rdma.remote_addr, bytes);
  if (!was_read) return IBV_WC_LOC_ACCESS_ERR;
  if (context.settings.has("wrong") || (touches_gpu && context.settings.has("wrong-gpu"))) bytes[bytes.size() / 2] ^= 1;
  ::usleep(static_cast<useconds_t>(context.settings.of("slow") + (touches_gpu ? context.settings.of("slow-gpu") : 0)));
  const bool was_written = is_local_first ? write_memory(remote->second->is_gpu, request.wr.rdma.remote_addr, bytes)
                                          : write_memory(local->second->is_gpu, piece.addr, bytes);
  return was_written ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR;
}

int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** refused) {
  if (pair->state != IBV_QPS_RTS) {
    *refused = request;
    return EINVAL;
  }
  FakeContext& context = context_of(pair->context);
  if (context.settings.has("post")) return context.settings.of("post");
  if (context.settings.has("stuck")) return 0;
  ibv_wc completion{};
  completion.wr_id = request->wr_id;
  completion.status = transfer(context, *request);
  static_cast<FakeQueue*>(pair->send_cq)->completions.push_back(completion);
  return 0;
}

int poll(ibv_cq* queue, int count, ibv_wc* completions) {
  const Settings& settings = context_of(queue->context).settings;
  if (settings.has("poll")) return -settings.of("poll");
  auto& waiting = static_cast<FakeQueue*>(queue)->completions;
  int taken = 0;
  for (; taken < count && !waiting.empty(); ++taken) {
    completions[taken] = waiting.front();
    waiting.pop_front();
  }
  return taken;
}

FakeRegion* add_region(ibv_pd* domain, void* address, std::size_t bytes, bool is_gpu) {
  FakeContext& context = context_of(domain->context);
  auto* const region = new FakeRegion();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->lkey = region->rkey = context.next_key++;
  region->is_gpu = is_gpu;
  context.regions[region->lkey] = region;
  ++alive;
  return region;
}

template <class Pointer>
Pointer* refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

extern "C" {

int gigabar_fake_verbs_alive() { return alive; }

ibv_device** ibv_get_device_list(int* count) {
  static std::deque<FakeDevice> devices;  // for ever: an opened device points at its entry
  if (std::getenv("GIGABAR_FAKE_VERBS_DENIES") != nullptr) return refuse<ibv_device*>(ENOSYS);
  std::vector<ibv_device*> list;
  for (Settings& settings : listed()) {
    FakeDevice& device = devices.emplace_back();
    device.transport_type = settings.has("iwarp")         ? IBV_TRANSPORT_IWARP
                            : settings.has("unspecified") ? IBV_TRANSPORT_UNSPECIFIED
                                                          : IBV_TRANSPORT_IB;
    device.node_type = settings.has("iwarp") ? IBV_NODE_RNIC : IBV_NODE_CA;
    device.settings = std::move(settings);
    std::snprintf(device.name, sizeof device.name, "%s", device.settings.name.c_str());
    list.push_back(&device);
  }
  if (count != nullptr) *count = static_cast<int>(list.size());
  auto** const result = new ibv_device*[list.size() + 1];
  for (std::size_t i = 0; i < list.size(); ++i) result[i] = list[i];
  result[list.size()] = nullptr;
  return result;
}

void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  const Settings& settings = static_cast<FakeDevice*>(device)->settings;
  if (settings.has("open")) return refuse<ibv_context>(settings.of("open"));
  auto* const context = new FakeContext();
  context->settings = settings;
  context->device = device;
  context->ops.post_send = post_send;
  context->ops.poll_cq = poll;
  context->cmd_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // so that one left open is a leaked descriptor
  ++alive;
  return context;
}

int ibv_close_device(ibv_context* context) {
  ::close(context->cmd_fd);
  delete &context_of(context);
  --alive;
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (context_of(context).settings.has("query")) return context_of(context).settings.of("query");
  *attributes = {};
  attributes->phys_port_cnt = static_cast<std::uint8_t>(context_of(context).settings.mtus.size());
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t number, _compat_ibv_port_attr* answer) {
  const Settings& settings = context_of(context).settings;
  if (number == 0 || number > settings.mtus.size()) return EINVAL;
  auto* const attributes = reinterpret_cast<ibv_port_attr*>(answer);
  attributes->state = settings.has("down") ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes->link_layer = settings.has("infiniband") ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attributes->lid = settings.has("infiniband") ? 7 : 0;
  attributes->gid_tbl_len = settings.has("iwarp") ? 1 : 4;
  switch (settings.mtus[number - 1u]) {
    case 256: attributes->active_mtu = IBV_MTU_256; break;
    case 512: attributes->active_mtu = IBV_MTU_512; break;
    case 1024: attributes->active_mtu = IBV_MTU_1024; break;
    case 2048: attributes->active_mtu = IBV_MTU_2048; break;
    default: attributes->active_mtu = IBV_MTU_4096; break;
  }
  return 0;
}

int ibv_query_gid(ibv_context*, std::uint8_t, int index, ibv_gid* gid) {
  if (index < 0 || index >= 4) return -1;
  std::memset(gid, 0, sizeof *gid);
  gid->raw[0] = 0xfe;
  gid->raw[15] = static_cast<std::uint8_t>(index + 1);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (context_of(context).settings.has("domain")) return refuse<ibv_pd>(context_of(context).settings.of("domain"));
  ++alive;
  auto* const domain = new ibv_pd();
  domain->context = context;
  return domain;
}

int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  --alive;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int) {
  const Settings& settings = context_of(domain->context).settings;
  const bool is_gpu = is_gpu_pointer(address);
  if (!is_gpu && settings.has("host")) return refuse<ibv_mr>(settings.of("host"));
  if (is_gpu && settings.has("gpu")) return refuse<ibv_mr>(settings.of("gpu"));
  if (is_gpu && !settings.has("peermem")) return refuse<ibv_mr>(EFAULT);
  return add_region(domain, address, bytes, is_gpu);
}

#ifndef GIGABAR_FAKE_VERBS_IS_OLD
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int descriptor, int) {
  const Settings& settings = context_of(domain->context).settings;
  if (::fcntl(descriptor, F_GETFD) < 0) return refuse<ibv_mr>(EBADF);
  if (settings.has("dmabuf")) return refuse<ibv_mr>(settings.of("dmabuf"));
  if (bytes == 0 || (offset ^ iova) % 4096 != 0) return refuse<ibv_mr>(EINVAL);
  return add_region(domain, reinterpret_cast<void*>(iova), bytes, true);
}
#endif

int ibv_dereg_mr(ibv_mr* region) {
  context_of(region->context).regions.erase(region->lkey);
  delete static_cast<FakeRegion*>(region);
  --alive;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) {
  if (context_of(context).settings.has("queue")) return refuse<ibv_cq>(context_of(context).settings.of("queue"));
  auto* const queue = new FakeQueue();
  queue->context = context;
  ++alive;
  return queue;
}

int ibv_destroy_cq(ibv_cq* queue) {
  delete static_cast<FakeQueue*>(queue);
  --alive;
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  const Settings& settings = context_of(domain->context).settings;
  if (settings.has("pair")) return refuse<ibv_qp>(settings.of("pair"));
  auto* const pair = new ibv_qp();
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = wanted->send_cq;
  pair->qp_num = static_cast<std::uint32_t>(next_pair++);
  pair->state = IBV_QPS_RESET;
  ++alive;
  return pair;
}

int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int) {
  const Settings& settings = context_of(pair->context).settings;
  const bool is_to_receive = attributes->qp_state == IBV_QPS_RTR;
  if (is_to_receive && settings.has("connect")) return settings.of("connect");
  if (is_to_receive && attributes->dest_qp_num != pair->qp_num) return EINVAL;
  const bool has_address = settings.has("infiniband") ? attributes->ah_attr.dlid != 0 : attributes->ah_attr.is_global != 0;
  if (is_to_receive && !has_address) return EINVAL;
  pair->state = attributes->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* pair) {
  delete pair;
  --alive;
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another status of the fake library";
}

}  // extern "C"
