// SPDX-License-Identifier: Apache-2.0
#include "doctor/device_nodes.hpp"

#include <cerrno>
#include <cstring>

#include "base/errors.hpp"
#include "doctor/gpu_facts.hpp"
#include "platform/device_nodes.hpp"

namespace gigabar::doctor {
namespace {

std::string number_text(std::uint32_t major, std::uint32_t minor) { return text(major, ":", minor); }

std::string kind_text(NodeKind kind) {
  switch (kind) {
    case NodeKind::missing: return "missing";
    case NodeKind::file: return "a regular file";
    case NodeKind::folder: return "a folder";
    case NodeKind::character_device: return "a character device";
    case NodeKind::other: return "no character device";
  }
  return "missing";
}

std::string rights_text(const NodeFacts& facts) {
  if (facts.can_read && facts.can_write) return "readable and writable";
  if (facts.can_read) return "read only";
  return facts.can_write ? "write only" : "permission denied";
}

std::string open_text(const std::optional<int>& error) {
  if (!error) return "";
  return *error == 0 ? ", open() succeeds" : text(", open() fails with ", errno_code(*error).name);
}

// How to have the right node again, where its driver's number is known.
std::string make_command(const std::string& path, const std::optional<NodeDriver>& driver) {
  if (driver && driver->is_told && !driver->majors.empty() && driver->minor) {
    return text("sudo mknod -m 666 ", path, " c ", driver->majors.front(), " ", *driver->minor);
  }
  if (driver && driver->is_told && driver->majors.empty()) {
    return text("load the driver that has the device (its name in /proc/devices or /proc/misc is ", driver->name,
                "), and make the node with the number that is listed there: sudo mknod -m 666 ", path, " c MAJOR MINOR");
  }
  return text("make the node with its driver's number in /proc/devices: sudo mknod -m 666 ", path, " c MAJOR MINOR");
}

std::string pass_on(const std::string& path) { return text("--device ", path, " (NVIDIA's nodes: --gpus all)"); }

void judge_kind(const Patient& patient, NodeKind kind, const std::optional<NodeDriver>& driver, NodeReport& report) {
  const std::string in = container(patient);
  report.state = NodeState::not_a_device;
  report.fault = text("is ", kind_text(kind), kind == NodeKind::other ? "" : ", not a device");
  if (!in.empty()) {
    report.remedy = text("remove the mount of ", report.path,
                         " from the container's options (a bind mount of what the host does not have makes such a thing), load the "
                         "driver on the host, and start the container with ",
                         pass_on(report.path));
    return;
  }
  const std::string remove = kind == NodeKind::folder
                                 ? text("sudo umount ", report.path, " if it is a mount, then sudo rmdir ", report.path)
                                 : text("sudo rm ", report.path);
  report.remedy = text(remove, "; then ", make_command(report.path, driver));
}

void judge_number(const Patient& patient, const NodeFacts& facts, const NodeDriver& driver, NodeReport& report) {
  report.state = NodeState::wrong_number;
  const std::string owner = printable(owner_of_major(patient.files, facts.device_major), 40);
  const std::string wanted = driver.majors.empty() ? text("the kernel lists no device of ", driver.name)
                             : driver.minor
                                 ? text("that of ", driver.name, " is ", number_text(driver.majors.front(), *driver.minor))
                                 : text("the major number of ", driver.name, " is ", driver.majors.front());
  const bool is_own = !driver.majors.empty() && driver.majors.front() == facts.device_major;
  report.fault = text("is stale: it has the number ", number_text(facts.device_major, facts.device_minor), ", but ", wanted,
                      ", so that opening it reaches ",
                      is_own          ? "another device of that driver or none"
                      : owner.empty() ? "no device"
                                      : text("a device of ", owner));
  report.remedy =
      container(patient).empty()
          ? text("sudo rm ", report.path, "; then ", make_command(report.path, driver))
          : text("numbers have changed on the host since the container got its nodes: start it again with ", pass_on(report.path));
}

void judge_refusal(const Patient& patient, int error, NodeReport& report) {
  report.state = NodeState::refused;
  const std::string code = errno_code(error).name;
  if (error == EPERM || error == EACCES) {
    report.fault =
        text("cannot be opened (", code, ") though its permissions allow it: a device cgroup or a security module refuses it");
    report.remedy = container(patient).empty()
                        ? text("allow it where this process was started: DeviceAllow=", report.path,
                               " rw in a systemd unit, --device for a container, the batch system's list of devices for a job")
                        : text("start the container with ", pass_on(report.path), "; a bind mount alone gives no right to open it");
    return;
  }
  report.fault = text("cannot be opened: ", std::strerror(error), " (", code, ")");
  report.remedy =
      error == ENXIO || error == ENODEV
          ? text("no driver stands behind it: load the driver's module; 'sudo dmesg | tail' says why it gave the device up")
          : text("'sudo dmesg | tail' says why its driver refused");
}

}  // namespace

Availability NodeReport::availability(std::string when_missing, std::string how_to_have_it, std::string how_to_be_allowed) const {
  switch (state) {
    case NodeState::works: return {AvailabilityCode::ok, {}, {}, {}};
    case NodeState::missing: return {AvailabilityCode::no_device, std::move(when_missing), std::move(how_to_have_it), {}};
    case NodeState::no_permission:
      return {AvailabilityCode::no_permission, text("this user may not read and write ", path), std::move(how_to_be_allowed), {}};
    case NodeState::refused: return {AvailabilityCode::no_permission, statement(), remedy, {}};
    case NodeState::not_a_device:
    case NodeState::wrong_number: break;
  }
  return {AvailabilityCode::no_device, statement(), remedy, {}};
}

NodeReport look_at_node(const Patient& patient, const std::string& path) {
  NodeReport report;
  report.path = path;
  const NodeFacts facts = patient.files.facts(path);
  const auto driver = driver_of_node(patient.files, path);
  if (facts.kind == NodeKind::missing) {
    report.value = "missing";
    const std::string in = container(patient);
    report.fault = text("is missing", in.empty() ? "" : " in ", in);
    report.remedy = in.empty() ? make_command(path, driver) : text("start the container with ", pass_on(path));
    return report;
  }
  report.value = kind_text(facts.kind);
  if (facts.kind != NodeKind::character_device) {
    judge_kind(patient, facts.kind, driver, report);
    return report;
  }
  const auto error = patient.files.open_errno(path);
  report.value =
      text("character device ", number_text(facts.device_major, facts.device_minor), ", ", rights_text(facts), open_text(error));
  if (driver && !is_number_of(*driver, facts)) {
    judge_number(patient, facts, *driver, report);
  } else if (!facts.can_read || !facts.can_write) {
    report.state = NodeState::no_permission;
    report.fault = "may not be read and written by this user";
    report.remedy = text("sudo chmod a+rw ", path, " (until the next boot)");
  } else if (error && *error != 0) {
    judge_refusal(patient, *error, report);
  } else {
    report.state = NodeState::works;
  }
  return report;
}

}  // namespace gigabar::doctor
