// SPDX-License-Identifier: Apache-2.0
// A UCP client that sends what it likes to a worker.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "driver/ucp/ucp.hpp"
#include "transport/ucx/wire.hpp"

namespace gigabar::transport::ucx::test {

class RawClient {
 public:
  explicit RawClient(const std::string& address) : address_(address) {
    address_.resize(65536);
    ucp_config_t* config = nullptr;
    EXPECT_EQ(lib_.ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    lib_.ucp_config_modify(config, "TLS", "tcp");
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_AM;
    EXPECT_EQ(lib_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_), UCS_OK);
    lib_.ucp_config_release(config);
    ucp_worker_params_t worker{};
    EXPECT_EQ(lib_.ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    endpoint.address = reinterpret_cast<const ucp_address_t*>(address_.data());
    endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(lib_.ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  ~RawClient() {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = lib_.ucp_ep_close_nbx(endpoint_, &parameters);
    for (int i = 0; i < 1000; ++i) lib_.ucp_worker_progress(worker_);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) lib_.ucp_request_free(request);
    lib_.ucp_worker_destroy(worker_);
    lib_.ucp_cleanup(context_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // Header and data are kept until the end.
  void send(std::string header, std::string data, unsigned flags = UCP_AM_SEND_FLAG_EAGER, unsigned id = 0x67) {
    kept_.push_back(std::move(header));
    const std::string& kept_header = kept_.back();
    kept_.push_back(std::move(data));
    const std::string& kept_data = kept_.back();
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = flags;
    void* request = lib_.ucp_am_send_nbx(endpoint_, id, kept_header.data(), kept_header.size(), kept_data.data(), kept_data.size(),
                                         &parameters);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) lib_.ucp_request_free(request);
  }
  void send(WireHeader header, std::string data) {
    header.data_bytes = static_cast<std::uint32_t>(data.size());
    send(std::string(reinterpret_cast<const char*>(&header), sizeof header), std::move(data));
  }
  void progress() { lib_.ucp_worker_progress(worker_); }

 private:
  const ucp::Library& lib_ = ucp::library();
  std::string address_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::deque<std::string> kept_;
};

}  // namespace gigabar::transport::ucx::test
