// SPDX-License-Identifier: Apache-2.0
// What a rank knows of itself, its peers and its operations.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "fabric_object.hpp"

namespace gigabar::python {

namespace {

nb::object types() { return nb::module_::import_("gigabar._types"); }

nb::object transport_of(const std::optional<TransportKind>& transport) {
  return transport ? nb::cast(name_of(*transport)) : nb::none();
}

nb::object report_of(const FabricObject& self, nb::handle operation) {
  const auto number = count_of(operation, {"Fabric.report", "operation"});
  const OperationReport report = take(self.joined("Fabric.report")->fabric.report(static_cast<Operation>(number)));
  nb::list rails;
  for (const RailShare& rail : report.rails) rails.append(nb::make_tuple(rail.rail, rail.bytes));
  return types().attr("OperationReport")(report.is_done, name_of(report.status), name_of(report.path),
                                         transport_of(report.transport), rails, report.bytes, report.duration_ns, report.reason,
                                         report.notification, report.chunks, report.retries);
}

nb::object explanation_of(const Explanation& explanation) {
  nb::list alternatives;
  for (const Explanation::Alternative& one : explanation.alternatives) alternatives.append(nb::make_tuple(one.name, one.why_not));
  return types().attr("Explanation")(explanation.is_possible, name_of(explanation.path), transport_of(explanation.transport),
                                     explanation.rails, explanation.reason, alternatives, explanation.to_text(),
                                     explanation.chunk_bytes);
}

nb::object explain(const FabricObject& self, nb::handle local, nb::handle remote, nb::handle nbytes, nb::handle timeout,
                   nb::handle options, bool is_read) {
  constexpr const char* kOperation = "Fabric.explain";
  const LocalPlace from = local_of(local, kOperation);
  const RemotePlace to = remote_of(remote, kOperation);
  const auto count = count_of(nbytes, {kOperation, "nbytes"});
  const PostOptions wanted = post_options(nb::int_(0), options, kOperation);
  const auto held = self.joined(kOperation);
  return explanation_of(take(wait_in_slices(timeout_of(timeout, kOperation), [&](Timeout slice) {
    return is_read ? held->fabric.explain_read(from, to, count, slice, wanted)
                   : held->fabric.explain_write(from, to, count, slice, wanted);
  })));
}

nb::list settings_of(const FabricObject& self) {
  const nb::object type = types().attr("Setting");
  nb::list all;
  for (const Setting& one : self.joined("Fabric.settings")->fabric.settings()) all.append(type(one.name, one.value, one.source));
  return all;
}

nb::object statistics_of(const FabricObject& self) {
  const FabricStatistics counts = self.joined("Fabric.statistics")->fabric.statistics();
  return types().attr("Statistics")(counts.operations, counts.messages, counts.staged_operations, counts.refused_strangers);
}

nb::list peers_of(const FabricObject& self) {
  const nb::object type = types().attr("Peer");
  nb::list all;
  for (const PeerState& one : self.joined("Fabric.peers")->fabric.peers()) {
    all.append(type(one.rank, one.is_connected, one.is_broken, one.is_same_host, one.why, transport_of(one.transport), one.rails,
                    one.memory_bytes));
  }
  return all;
}

}  // namespace

void add_state(nb::class_<FabricObject>& type) {
  type.def_prop_ro(
          "rank", [](const FabricObject& self) { return self.joined("Fabric.rank")->fabric.rank(); },
          nb::sig("def rank(self) -> int"), "The number of this rank.")
      .def_prop_ro(
          "rank_count", [](const FabricObject& self) { return self.joined("Fabric.rank_count")->fabric.rank_count(); },
          nb::sig("def rank_count(self) -> int"), "The number of ranks of the job.")
      .def_prop_ro(
          "local_rank", [](const FabricObject& self) { return self.joined("Fabric.local_rank")->fabric.local_rank(); },
          nb::sig("def local_rank(self) -> int"), "The number of this rank among those of this host.")
      .def_prop_ro(
          "device", [](const FabricObject& self) { return self.joined("Fabric.device")->fabric.device(); },
          nb::sig("def device(self) -> int"), "The device of this rank.")
      .def_prop_ro(
          "cpus", [](const FabricObject& self) { return self.joined("Fabric.cpus")->fabric.cpus(); },
          nb::sig("def cpus(self) -> list[int]"), "The CPUs of the fabric's own threads, ascending; empty: they are not bound.")
      .def("settings", &settings_of, nb::sig("def settings(self) -> list[Setting]"),
           "Every setting in effect, with its source. Never the job's key.")
      .def("statistics", &statistics_of, nb::sig("def statistics(self) -> Statistics"), "Counts since this rank joined the job.")
      .def("peers", &peers_of, nb::sig("def peers(self) -> list[Peer]"), "The peers with a present or past connection.")
      .def("report", &report_of, nb::arg("operation"), nb::sig("def report(self, operation: int) -> OperationReport"),
           "The path, duration and result of one of the last 4,096 operations. Errors: out_of_range.")
      .def("explain", &explain, nb::arg("local"), nb::arg("remote"), nb::arg("nbytes"), nb::arg("timeout").none() = 30.0,
           nb::kw_only(), nb::arg("options").none() = nb::none(), nb::arg("read") = false,
           nb::sig("def explain(self, local: LocalPlace, remote: RemotePlace, nbytes: int, timeout: float | None = 30.0, *, "
                   "options: PostOptions | None = None, read: bool = False) -> "
                   "Explanation"),
           "Which path a write (or read) would take, and why not another.");
}

}  // namespace gigabar::python
