// SPDX-License-Identifier: Apache-2.0
// How a link comes up: rdma_cm's events, one step each; nothing here waits.
//
//   initiator: address resolved -> route resolved -> queue pair, connect -> established -> hello sent, ready
//              (with a service level: ... route resolved -> a new id -> address resolved -> path set -> queue pair, ...)
//   acceptor:  request with the right token -> queue pair, receives, accept -> hello received, ready
//
// The initiator speaks first because an iWARP acceptor may not; the acceptor sends nothing before the hello.
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "transport/verbs/link.hpp"
#include "transport/verbs/transport_state.hpp"

namespace gigabar::transport::rdma {
namespace {

constexpr std::array<std::uint32_t, 5> kInlineSizes{256, 128, 80, 40, 0};  // siw refuses more than 80
constexpr std::uint8_t kAckTimeout = 16;       // 4.096 us x 2^16 = 268 ms, eight times, until a peer that does not answer is lost
constexpr std::uint8_t kMinimumRnrTimer = 12;  // 0.64 ms, in place of rdma_cm's 655 ms; credits keep it from being needed
constexpr std::uint8_t kRetries = 7;
constexpr std::uint8_t kRnrRetries = 6;  // finite: 7 would be for ever
constexpr std::uint32_t kFlowLabelMask = 0xfffff;

// One attempt to resolve; the kernel looks at the neighbour's answer again when it ends, and misses some that come earlier.
constexpr std::int64_t kResolveMs = 500;

std::string errno_text(int status) { return std::strerror(status < 0 ? -status : status); }

std::uint8_t depth(unsigned first, unsigned second) noexcept {
  return static_cast<std::uint8_t>(std::min({first, second, kMaxReads}));
}

unsigned positive(int value) noexcept { return value > 0 ? static_cast<unsigned>(value) : 0; }

// The type of service that rdma_cm is given. Nothing: the system's. Over RoCE a service level without a traffic class takes the
// class selector of that number, which adapters and switches that trust DSCP put into the same priority.
std::optional<std::uint8_t> type_of_service(const TransportOptions& options, Technology technology) noexcept {
  if (options.traffic_class >= 0) return static_cast<std::uint8_t>(options.traffic_class);
  if (options.service_level < 0 || technology != Technology::roce) return {};
  return static_cast<std::uint8_t>(options.service_level << 5);
}

// Selectors of a path record: the value is exactly that.
std::uint8_t exactly(std::uint8_t value) noexcept { return static_cast<std::uint8_t>(2U << 6 | (value & 0x3f)); }

// `found`, which rdma_cm resolved, with another service level, in the form in which rdma_cm takes it back in place of resolving the
// route (RDMA_OPTION_IB_PATH).
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

// "RoCE v2"; empty where the kernel does not tell.
std::string type_of_gid(const std::string& device, unsigned port, unsigned index) {
  std::ifstream file(text("/sys/class/infiniband/", device, "/ports/", port, "/gid_attrs/types/", index));
  std::string type;
  std::getline(file, type);
  return type;
}

// What a connected queue pair has of its network: "GID 1 RoCE v2, MTU 1024, traffic class 96, service level 3"; empty where nobody
// tells (iWARP).
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

}  // namespace

Result<void> VerbsLink::prepare() {
  const auto& functions = verbs::functions();
  receives_ = std::make_unique<Pages>(std::size_t{kReceives} * kSlotBytes);
  sends_ = std::make_unique<Pages>(std::size_t{kAllSlots} * kSlotBytes);
  if (receives_->data() == nullptr || sends_->data() == nullptr)
    return make_error(Status::out_of_memory, "link", describe(), "there is no memory for its messages");
  for (const auto& [pages, place] : {std::pair{receives_.get(), &receive_region_}, std::pair{sends_.get(), &send_region_}}) {
    auto region = register_pages(device_->domain, device_->name, pages->data(), pages->bytes(), IBV_ACCESS_LOCAL_WRITE);
    if (!region) return std::move(region).error();
    *place = std::move(*region);
  }
  // Room for everything that can be posted, should all of it end at once.
  constexpr int kCompletions = static_cast<int>(kWorkRequests + kReceives);
  errno = 0;
  completions_ = functions.ibv_create_cq(device_->context, kCompletions, this, device_->channel, 0);
  if (completions_ == nullptr) return call_failed("ibv_create_cq", describe(), errno);
  return {};
}

// Soft-RoCE's one processor at a time takes a queue pair's requests in their order, and a lock between any two.
Introduction VerbsLink::introduction() const {
  return {own_token_, device_->probe_address(), device_->probe->rkey, device_->is_rxe};
}

void VerbsLink::expect(const Token& expected, std::size_t peer_rail) {
  peer_token_ = expected;
  peer_rail_ = peer_rail;
  step_ = Step::expecting;
}

bool VerbsLink::is_expecting(std::size_t rail, const Token& token) const noexcept {
  const bool is_here = step_ == Step::expecting && state_ == LinkState::connecting && rail == rail_index_;
  return peer_token_ && is_equal(*peer_token_, token) && is_here;
}

Result<void> VerbsLink::complete(Parcel answer) {
  if (state_ == LinkState::broken || failure_ || step_ != Step::offered)
    return failed(Status::invalid_argument, "an answer is for a link that was offered, and once");
  const auto read = read_answer(answer.bytes);
  if (!read || read->to.technology != own_rail().address.technology || read->to.is_ipv6 != own_rail().address.is_ipv6) {
    Error error = failed(Status::bad_file, "the peer's answer to the offer is malformed or names a port of another network");
    fail(error);
    return error;
  }
  peer_token_ = read->token;
  peer_rail_ = read->rail;
  peer_address_ = read->to;
  resolve_anew();
  if (failure_) return *failure_;
  return {};
}

void VerbsLink::resolve_anew() {
  if (Result<void> made = new_id(); !made) return fail(std::move(made).error());
  resolve_address();
}

Result<void> VerbsLink::new_id() {
  const auto& cm = rdmacm::functions();
  Id made = make_id(transport_->channel());
  if (made == nullptr) return call_failed("rdma_create_id", describe(), errno);
  id_ = std::move(made);
  if (auto service = type_of_service(transport_->options(), own_rail().address.technology)) {
    if (cm.rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &*service, sizeof *service) != 0)
      return call_failed("rdma_set_option(TOS)", describe(), errno);
  }
  // Older kernels do not know it: theirs are a few seconds too.
  auto timeout = kAckTimeout;
  if (!device_->is_iwarp) cm.rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  return {};
}

int VerbsLink::resolve_time_ms() const {
  return static_cast<int>(std::clamp<std::int64_t>((deadline_ns_ - now_ns()) / 1'000'000, 1, kResolveMs));
}

void VerbsLink::resolve_address() {
  SocketAddress from = socket_address(own_rail().address, 0);
  SocketAddress there = socket_address(peer_address_, peer_address_.port);
  if (rdmacm::functions().rdma_resolve_addr(id_.get(), from.get(), there.get(), resolve_time_ms()) != 0)
    return fail(call_failed("rdma_resolve_addr", describe(), errno));
  step_ = Step::resolving_address;
}

void VerbsLink::on_address() {
  if (id_->verbs != device_->context)
    return fail(failed(Status::unavailable, "the route to the peer does not go through this rail", "see 'ip route get'"));
  if (path_) return set_path();
  resolve_route();
}

void VerbsLink::resolve_route() {
  if (rdmacm::functions().rdma_resolve_route(id_.get(), resolve_time_ms()) != 0)
    return fail(call_failed("rdma_resolve_route", describe(), errno));
  step_ = Step::resolving_route;
}

// A path can be given in place of resolving the route only, not after it: the id that found it out is replaced.
void VerbsLink::start_again_with_path() {
  if (id_->route.num_paths < 1 || id_->route.path_rec == nullptr)
    return fail(failed(Status::not_supported, "rdma_cm does not tell the path, so that its service level cannot be changed",
                       "leave service_level out"));
  path_ = path_with(id_->route.path_rec[0], static_cast<std::uint8_t>(transport_->options().service_level));
  resolve_anew();
}

// The kernel answers with the event of a resolved route.
void VerbsLink::set_path() {
  if (rdmacm::functions().rdma_set_option(id_.get(), RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &*path_, sizeof *path_) != 0)
    return fail(call_failed("rdma_set_option(IB_PATH)", describe(), errno, "leave service_level out"));
  step_ = Step::resolving_route;
}

rdma_conn_param VerbsLink::parameters(const std::array<std::uint8_t, kIntroductionBytes>& introduction, unsigned reads) const {
  rdma_conn_param parameters{};
  parameters.private_data = introduction.data();
  parameters.private_data_len = static_cast<std::uint8_t>(introduction.size());
  parameters.responder_resources = depth(kMaxReads, positive(device_->attributes.max_qp_rd_atom));
  parameters.initiator_depth = depth(reads, positive(device_->attributes.max_qp_init_rd_atom));
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kRnrRetries;
  return parameters;
}

void VerbsLink::on_route() {
  if (transport_->options().service_level >= 0 && !path_) return start_again_with_path();
  if (Result<void> made = make_pair(); !made) return fail(std::move(made).error());
  const auto introduced = write_introduction(introduction());
  rdma_conn_param wanted = parameters(introduced, kMaxReads);
  if (rdmacm::functions().rdma_connect(id_.get(), &wanted) != 0) return fail(call_failed("rdma_connect", describe(), errno));
  is_connected_ = true;
  step_ = Step::connecting;
}

Result<void> VerbsLink::make_pair() {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = completions_;
  wanted.recv_cq = completions_;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 0;
  int code = 0;
  for (const std::uint32_t inline_bytes : kInlineSizes) {
    wanted.cap = {kWorkRequests, kReceives, 1, 1, inline_bytes};
    errno = 0;
    if (rdmacm::functions().rdma_create_qp(id_.get(), device_->domain, &wanted) == 0) {
      pair_ = id_->qp;
      inline_bytes_ = inline_bytes;
      constexpr std::size_t kHeaders = kMessageHeaderBytes + kHeaderBytes;
      limits_.quick_payload_bytes = inline_bytes_ > kHeaders ? inline_bytes_ - kHeaders : 0;
      return post_first_receives();
    }
    code = errno;
    if (code != EINVAL && code != ENOMEM) break;
  }
  return call_failed("rdma_create_qp", describe(), code);
}

Result<void> VerbsLink::post_first_receives() {
  for (unsigned slot = 0; slot < kControlReceives + kFirstCredits; ++slot) {
    if (!repost(slot, false)) return *failure_;
  }
  return {};
}

void VerbsLink::take_request(Id id, const CmEvent& event, const Introduction& peer) {
  const auto& cm = rdmacm::functions();
  step_ = Step::accepting;
  peer_token_.reset();  // good for one connection
  peer_ = peer;
  id_ = std::move(id);
  const auto refuse = [&](Error error) {
    fail(std::move(error));
    const auto reason = write_refusal(Refusal::no_resources);
    cm.rdma_reject(id_.get(), reason.data(), static_cast<std::uint8_t>(reason.size()));
    pair_ = nullptr;
    id_.reset();
  };
  if (id_->verbs != device_->context) return refuse(failed(Status::device_error, "the request came through another device"));
  if (Result<void> made = make_pair(); !made) return refuse(std::move(made).error());
  const auto introduced = write_introduction(introduction());
  rdma_conn_param wanted = parameters(introduced, event.param.conn.initiator_depth);
  wanted.responder_resources = std::min(wanted.responder_resources, event.param.conn.responder_resources);
  set_read_limit(wanted.initiator_depth);
  if (cm.rdma_accept(id_.get(), &wanted) != 0) return refuse(call_failed("rdma_accept", describe(), errno));
  is_connected_ = true;
}

void VerbsLink::set_read_limit(unsigned reads) {
  const unsigned most = device_->is_rxe ? 1 : positive(device_->attributes.max_qp_init_rd_atom);
  read_depth_ = depth(reads, most);
  limits_.read_bytes = read_piece_bytes_ * std::min(read_depth_, kMaxPieces);
}

void VerbsLink::set_receiver_not_ready_timer() {
  if (device_->is_iwarp) return;  // it has none
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = kMinimumRnrTimer;
  if (const int result = verbs::functions().ibv_modify_qp(pair_, &attributes, IBV_QP_MIN_RNR_TIMER); result != 0)
    log(LogLevel::info,
        text("link: ", describe(), ": the receiver-not-ready timer stays at 655 ms: ", errno_text(code_of(result))));
}

void VerbsLink::become_ready(Sink& sink) {
  set_receiver_not_ready_timer();
  const std::string network = network_of(pair_, device_->name, own_rail().port, own_rail().address.technology);
  if (!network.empty()) network_ = text(" (", network, ")");
  step_ = Step::up;
  state_ = LinkState::ready;
  quiet_since_ns_ = now_ns();
  sink.ready(*this);
}

void VerbsLink::on_established(const CmEvent& event, Sink& sink) {
  if (step_ != Step::connecting) return;  // an acceptor waits for the hello
  const auto peer = read_introduction(event.private_data());
  if (!peer || !peer_token_ || !is_equal(peer->token, *peer_token_))
    return fail(
        failed(Status::no_permission, "who accepted is not the rank that answered the offer", "another program took its port"));
  peer_ = peer;
  set_read_limit(event.param.conn.initiator_depth);
  if (post_control(MessageKind::hello)) become_ready(sink);  // else it has failed: nothing is under way that it would wait for
}

const char* VerbsLink::name_of_step() const noexcept {
  switch (step_) {
    case Step::offered: return "the offer, which was not answered";
    case Step::resolving_address: return "to resolve the peer's address";
    case Step::resolving_route: return "to resolve the route";
    case Step::connecting: return "the request, which was not answered";
    case Step::expecting: return "the answer to the offer; nobody connected";
    case Step::accepting: return "to accept; the peer did not greet";
    case Step::up: return "complete";
  }
  return "unknown";
}

void VerbsLink::handle(const CmEvent& event, Sink& sink) {
  if (state_ == LinkState::broken || failure_) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: return on_address();
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return on_route();
    case RDMA_CM_EVENT_ESTABLISHED: return on_established(event, sink);
    // The deadline ends the attempts.
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (event.status == -ETIMEDOUT) return resolve_address();
      [[fallthrough]];
    case RDMA_CM_EVENT_ROUTE_ERROR:
      if (event.event == RDMA_CM_EVENT_ROUTE_ERROR && event.status == -ETIMEDOUT) return resolve_route();
      [[fallthrough]];
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return fail(failed(Status::peer_lost, text(rdmacm::functions().rdma_event_str(event.event), ": ", errno_text(event.status)),
                         "check that the peer runs and that its address can be reached from this rail"));
    case RDMA_CM_EVENT_REJECTED: {
      const auto refusal = read_refusal(event.private_data());
      const char* why = "nobody listens there any more, or it is no rank of this job";
      if (refusal == Refusal::unknown_token) why = "it does not expect this connection (any more)";
      if (refusal == Refusal::no_resources) why = "it has no resources for it; its log says which";
      return fail(failed(Status::peer_lost, text("the peer refused: ", why), "see whether that rank runs, and its log"));
    }
    case RDMA_CM_EVENT_DISCONNECTED:
      return fail(
          failed(Status::peer_lost, "the peer closed the connection, or its process ended", "connect anew if the peer still runs"));
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return fail_device("the RDMA device was removed");
    default: return;  // an address moved within a bond, or the time of waiting is over: nothing of ours
  }
}

}  // namespace gigabar::transport::rdma
