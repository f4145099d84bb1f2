// SPDX-License-Identifier: Apache-2.0
// Availability, topology and doctor.
#include "gigabar/machine.h"

#include <chrono>
#include <vector>

#include "c/call.hpp"
#include "c/json.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/topology.hpp"

namespace gigabar::c {
namespace {

Machine machine_at(const char* path) { return path == nullptr ? Machine::here() : take(Machine::open(path)); }

std::string doctor_json(const Examination& examination) {
  return json_of(Members{[&](const auto& put) {
    put("summary", summary_of(examination));
    put("findings", examination.findings);
    put("notes", examination.topology.notes);
  }});
}

std::string availability_json(const Machine& machine) {
  return json_of(Members{[&](const auto& put) {
    put("paths", availability(machine));
    put("drivers", machine.is_live() ? drivers() : std::vector<DriverReport>());
  }});
}

struct Order {
  const char* machine = nullptr;
  ExamineOptions options;
};

Order order_of(const gigabar_doctor_options* given) {
  using Given = gigabar_doctor_options;
  const Fields fields(given, GIGABAR_DOCTOR_DEADLINE_NS * 2 - 1, "options");
  Order order;
  if (const auto* machine = fields.find(GIGABAR_DOCTOR_MACHINE, &Given::machine)) {
    order.machine = &object_at(*machine, "options->machine");
  }
  if (const auto* only = fields.find(GIGABAR_DOCTOR_ONLY, &Given::only)) {
    order.options.only = parts_of(&object_at(*only, "options->only"));
  }
  fields.read(GIGABAR_DOCTOR_WITH_PROBES, &Given::with_probes, order.options.with_probes);
  if (const auto* deadline = fields.find(GIGABAR_DOCTOR_DEADLINE_NS, &Given::deadline_ns)) {
    if (*deadline <= 0) refuse("options->deadline_ns", text("it is ", *deadline), "pass nanoseconds, more than 0");
    order.options.deadline = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(*deadline));
  }
  return order;
}

}  // namespace
}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

gigabar_status gigabar_availability_json(const char* machine, char** text) {
  return guarded(__func__, [&] {
    char*& result = object_at(text, "text");
    result = new_text(availability_json(machine_at(machine)));
  });
}

gigabar_status gigabar_topology_json(const char* machine, char** text) {
  return guarded(__func__, [&] {
    char*& result = object_at(text, "text");
    result = new_text(json_of(take(gigabar::discover_topology(machine_at(machine)))));
  });
}

gigabar_status gigabar_doctor_json(const gigabar_doctor_options* options, char** text) {
  return guarded(__func__, [&] {
    char*& result = object_at(text, "text");
    const Order order = order_of(options);
    result = new_text(doctor_json(take(gigabar::examine(machine_at(order.machine), order.options))));
  });
}
