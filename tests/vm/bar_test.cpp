// SPDX-License-Identifier: Apache-2.0
// In a guest: memory of a stand-in device in a PCI BAR, registered with rxe and with siw, written and read by the peer. The data is
// checked through a second mapping of the BAR, so it did land there. What hangs is ended with the guest.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

constexpr const char* kBar = "/dev/fakegpu";
constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::size_t kGuardBytes = 4096;  // on both sides of what the peer writes
constexpr std::byte kGuard{0xa5};
constexpr int kLocalAccess = IBV_ACCESS_LOCAL_WRITE;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct FreeEndpoint {
  void operator()(rdma_cm_id* id) const { ::rdma_destroy_ep(id); }
};
using Endpoint = std::unique_ptr<rdma_cm_id, FreeEndpoint>;
struct Deregister {
  void operator()(ibv_mr* region) const { ::ibv_dereg_mr(region); }
};
using Region = std::unique_ptr<ibv_mr, Deregister>;

// A mapping that goes away with the object.
class Mapped {
 public:
  Mapped(const std::string& path, std::size_t bytes) : bytes_(bytes) {
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file.is_open()) return;
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address != MAP_FAILED) address_ = static_cast<std::byte*>(address);
  }
  ~Mapped() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::byte* address() const { return address_; }

 private:
  const std::size_t bytes_;
  std::byte* address_ = nullptr;
};

std::byte pattern(std::size_t index) { return static_cast<std::byte>(index * 7 + (index >> 8) + 3); }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ibv_qp_init_attr queue_pair() {
  ibv_qp_init_attr attributes{};
  attributes.cap = {16, 16, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return attributes;
}

// An endpoint of the address; errno says why there is none.
Endpoint make_endpoint(const std::string& address, int flags) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  if (::rdma_getaddrinfo(address.c_str(), "7471", &hints, &found) != 0) return nullptr;
  rdma_cm_id* id = nullptr;
  ibv_qp_init_attr attributes = queue_pair();
  const int code = ::rdma_create_ep(&id, found, nullptr, &attributes);
  ::rdma_freeaddrinfo(found);
  return Endpoint(code == 0 ? id : nullptr);
}

// What the side with the BAR tells the other one while they connect.
struct Target {
  std::uint64_t address;
  std::uint32_t key;
};

// The side whose memory is written: listens, registers the memory for the first connection and keeps both until the end.
class Owner {
 public:
  Owner(const std::string& address, std::byte* memory) : listener_(make_endpoint(address, RAI_PASSIVE)) {
    if (listener_ == nullptr || ::rdma_listen(listener_.get(), 1) != 0) {
      ADD_FAILURE() << "listen on " << address << ": " << std::strerror(errno);
      return;
    }
    thread_ = std::thread([this, memory] { serve(memory); });
  }
  ~Owner() {
    if (thread_.joinable()) thread_.join();
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  bool is_listening() const { return thread_.joinable(); }
  int registration_errno() const { return registration_errno_; }

 private:
  void serve(std::byte* memory) {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(::rdma_get_request(listener_.get(), &id), 0) << std::strerror(errno);
    connection_.reset(id);
    region_.reset(::ibv_reg_mr(id->pd, memory, kBytes, kAccess));
    if (region_ == nullptr) {
      registration_errno_ = errno;
      ::rdma_reject(id, nullptr, 0);
      return;
    }
    const Target target{reinterpret_cast<std::uintptr_t>(memory), region_->rkey};
    rdma_conn_param parameters{};
    parameters.private_data = &target;
    parameters.private_data_len = sizeof target;
    parameters.responder_resources = 4;
    parameters.initiator_depth = 4;
    EXPECT_EQ(::rdma_accept(id, &parameters), 0) << std::strerror(errno);
  }

  const Endpoint listener_;
  Endpoint connection_;
  Region region_;  // before the connection, whose protection domain it is in, goes away
  std::atomic<int> registration_errno_{0};
  std::thread thread_;
};

// Waits for the one operation that is under way.
void expect_success(rdma_cm_id* id, const char* operation) {
  ibv_wc completion{};
  ASSERT_EQ(::rdma_get_send_comp(id, &completion), 1) << operation << ": " << std::strerror(errno);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS) << operation << ": " << ::ibv_wc_status_str(completion.status);
}

struct Network {
  const char* name;  // the beginning of its devices' names
  const char* address;
  const char* peer;
};

class Bar : public testing::TestWithParam<Network> {
 protected:
  void SetUp() override {
    if (std::getenv("GIGABAR_VM_RANK") == nullptr) GTEST_SKIP() << "runs in a guest: tests/vm/guest -- PROGRAM";
  }
  std::string address() const { return variable(GetParam().address); }
  std::string peer() const { return variable(GetParam().peer); }
};

TEST_P(Bar, PeerWritesAndReadsIt) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const test::ScopedEnvironment in_bar("GIGABAR_STAND_IN_MEMORY", kBar);
  const auto memory = DeviceMemory::allocate(0, kBytes + 2 * kGuardBytes);
  ASSERT_TRUE(memory) << memory.error().message();
  // The only allocation, so it begins where the BAR begins.
  const Mapped seen(kBar, kBytes + 2 * kGuardBytes);
  ASSERT_NE(seen.address(), nullptr) << std::strerror(errno);
  std::memset(seen.address(), static_cast<int>(kGuard), kBytes + 2 * kGuardBytes);

  const Owner owner(peer(), static_cast<std::byte*>(memory->address()) + kGuardBytes);
  ASSERT_TRUE(owner.is_listening());
  const Endpoint connection = make_endpoint(peer(), 0);
  ASSERT_NE(connection, nullptr) << std::strerror(errno);
  EXPECT_EQ(std::string(::ibv_get_device_name(connection->verbs->device)).rfind(GetParam().name, 0), 0u);
  rdma_conn_param parameters{};
  parameters.responder_resources = 4;
  parameters.initiator_depth = 4;
  parameters.retry_count = 7;
  ASSERT_EQ(::rdma_connect(connection.get(), &parameters), 0)
      << std::strerror(errno) << "; registration of the BAR: " << std::strerror(owner.registration_errno());
  Target target{};
  std::memcpy(&target, connection->event->param.conn.private_data, sizeof target);

  std::vector<std::byte> sent(kBytes), got(kBytes, std::byte{0});
  for (std::size_t i = 0; i < kBytes; ++i) sent[i] = pattern(i);
  const Region sent_region(::ibv_reg_mr(connection->pd, sent.data(), kBytes, kLocalAccess));
  // iWARP places what is read like a peer's write.
  const Region got_region(::ibv_reg_mr(connection->pd, got.data(), kBytes, kAccess));
  ASSERT_TRUE(sent_region != nullptr && got_region != nullptr) << std::strerror(errno);
  ASSERT_EQ(::rdma_post_write(connection.get(), nullptr, sent.data(), kBytes, sent_region.get(), 0, target.address, target.key), 0);
  expect_success(connection.get(), "write");
  ASSERT_EQ(::rdma_post_read(connection.get(), nullptr, got.data(), kBytes, got_region.get(), 0, target.address, target.key), 0);
  expect_success(connection.get(), "read");
  EXPECT_EQ(std::memcmp(got.data(), sent.data(), kBytes), 0) << "what was read back";
  EXPECT_EQ(std::memcmp(seen.address() + kGuardBytes, sent.data(), kBytes), 0) << "what lies in the BAR";
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    ASSERT_EQ(seen.address()[i], kGuard) << i;
    ASSERT_EQ(seen.address()[kGuardBytes + kBytes + i], kGuard) << i;
  }
}

// The folder of the BAR's PCI device; empty when there is none.
std::string pci_folder() {
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/drivers/fakegpu")) {
    if (std::filesystem::exists(entry.path() / "resource2")) return entry.path();
  }
  return {};
}

// Without its driver the BAR is what a GPU's is: memory without struct pages, which no NIC takes.
TEST_P(Bar, WithoutItsDriverItIsRefused) {
  const std::string folder = pci_folder();
  ASSERT_FALSE(folder.empty());
  const Mapped plain(folder + "/resource2", kBytes);
  ASSERT_NE(plain.address(), nullptr) << std::strerror(errno);
  const Endpoint endpoint = make_endpoint(peer(), 0);
  ASSERT_NE(endpoint, nullptr) << std::strerror(errno);
  const Region region(::ibv_reg_mr(endpoint->pd, plain.address(), kBytes, kAccess));
  const int code = errno;
  EXPECT_EQ(region, nullptr);
  EXPECT_EQ(code, EFAULT) << std::strerror(code);
}

INSTANTIATE_TEST_SUITE_P(Networks, Bar,
                         testing::Values(Network{"rxe", "GIGABAR_VM_RXE_ADDRESS", "GIGABAR_VM_RXE_PEER"},
                                         Network{"siw", "GIGABAR_VM_SIW_ADDRESS", "GIGABAR_VM_SIW_PEER"}),
                         [](const auto& network) { return std::string(network.param.name); });

}  // namespace
}  // namespace gigabar
