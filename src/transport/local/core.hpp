// SPDX-License-Identifier: Apache-2.0
// What a transport shares with its links and regions, which may outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/descriptor.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/peer_memory.hpp"
#include "transport/local/wire.hpp"

namespace gigabar::transport::local {

class LocalLink;

struct Core {
  // The copy engine of a device; the first failure is remembered. Errors: as DeviceCopier::open.
  Result<DeviceCopier*> copier_of(int device);
  std::shared_ptr<ProcessMemory> memory_of(std::int64_t process, std::uint64_t nonce_address, const Nonce& nonce);

  int near_device = -1;
  std::uint64_t most_kernel_bytes = 0;  // of a copy by the persistent copy kernel
  Nonce nonce{};                        // proves to peers that they look at this process
  Descriptor wakes;                     // epoll of the links' sockets
  std::vector<LocalLink*> links;
  std::map<int, Result<std::unique_ptr<DeviceCopier>>> copiers;
  std::map<std::int64_t, std::weak_ptr<ProcessMemory>> processes;
  PeerDevices devices;
};

}  // namespace gigabar::transport::local
