// SPDX-License-Identifier: Apache-2.0
// The devices that libibverbs lists, which may be opened while the list lives.
#pragma once

#if GIGABAR_HAS_VERBS

#include <cerrno>
#include <string>

#include "driver/verbs/functions.hpp"

namespace gigabar::verbs {

class DeviceList {
 public:
  DeviceList() {
    errno = 0;
    list_ = functions().ibv_get_device_list(&count_);
    error_ = errno;
  }
  ~DeviceList() {
    if (list_ != nullptr) functions().ibv_free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

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

}  // namespace gigabar::verbs

#endif
