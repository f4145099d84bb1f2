// SPDX-License-Identifier: Apache-2.0
#include "driver/verbs/pair.hpp"

#if GIGABAR_HAS_VERBS

namespace gigabar::verbs {
namespace {

int to_init(ibv_qp* pair, const PairPath& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = path.port;
  attributes.qp_access_flags = static_cast<unsigned>(path.access);
  return functions().ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

ibv_ah_attr address_of(const PairPath& path) {
  ibv_ah_attr address{};
  address.port_num = path.port;
  address.dlid = path.peer_lid;
  if (path.is_ethernet) {
    address.is_global = 1;
    address.grh.dgid = path.peer_gid;
    address.grh.sgid_index = path.gid_index;
    address.grh.hop_limit = 64;
  }
  return address;
}

int to_receive(ibv_qp* pair, const PairPath& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = path.mtu;
  attributes.dest_qp_num = path.peer_pair;
  attributes.max_dest_rd_atomic = path.reads;
  attributes.min_rnr_timer = 12;  // 0.64 ms; nothing is received here
  attributes.ah_attr = address_of(path);
  return functions().ibv_modify_qp(pair, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_send(ibv_qp* pair, const PairPath& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms, seven times
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = path.reads;
  return functions().ibv_modify_qp(
      pair, &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace

PairFailure connect_pair(ibv_qp* pair, const PairPath& path) {
  if (const int result = to_init(pair, path); result != 0) return {"ibv_modify_qp(INIT)", code_of(result)};
  if (const int result = to_receive(pair, path); result != 0) return {"ibv_modify_qp(RTR)", code_of(result)};
  if (const int result = to_send(pair, path); result != 0) return {"ibv_modify_qp(RTS)", code_of(result)};
  return {};
}

}  // namespace gigabar::verbs

#endif
