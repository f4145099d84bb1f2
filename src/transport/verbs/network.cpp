// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/network.hpp"

#include <endian.h>

#include <fstream>

#include "base/errors.hpp"

namespace gigabar::transport::rdma {
namespace {

constexpr int kMaxEthernetPriority = 7;
constexpr std::uint32_t kFlowLabelMask = 0xfffff;
// Selectors of a path record: the value is exactly that.
constexpr unsigned kExactly = 2;

std::uint8_t exactly(std::uint8_t value) noexcept { return static_cast<std::uint8_t>(kExactly << 6 | (value & 0x3f)); }

// "RoCE v2"; empty where the kernel does not tell.
std::string type_of_gid(const std::string& device, unsigned port, unsigned index) {
  std::ifstream file(text("/sys/class/infiniband/", device, "/ports/", port, "/gid_attrs/types/", index));
  std::string type;
  std::getline(file, type);
  return type;
}

}  // namespace

Result<void> check_service_level(const TransportOptions& options, Technology technology, const std::string& rail) {
  if (options.service_level < 0 || technology == Technology::infiniband) return {};
  const std::string object = text("service_level ", options.service_level, " on ", rail);
  if (technology == Technology::iwarp)
    return make_error(Status::not_supported, "open verbs", object, "iWARP runs over TCP, whose packets have no service level",
                      "set traffic_class instead, or name rails of InfiniBand or RoCE");
  if (options.service_level > kMaxEthernetPriority)
    return make_error(Status::invalid_argument, "open verbs", object, "over RoCE it is the Ethernet priority, 0 to 7");
  return {};
}

std::optional<std::uint8_t> type_of_service(const TransportOptions& options, Technology technology) noexcept {
  if (options.traffic_class >= 0) return static_cast<std::uint8_t>(options.traffic_class);
  if (options.service_level < 0 || technology != Technology::roce) return {};
  return static_cast<std::uint8_t>(options.service_level << 5);
}

ibv_path_data path_with(const ibv_sa_path_rec& found, std::uint8_t service_level) noexcept {
  ibv_path_data data{};
  data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;  // the one kind that the kernel takes
  ibv_path_record& path = data.path;
  path.dgid = found.dgid;
  path.sgid = found.sgid;
  path.dlid = found.dlid;
  path.slid = found.slid;
  path.flowlabel_hoplimit = htobe32((be32toh(found.flow_label) & kFlowLabelMask) << 8 | found.hop_limit);
  path.tclass = found.traffic_class;
  path.reversible_numpath = static_cast<std::uint8_t>(IBV_PATH_RECORD_REVERSIBLE | 1);
  path.pkey = found.pkey;
  path.qosclass_sl = htobe16(service_level);
  path.mtu = exactly(found.mtu);
  path.rate = exactly(found.rate);
  path.packetlifetime = exactly(found.packet_life_time);
  return data;
}

std::string network_of(ibv_qp* pair, const std::string& device, unsigned port, Technology technology) {
  const auto query = verbs::functions().ibv_query_qp;
  if (technology == Technology::iwarp || query == nullptr) return {};
  ibv_qp_attr now{};
  ibv_qp_init_attr made{};
  if (query(pair, &now, IBV_QP_AV | IBV_QP_PATH_MTU, &made) != 0) return {};
  const ibv_ah_attr& to = now.ah_attr;
  std::string network;
  if (to.is_global != 0) {
    const std::string type = type_of_gid(device, port, to.grh.sgid_index);
    network = text("GID ", static_cast<unsigned>(to.grh.sgid_index), type.empty() ? "" : " ", type, ", ");
  }
  if (now.path_mtu >= IBV_MTU_256 && now.path_mtu <= IBV_MTU_4096) network += text("MTU ", 128u << now.path_mtu, ", ");
  if (to.is_global != 0) network += text("traffic class ", static_cast<unsigned>(to.grh.traffic_class), ", ");
  return network + text("service level ", static_cast<unsigned>(to.sl));
}

}  // namespace gigabar::transport::rdma
