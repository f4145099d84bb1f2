// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/transport.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/uncancelled.hpp"
#include "base/undo.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr unsigned kMessageId = 0x67;
constexpr std::int64_t kEndDeadlineNs = 2'000'000'000;  // for UCX to give back what was cancelled
constexpr unsigned kMaxProgressCalls = 32;              // of UCX's own in one progress(), so that other work gets its turn

// One segment of UCX's TCP transport carries a piece or a message, for larger ones are cut and put together again in a buffer of
// UCX's. It receives segments of 64 KiB and copies into such of 8 KiB to send, by default: with those a write of 32 KiB took 20 us
// over loopback, with 64 KiB 12; 1 MiB went at 2.2 and 7.4 GB/s, and no faster with 128 KiB.
constexpr std::uint64_t kSegmentBytes = 64U << 10;
constexpr std::uint32_t kPieceBytes = 60U << 10;  // whole pages, and the headers fit too
constexpr std::uint64_t kSegmentRestBytes = 512;  // of headers: ours, UCP's and TCP's

const ucp::Library& lib() { return ucp::library(); }

Error failed(const char* call, const std::string& object, ucs_status_t code, std::string remedy = {}) {
  Status status = Status::device_error;
  if (code == UCS_ERR_NO_MEMORY) status = Status::out_of_memory;
  if (code == UCS_ERR_NO_DEVICE || code == UCS_ERR_UNREACHABLE) status = Status::unavailable;
  return make_error(status, "use UCX", object, text(call, " failed: ", text_of(code)), std::move(remedy), native_of(code));
}

// UCX's configuration: its own variables of the environment, then what is wanted here where they say nothing.
using Configuration = std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)>;

ucs_status_t set(const Configuration& configuration, const char* name, const char* value) {
  return lib().ucp_config_modify(configuration.get(), name, value);
}
// A name that this UCX does not know changes nothing.
void set_default(const Configuration& configuration, const char* name, const char* value) {
  if (!environment(text("UCX_", name).c_str())) static_cast<void>(set(configuration, name, value));
}
// UCX 1.13 knows what is a transport's without its name in front, later ones with it.
void set_tcp_default(const Configuration& configuration, const char* name, const char* value) {
  const std::string full = text("TCP_", name);
  if (environment(text("UCX_", full).c_str())) return;
  for (const char* known : {full.c_str(), name}) static_cast<void>(set(configuration, known, value));
}

// What fits into a fragment, whatever the user made of it.
std::uint32_t choose_piece_bytes() {
  std::uint64_t most = kPieceBytes;
  for (const char* name : {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}) {
    const auto segment = environment(name);
    if (!segment) continue;
    const std::uint64_t bytes = parse_bytes(*segment).value_or(0);
    most = std::min(most, std::max(bytes, kMinPieceBytes + kSegmentRestBytes) - kSegmentRestBytes);
  }
  return static_cast<std::uint32_t>(most);
}

// Shared memory is the local transport's, and UCX notices the death of a peer there only after its keep-alive interval. Its GPU
// transports would open the GPUs' drivers for memory that is never given to it.
constexpr const char* kTransports = "^shm,self,cuda,rocm,ze";

Result<Configuration> configure(const std::string& devices) {
  ucp_config_t* read = nullptr;
  if (const ucs_status_t status = lib().ucp_config_read(nullptr, nullptr, &read); status != UCS_OK) {
    return failed("ucp_config_read", "its configuration", status, "look at the variables UCX_*");
  }
  Configuration configuration(read, lib().ucp_config_release);
  if (const auto transports = environment("GIGABAR_UCX_TLS")) {
    const ucs_status_t status = set(configuration, "TLS", transports->c_str());
    if (status != UCS_OK) return failed("ucp_config_modify", text("GIGABAR_UCX_TLS=", *transports), status);
  } else {
    set_default(configuration, "TLS", kTransports);
  }
  // UCX listens at an address of every interface that it uses, and obeys whoever connects: its TCP protocol has a write to any
  // address of this process.
  if (const ucs_status_t status = set(configuration, "NET_DEVICES", devices.c_str()); status != UCS_OK) {
    return failed("ucp_config_modify", text("NET_DEVICES=", devices), status);
  }
  // UCX refuses to send larger ones than it receives.
  if (parse_bytes(environment("UCX_TCP_RX_SEG_SIZE").value_or("")).value_or(kSegmentBytes) >= kSegmentBytes) {
    set_tcp_default(configuration, "TX_SEG_SIZE", std::to_string(kSegmentBytes).c_str());
  }
  // UCX 1.13.1 handles a write event of a connection that it has just freed in the same round, when both ends destroy it while data
  // waits for the socket (uct_tcp_iface_handle_events after a FIN). Zero-copy sends make that frequent; without them it is rare.
  set_default(configuration, "ZCOPY_THRESH", "inf");
  // One event a round. UCX 1.13.1 takes up to 16 at once and ends the process (an assertion in uct_tcp_iface_handle_events) when
  // one of them belongs to a connection that was found broken since: by a send from the callback of an event before it.
  set_tcp_default(configuration, "MAX_POLL", "1");
  set_tcp_default(configuration, "CONN_NB", "y");  // connect() would block for minutes when the peer's host is gone
  return configuration;
}

// "#   lane[0]:  1:tcp/lo.0 md[1] -> ...": the first lane's "tcp/lo"; "ucx" where there is none.
std::string first_lane(const std::string& information) {
  std::array<char, 128> found{};
  const std::size_t lane = std::min(information.find("lane[0]:"), information.size());
  if (std::sscanf(information.c_str() + lane, "lane[0]: %*[^:]:%127[^ \n]", found.data()) != 1) return "ucx";
  std::string_view name(found.data());
  const std::size_t path = name.rfind('.');
  if (path != std::string_view::npos && name.find_first_not_of("0123456789", path + 1) == std::string_view::npos) {
    name = name.substr(0, path);
  }
  return name.find('/') != std::string_view::npos && name.size() <= 64 ? std::string(name) : "ucx";
}

std::string library_version() { return text(lib().major, '.', lib().minor, '.', lib().patch); }

}  // namespace

Result<std::unique_ptr<UcxTransport>> UcxTransport::open(const TransportOptions& options) {
  if (!ucp::availability().is_ok()) return make_error("open UCX", "libucp", ucp::availability());
  std::unique_ptr<UcxTransport> transport(new UcxTransport);
  transport->connect_deadline_ns_ = options.connect_deadline_ns;
  Result<void> opened = transport->open_context(options.ucx_devices);
  if (opened) opened = transport->open_worker();
  if (!opened) return std::move(opened).error();
  return transport;
}

std::string UcxTransport::address() const { return address_text(library_version()); }

Availability UcxTransport::can_reach(const Peer& peer) const {
  const auto version = library_version_of_address(peer.address);
  if (!version) {
    return {AvailabilityCode::not_supported, "the peer has no UCX transport of this version",
            "install UCX and the same version of Gigabar at every rank"};
  }
  return {AvailabilityCode::ok, text("UCX ", library_version(), " here, ", *version, " there"), {}};
}

Result<std::unique_ptr<Link>> UcxTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  if (rail >= rails().size()) {
    return make_error(Status::invalid_argument, "offer a link", text("rail ", rail),
                      "UCX has one rail, and chooses networks itself");
  }
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(*this, peer, *number);
  offer = {encode(InvitationKind::offer, link->invitation()), {}};
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<Link>> UcxTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  if (!offer.descriptors.empty()) {
    return make_error(Status::bad_file, "accept a link", text("rank ", peer.rank), "the offer came with descriptors");
  }
  const auto invitation = decode_invitation(InvitationKind::offer, offer.bytes);
  if (!invitation) return invitation.error();
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(*this, peer, *number);
  if (Result<void> connected = link->connect(*invitation); !connected) return std::move(connected).error();
  answer = {encode(InvitationKind::answer, link->invitation()), {}};
  return std::unique_ptr<Link>(std::move(link));
}

void UcxTransport::add_link(std::uint64_t number, UcxLink& link) {
  attended_.reserve(links_.size() + 1);
  links_.emplace(number, &link);
}

void UcxTransport::remove_link(std::uint64_t number, UcxLink& link) {
  links_.erase(number);
  std::erase(attended_, &link);
}

bool UcxTransport::poll(Sink& sink) {
  sink_ = &sink;
  const Undo over([&] { sink_ = nullptr; });
  const bool is_something = progress();
  if (is_starved_) {  // something of a link is lost; of which is not known
    for (auto& [number, link] : links_) link->lost_by(UCS_ERR_NO_MEMORY);
    is_starved_ = false;
  }
  return attend(sink) || is_something;
}

bool UcxTransport::arm() {
  const auto is_connecting = [](const PlacedLink* link) { return link->state() == LinkState::connecting; };
  if (!std::ranges::all_of(attended_, is_connecting)) return false;
  if (leaving_count_ > 0) return false;  // closing goes on in progress() only
  return lib().ucp_worker_arm(worker_) == UCS_OK;
}

// Something that is none of ours, or data of a kind that we do not send, is a stranger's.
void UcxTransport::arrived(const std::optional<WireHeader>& header, std::span<const std::byte> data, bool is_rendezvous) {
  const auto found = header ? links_.find(header->link) : links_.end();
  if (found == links_.end() || is_rendezvous) ++strangers_;
  if (found == links_.end()) return;
  if (is_rendezvous) return found->second->refuse("it sent data by rendezvous");
  found->second->receive(*header, data);
}

// --- Calls of UCX, and its calls of us ------------------------------------------------------------------------------------------

std::string text_of(ucs_status_t status) {
  const char* words = lib().ucs_status_string(status);
  return words != nullptr ? words : "unknown status";
}

NativeCode native_of(ucs_status_t status) { return {NativeDomain::none, status, text("UCX status ", static_cast<int>(status))}; }

Result<void> UcxTransport::open_context(const std::string& devices) {
  auto configuration = configure(devices);
  if (!configuration) return std::move(configuration).error();
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  parameters.name = "gigabar";
  const ucs_status_t status = lib().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, configuration->get(), &context_);
  if (status == UCS_OK) return {};
  context_ = nullptr;
  return failed("ucp_init", ucp::availability().reason, status,
                "look at UCX_TLS, GIGABAR_UCX_TLS, UCX_NET_DEVICES and 'ucx_info -d'");
}

Result<void> UcxTransport::open_worker() {
  const std::string object = ucp::availability().reason;
  ucs_status_t status = UCS_OK;
  const auto has_failed = [&](ucs_status_t result) { return (status = result) != UCS_OK; };
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (has_failed(lib().ucp_worker_create(context_, &parameters, &worker_))) {
    worker_ = nullptr;
    return failed("ucp_worker_create", object, status);
  }
  if (has_failed(lib().ucp_worker_get_efd(worker_, &wake_descriptor_))) return failed("ucp_worker_get_efd", object, status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxTransport::on_arrival;
  handler.arg = this;
  if (has_failed(lib().ucp_worker_set_am_recv_handler(worker_, &handler)))
    return failed("ucp_worker_set_am_recv_handler", object, status);
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (has_failed(lib().ucp_worker_get_address(worker_, &address, &bytes))) return failed("ucp_worker_get_address", object, status);
  worker_address_.assign(reinterpret_cast<const char*>(address), bytes);
  lib().ucp_worker_release_address(worker_, address);
  piece_bytes_ = choose_piece_bytes();
  return {};
}

UcxTransport::~UcxTransport() {
  if (!is_of_this_process()) return;
  if (worker_ != nullptr) {
    for (const auto& endpoint : endpoints_) close(*endpoint);
    const Deadline deadline = Deadline::after_ns(kEndDeadlineNs);
    while (!endpoints_.empty() && !deadline.has_passed()) {
      lib().ucp_worker_progress(worker_);
      tidy();
    }
    if (!endpoints_.empty()) {
      quietly([&] { log(LogLevel::warning, text("ucx: ", counted(endpoints_.size(), "connection"), " did not end in 2 s")); });
    }
    lib().ucp_worker_destroy(worker_);
  }
  if (context_ != nullptr) lib().ucp_cleanup(context_);
}

Result<Endpoint*> UcxTransport::connect(const std::string& address, UcxLink* link, const std::string& peer) {
  // UCX takes no length: what a malformed address makes it read beyond the end is ours and zero.
  std::string padded = address;
  padded.resize(2 * kMaxParcelBytes);
  Endpoint& endpoint = *endpoints_.emplace_back(std::make_unique<Endpoint>());
  endpoint.transport = this;
  endpoint.link = link;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &UcxTransport::on_lost;
  parameters.err_handler.arg = &endpoint;
  const ucs_status_t status = lib().ucp_ep_create(worker_, &parameters, &endpoint.handle);
  if (status == UCS_OK) return &endpoint;
  endpoints_.pop_back();
  return failed("ucp_ep_create", peer, status, "look at UCX_TLS and UCX_NET_DEVICES at both ranks");
}

std::string UcxTransport::rail_of(const Endpoint& endpoint) const {
  char* information = nullptr;
  std::size_t bytes = 0;
  const bool can_tell = lib().ucp_ep_print_info != nullptr && endpoint.handle != nullptr;
  std::FILE* const stream = can_tell ? ::open_memstream(&information, &bytes) : nullptr;
  if (stream == nullptr) return "ucx";
  lib().ucp_ep_print_info(endpoint.handle, stream);
  std::fclose(stream);
  std::string rail = first_lane({information, bytes});
  std::free(information);  // NOLINT(cppcoreguidelines-no-malloc): as open_memstream asks
  return rail;
}

void UcxTransport::close(Endpoint& endpoint) {
  if (endpoint.handle == nullptr) return;
  if (endpoint.close_at_ns == 0) ++leaving_count_;
  endpoint.close_at_ns = 1;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = lib().ucp_ep_close_nbx(std::exchange(endpoint.handle, nullptr), &parameters);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) endpoint.closing = request;
}

void UcxTransport::leave(Endpoint& endpoint, std::int64_t linger_ns) {
  endpoint.link = nullptr;
  if (endpoint.handle == nullptr) return;
  if (endpoint.close_at_ns == 0) ++leaving_count_;
  endpoint.close_at_ns = now_ns() + linger_ns;
}

void UcxTransport::send(Endpoint& endpoint, std::unique_ptr<Operation> operation) {
  const Uncancelled uncancelled;
  operation->endpoint = &endpoint;
  ++endpoint.under_way;
  if (endpoint.handle == nullptr || endpoint.is_lost) return finished(std::move(operation), UCS_ERR_CANCELED);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.cb.send = &UcxTransport::on_sent;
  parameters.user_data = operation.get();
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  const std::span<const std::byte> data = operation->data;
  void* const request = lib().ucp_am_send_nbx(endpoint.handle, kMessageId, &operation->header, sizeof operation->header,
                                              data.empty() ? nullptr : data.data(), data.size(), &parameters);
  if (request == nullptr) return finished(std::move(operation), UCS_OK);
  if (UCS_PTR_IS_ERR(request)) return finished(std::move(operation), UCS_PTR_STATUS(request));
  operation.release();  // NOLINT(bugprone-unused-return-value): on_sent() takes it
}

void UcxTransport::finished(std::unique_ptr<Operation> operation, ucs_status_t status) {
  Endpoint& endpoint = *operation->endpoint;
  --endpoint.under_way;
  if (endpoint.link != nullptr) endpoint.link->sent(*operation, status);
}

bool UcxTransport::progress() {
  bool is_something = false;
  for (unsigned i = 0; i < kMaxProgressCalls && lib().ucp_worker_progress(worker_) != 0; ++i) is_something = true;
  if (leaving_count_ > 0) is_something |= tidy();
  return is_something;
}

// Closes endpoints whose time is over and drops those that are closed.
bool UcxTransport::tidy() {
  const std::int64_t now = now_ns();
  const auto is_over = [&](const std::unique_ptr<Endpoint>& item) {
    Endpoint& endpoint = *item;
    if (endpoint.close_at_ns == 0) return false;
    if (endpoint.handle != nullptr && (endpoint.is_lost || now >= endpoint.close_at_ns)) close(endpoint);
    if (endpoint.closing != nullptr && lib().ucp_request_check_status(endpoint.closing) != UCS_INPROGRESS) {
      lib().ucp_request_free(std::exchange(endpoint.closing, nullptr));
    }
    return endpoint.link == nullptr && endpoint.handle == nullptr && endpoint.closing == nullptr && endpoint.under_way == 0;
  };
  const std::size_t over = std::erase_if(endpoints_, is_over);
  leaving_count_ -= over;
  return over > 0;
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* operation) noexcept {
  lib().ucp_request_free(request);
  std::unique_ptr<Operation> sent(static_cast<Operation*>(operation));
  UcxTransport& transport = *sent->endpoint->transport;
  transport.guarded([&] { transport.finished(std::move(sent), status); });
}

void UcxTransport::on_lost(void* endpoint, ucp_ep_h, ucs_status_t status) noexcept {
  auto& lost = *static_cast<Endpoint*>(endpoint);
  lost.is_lost = true;
  if (lost.link != nullptr) lost.transport->guarded([&] { lost.link->lost_by(status); });
}

ucs_status_t UcxTransport::on_arrival(void* transport, const void* header, std::size_t header_bytes, void* data,
                                      std::size_t data_bytes, const ucp_am_recv_param_t* parameters) noexcept {
  auto& arrived_at = *static_cast<UcxTransport*>(transport);
  const bool is_rendezvous = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;  // `data` is no data then
  const std::span come(static_cast<const std::byte*>(data), data_bytes);
  arrived_at.guarded([&] { arrived_at.arrived(parse_header(header, header_bytes, data_bytes), come, is_rendezvous); });
  // UCX takes the data back; a rendezvous that nobody started ends with UCS_OK at its sender.
  return UCS_OK;
}

}  // namespace gigabar::transport::ucx
