// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/device.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "base/rounding.hpp"

namespace gigabar::transport::rdma {
void IdCloser::operator()(rdma_cm_id* id) const noexcept {
  if (id->qp != nullptr) rdmacm::functions().rdma_destroy_qp(id);
  rdmacm::functions().rdma_destroy_id(id);
}

Id make_id(rdma_event_channel* channel, void* context) noexcept {
  rdma_cm_id* id = nullptr;
  return Id(rdmacm::functions().rdma_create_id(channel, &id, context, RDMA_PS_TCP) == 0 ? id : nullptr);
}

bool unblock(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

Pages::Pages(std::size_t bytes) noexcept {
  const std::size_t whole_bytes = round_up(bytes, host_page_bytes());
  void* const address = ::mmap(nullptr, whole_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return;
  taken_ = {address, UnmapPages{whole_bytes}};
  // A child that this process forks must not make the adapter's pages copies: it does without them.
  ::madvise(address, whole_bytes, MADV_DONTFORK);
}

Device::~Device() {
  probe.reset();
  if (channel != nullptr) verbs::functions().ibv_destroy_comp_channel(channel);
  if (domain != nullptr) verbs::functions().ibv_dealloc_pd(domain);
}

SocketAddress socket_address(const RailAddress& address, std::uint16_t port) noexcept {
  SocketAddress result;
  if (address.is_ipv6) {
    auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
    std::memcpy(&ipv6->sin6_addr, address.bytes.data(), sizeof ipv6->sin6_addr);
  } else {
    auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
    std::memcpy(&ipv4->sin_addr, address.bytes.data(), sizeof ipv4->sin_addr);
  }
  return result;
}

}  // namespace gigabar::transport::rdma
