// SPDX-License-Identifier: Apache-2.0
// Availability, topology and doctor.
#include "gigabar/machine.h"

#include <chrono>
#include <set>
#include <vector>

#include "c/call.hpp"
#include "c/json.hpp"
#include "c/topology_json.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/topology.hpp"

namespace gigabar::c {
namespace {

constexpr const char* kDoctor = "gigabar_doctor_json";

Machine machine_at(const char* path) { return path == nullptr ? Machine::here() : take(Machine::open(path)); }

std::string availability_json(const Machine& machine) {
  JsonText json;
  json.object([&] {
    json.objects("paths", availability(machine), [&](const PathReport& path) {
      json.member("path", path.path);
      json.member("description", path.description);
      json.members(path.availability);
    });
    const auto all = machine.is_live() ? drivers() : std::vector<DriverReport>();
    json.objects("drivers", all, [&](const DriverReport& driver) {
      json.member("name", driver.name);
      json.members(driver.availability);
    });
  });
  return json.take();
}

void write_finding(JsonText& json, const Finding& finding) {
  const CheckInfo* const check = find_check(finding.check);
  const auto about = [&](std::string_view CheckInfo::* member) {
    return check == nullptr ? std::nullopt : std::optional(check->*member);
  };
  json.member("check", finding.check);
  json.member("title", about(&CheckInfo::title));
  json.member("subject", finding.subject);
  json.member("verdict", name_of(finding.verdict));
  json.member("statement", finding.statement);
  json.objects("readings", finding.readings, [&](const Reading& reading) {
    json.member("source", reading.source);
    json.member("value", reading.value);
  });
  json.member("why", about(&CheckInfo::why));
  json.member("remedy", finding.remedy);
  json.member("needs_reboot", finding.needs_reboot);
}

std::string doctor_json(const Examination& examination) {
  std::set<std::string_view> checks;
  for (const Finding& finding : examination.findings) checks.insert(finding.check);
  JsonText json;
  json.object([&] {
    json.object("summary", [&] {
      json.member("checks", checks.size());
      json.member("findings", examination.findings.size());
      for (const Verdict verdict : {Verdict::fail, Verdict::warn, Verdict::unknown, Verdict::pass, Verdict::skip}) {
        json.member(name_of(verdict), examination.count(verdict));
      }
    });
    json.objects("findings", examination.findings, [&](const Finding& finding) { write_finding(json, finding); });
    json.list("notes", examination.topology.notes);
  });
  return json.take();
}

struct Order {
  const char* machine = nullptr;
  ExamineOptions options;
};

Order order_of(const gigabar_doctor_options* given) {
  using Given = gigabar_doctor_options;
  const Fields fields(given, GIGABAR_DOCTOR_DEADLINE_NS * 2 - 1, kDoctor, "options");
  Order order;
  if (const auto* machine = fields.find(GIGABAR_DOCTOR_MACHINE, &Given::machine)) {
    order.machine = &object_at(*machine, kDoctor, "options->machine");
  }
  if (const auto* only = fields.find(GIGABAR_DOCTOR_ONLY, &Given::only)) {
    order.options.only = parts_of(&object_at(*only, kDoctor, "options->only"));
  }
  if (const auto* probes = fields.find(GIGABAR_DOCTOR_WITH_PROBES, &Given::with_probes)) order.options.with_probes = *probes != 0;
  if (const auto* deadline = fields.find(GIGABAR_DOCTOR_DEADLINE_NS, &Given::deadline_ns)) {
    if (*deadline <= 0) refuse(kDoctor, "options->deadline_ns", text("it is ", *deadline), "pass nanoseconds, more than 0");
    order.options.deadline = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(*deadline));
  }
  return order;
}

}  // namespace
}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

gigabar_status gigabar_availability_json(const char* machine, char** text) {
  return guarded("gigabar_availability_json", [&](const char* function) {
    char*& result = object_at(text, function, "text");
    result = new_text(availability_json(machine_at(machine)));
  });
}

gigabar_status gigabar_topology_json(const char* machine, char** text) {
  return guarded("gigabar_topology_json", [&](const char* function) {
    char*& result = object_at(text, function, "text");
    const Topology topology = take(gigabar::discover_topology(machine_at(machine)));
    result = new_text(topology_json(topology));
  });
}

gigabar_status gigabar_doctor_json(const gigabar_doctor_options* options, char** text) {
  return guarded(kDoctor, [&](const char* function) {
    char*& result = object_at(text, function, "text");
    const Order order = order_of(options);
    const Examination examination = take(gigabar::examine(machine_at(order.machine), order.options));
    result = new_text(doctor_json(examination));
  });
}
