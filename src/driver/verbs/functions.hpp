// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs.so.1 themselves, for components that keep queues of their own. verbs.hpp says whether they can be
// used.
#pragma once

#if GIGABAR_HAS_VERBS

#include <infiniband/verbs.h>
// The header wraps these around the exported functions; the table below takes the exported ones.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/in_place.hpp"
#include "driver/loader.hpp"

namespace gigabar::verbs {

#define GIGABAR_SYMBOLS "driver/verbs/symbols.def"
#include "driver/functions.inc"

// The process's table, loaded on first use. Threads: any.
const LibraryOf<Functions>& functions();

// The errno of a result: functions of verbs, and of rdma_cm, return an errno, minus an errno, or -1 with errno set.
int code_of(int result) noexcept;

// The devices that libibverbs lists, which may be opened while the list lives.
class DeviceList : InPlace {
 public:
  DeviceList() {
    errno = 0;
    list_ = functions().ibv_get_device_list(&count_);
    error_ = errno;
  }
  ~DeviceList() {
    if (list_ != nullptr) functions().ibv_free_device_list(list_);
  }

  bool is_there() const { return list_ != nullptr; }
  int error() const { return error_; }  // an errno, when it is not there
  int count() const { return list_ != nullptr ? count_ : 0; }
  ibv_device* at(int index) const { return list_[index]; }
  std::string name(int index) const {
    const char* const name = functions().ibv_get_device_name(list_[index]);
    return name != nullptr ? name : "";
  }

 private:
  ibv_device** list_ = nullptr;
  int count_ = 0;
  int error_ = 0;
};

// Queue pairs that are connected by hand: who is behind them was told in some other way. Not on iWARP, which connects by TCP.

// From a port of this side to a queue pair of a peer's port.
struct PairPath {
  std::uint8_t port = 1;
  ibv_mtu mtu = IBV_MTU_1024;  // of both ports
  std::uint32_t peer_pair = 0;
  // Where the peer's port is: its LID, and on Ethernet its GID and the index of the own one.
  std::uint16_t peer_lid = 0;
  bool is_ethernet = false;
  ibv_gid peer_gid{};
  std::uint8_t gid_index = 0;
  std::uint8_t reads = 1;  // and atomics under way, each way
  int access = 0;          // of the peer, IBV_ACCESS_REMOTE_*
};

// The call that failed and its errno; null: none did.
struct PairFailure {
  const char* call = nullptr;
  int code = 0;
};

// Brings a new reliable queue pair to where it sends.
PairFailure connect_pair(ibv_qp* pair, const PairPath& path);

}  // namespace gigabar::verbs

#endif
