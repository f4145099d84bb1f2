// SPDX-License-Identifier: Apache-2.0
// Ranks: the job, its peers, and the segments of this rank.
#include "fabric.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric_object.hpp"
#include "mapped_segment.hpp"

namespace gigabar::python {

namespace {

constexpr const char* kOpen = "Fabric";

TransportKind transport_named(const std::string& name) {
  for (const TransportKind one : {TransportKind::local, TransportKind::verbs, TransportKind::ucx, TransportKind::tcp}) {
    if (name_of(one) == name) return one;
  }
  refuse({kOpen, "transports", "one is '" + name + "'", "pass local, verbs, ucx and tcp"});
}

RailPolicy rail_policy_named(const std::string& name) {
  for (const RailPolicy one : {RailPolicy::first, RailPolicy::round_robin, RailPolicy::fixed}) {
    if (name_of(one) == name) return one;
  }
  refuse({kOpen, "rail_policy", "it is '" + name + "'", "pass first, round_robin or fixed"});
}

using Text = std::optional<std::string>;
using Texts = std::vector<std::string>;

// The job stands first, then the network, then how data moves.
void open(FabricObject* self, std::optional<Rank> rank, std::optional<Rank> rank_count, Text master_address,
          std::optional<std::uint16_t> master_port, Text job_key, const Texts& transports, std::optional<int> device,
          nb::handle connect_timeout, std::optional<bool> ucx_trust_network, Texts rails, std::optional<unsigned> rail_count,
          const Text& rail_policy, Text cpus, nb::handle policy, nb::handle limits, std::optional<int> gid_index,
          std::optional<int> traffic_class, std::optional<int> service_level, std::optional<bool> progress_thread) {
  FabricOptions options;
  options.rank = rank;
  options.rank_count = rank_count;
  options.master_address = std::move(master_address);
  options.master_port = master_port;
  options.job_key = std::move(job_key);
  for (const std::string& name : transports) options.transports.push_back(transport_named(name));
  options.device = device;
  options.connect_timeout = timeout_of(connect_timeout, kOpen);
  options.ucx_trust_network = ucx_trust_network;
  options.rails = std::move(rails);
  options.rail_count = rail_count;
  if (rail_policy) options.rail_policy = rail_policy_named(*rail_policy);
  options.cpus = std::move(cpus);
  options.policy = policy_of(policy, kOpen);
  options.limits = limits_of(limits, kOpen);
  options.gid_index = gid_index;
  options.traffic_class = traffic_class;
  options.service_level = service_level;
  options.progress_thread = progress_thread;
  new (self) FabricObject(options);
}

void connect(const FabricObject& self, nb::handle rank, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.connect";
  const Rank to = rank_of(rank, kOperation);
  wait_joined(self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.connect(to, slice); });
}

void forget(const FabricObject& self, nb::handle rank) {
  constexpr const char* kOperation = "Fabric.forget";
  take(self.joined(kOperation)->fabric.forget(rank_of(rank, kOperation)));
}

void register_segment(const FabricObject& self, nb::handle id, nb::handle memory) {
  constexpr const char* kOperation = "Fabric.register";
  const SegmentId segment = segment_of(id, kOperation);
  Bytes bytes(memory, Access::write, {kOperation, "memory"});
  const auto held = self.joined(kOperation);
  take(held->fabric.register_segment(segment, bytes.address(), bytes.bytes()));
  held->segments.erase(segment);
  held->segments.emplace(segment, std::move(bytes));
}

// At their time-outs, this and quiesce cut the connections of peers that have not answered.
void deregister(const FabricObject& self, nb::handle id, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.deregister";
  const SegmentId segment = segment_of(id, kOperation);
  const auto held = self.joined(kOperation);
  // Out of the map meanwhile: another thread may register a segment of this number as soon as this one is gone.
  auto memory = held->segments.extract(segment);
  try {
    wait_joined_once(self, timeout, kOperation,
                     [&](Fabric& fabric, Timeout time) { return fabric.deregister_segment(segment, time); });
  } catch (...) {
    held->segments.insert(std::move(memory));
    throw;
  }
}

void quiesce(const FabricObject& self, nb::handle id, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.quiesce";
  const SegmentId segment = segment_of(id, kOperation);
  wait_joined_once(self, timeout, kOperation, [&](Fabric& fabric, Timeout time) { return fabric.quiesce(segment, time); });
}

void enable(const FabricObject& self, nb::handle id) {
  constexpr const char* kOperation = "Fabric.enable";
  take(self.joined(kOperation)->fabric.enable(segment_of(id, kOperation)));
}

nb::object remote_segment(const FabricObject& self, nb::handle rank, nb::handle id, nb::handle timeout) {
  constexpr const char* kOperation = "Fabric.remote_segment";
  const Rank peer = rank_of(rank, kOperation);
  const SegmentId segment = segment_of(id, kOperation);
  const RemoteSegment found = wait_joined(
      self, timeout, kOperation, [&](Fabric& fabric, Timeout slice) { return fabric.remote_segment(peer, segment, slice); });
  return nb::module_::import_("gigabar._types").attr("RemoteSegment")(found.bytes, name_of(found.kind));
}

void add_job(nb::class_<FabricObject>& type) {
  type.def("__init__", &open, nb::kw_only(), nb::arg("rank") = nb::none(), nb::arg("rank_count") = nb::none(),
           nb::arg("master_address") = nb::none(), nb::arg("master_port") = nb::none(), nb::arg("job_key") = nb::none(),
           nb::arg("transports") = Texts(), nb::arg("device") = nb::none(), nb::arg("connect_timeout") = 30.0,
           nb::arg("ucx_trust_network") = nb::none(), nb::arg("rails") = Texts(), nb::arg("rail_count") = nb::none(),
           nb::arg("rail_policy") = nb::none(), nb::arg("cpus") = nb::none(), nb::arg("policy").none() = nb::none(),
           nb::arg("limits").none() = nb::none(), nb::arg("gid_index") = nb::none(), nb::arg("traffic_class") = nb::none(),
           nb::arg("service_level") = nb::none(), nb::arg("progress_thread") = nb::none(),
           nb::sig(
               "def __init__(self, *, rank: int | None = None, rank_count: int | None = None, master_address: str | None = None, "
               "master_port: int | None = None, job_key: str | None = None, transports: Sequence[str] = (), "
               "device: int | None = None, connect_timeout: float = 30.0, ucx_trust_network: bool | None = None, "
               "rails: Sequence[str] = (), rail_count: int | None = None, rail_policy: str | None = None, "
               "cpus: str | None = None, policy: PathPolicy | None = None, limits: FabricLimits | None = None, "
               "gid_index: int | None = None, traffic_class: int | None = None, service_level: int | None = None, "
               "progress_thread: bool | None = None) -> None"),
           "Join the job. What is None is taken from the launcher: gigabar run, PMIx, srun, torchrun's variables; else a job of "
           "one\n"
           "rank. What else is None or empty has the value of its variable of the environment, else its default "
           "(docs/fabric.md).\n\n"
           "job_key: at least 16 bytes, the same at every rank. transports: local, verbs, ucx, tcp, best first; empty: all.\n"
           "ucx_trust_network: everybody who reaches UCX's ports is trusted, without which UCX is not used.\n"
           "rails: NIC ports (mlx5_0, mlx5_1/1). rail_count: for each peer, at most. rail_policy: first, round_robin or fixed.\n"
           "cpus: of the fabric's threads: near, any, or a list (0-7,16). policy, limits: which path data takes.\n"
           "progress_thread: False: peers' operations wait for calls of this rank.\n"
           "Errors: invalid_argument, unavailable (no transport), timed_out (rank 0 never appeared), no_permission (another key).")
      .def(
          "__enter__", [](nb::handle_t<FabricObject> self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Fabric"))
      .def(
          "__exit__", [](FabricObject& self, nb::handle type_of_error, nb::handle, nb::handle) { self.exit(type_of_error); },
          nb::arg().none(), nb::arg().none(), nb::arg().none(),
          nb::sig("def __exit__(self, kind: object, error: object, trace: object, /) -> None"))
      .def("close", &FabricObject::close, nb::arg("timeout").none() = 30.0,
           nb::sig("def close(self, timeout: float | None = 30.0) -> None"), "Complete the posted operations and leave the job.")
      .def("abandon", &FabricObject::abandon, nb::sig("def abandon(self) -> None"),
           "Leave the job at once: peers that need this rank see it as lost. With mapped segments: when the last one is closed.")
      .def_prop_ro("closed", &FabricObject::is_closed, nb::sig("def closed(self) -> bool"), "Whether this rank has left the job.")
      .def("connect", &connect, nb::arg("rank"), nb::arg("timeout").none() = 30.0,
           nb::sig("def connect(self, rank: int, timeout: float | None = 30.0) -> None"),
           "Connect now instead of at the first operation.")
      .def("forget", &forget, nb::arg("rank"), nb::sig("def forget(self, rank: int) -> None"),
           "Forget a lost peer: the next operation connects again. Errors: busy (the connection is intact).");
}

void add_segments(nb::class_<FabricObject>& type) {
  type.def("register", &register_segment, nb::arg("segment"), nb::arg("memory"),
           nb::sig("def register(self, segment: int, memory: AnyMemory) -> None"),
           "Register contiguous memory of the host or a GPU as a segment (0 to 1023), which peers then reach. It stays alive until "
           "deregister.\n\n"
           "Errors: invalid_argument (id in use), out_of_memory, device_error.")
      .def("deregister", &deregister, nb::arg("segment"), nb::arg("timeout").none() = 30.0,
           nb::sig("def deregister(self, segment: int, timeout: float | None = 30.0) -> None"),
           "Take the segment from the peers: afterwards none of them can access it. Waits as quiesce.")
      .def("quiesce", &quiesce, nb::arg("segment"), nb::arg("timeout").none() = 30.0,
           nb::sig("def quiesce(self, segment: int, timeout: float | None = 30.0) -> None"),
           "Keep the peers from the segment until enable: what they wrote before is in place. It stays registered.\n\n"
           "A peer that has not answered at the end of the time is cut off; over local it is not, and this times out. Ctrl-C does\n"
           "not end this wait.")
      .def("enable", &enable, nb::arg("segment"), nb::sig("def enable(self, segment: int) -> None"),
           "Let the peers access the segment again.")
      .def("remote_segment", &remote_segment, nb::arg("rank"), nb::arg("segment"), nb::arg("timeout").none() = 30.0,
           nb::sig("def remote_segment(self, rank: int, segment: int, timeout: float | None = 30.0) -> RemoteSegment"),
           "Ask a rank for the size and kind of its segment. Errors: out_of_range (it has no such segment).");
}

}  // namespace

void add_fabric(nb::module_& module) {
  nb::class_<FabricObject> type(
      module, "Fabric",
      "This process as a rank of a job. A context manager: it leaves the job in order, and at once after an exception.\n\n"
      "Offsets and sizes are bytes, timeouts seconds; None waits until the operation ends or its peer is lost. A wait lets other\n"
      "threads run, and Ctrl-C ends it. Errors of every call: invalid_argument and out_of_range name the argument; unavailable\n"
      "(closed, no path); peer_lost; foreign_process. TimedOut: nothing is lost and, but for send, and a recv with a note, the\n"
      "same call can be made again.\n"
      "Threads: any; calls of one queue are served one after the other; collectives of one group are for one thread at a\n"
      "time (busy).");
  add_job(type);
  add_segments(type);
  add_mapped_segments(module, type);
  add_state(type);
  add_posts(type);
  add_waits(type);
  add_messages(type);
}

}  // namespace gigabar::python
