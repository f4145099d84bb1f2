// SPDX-License-Identifier: Apache-2.0
// gigabar topology: what the machine is made of and how its parts are joined, as a matrix, a tree, JSON or a drawing; and the
// capture of a machine, to be looked at elsewhere.
#include "gigabar/topology.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/counted.hpp"
#include "commands.hpp"
#include "doctor/output.hpp"
#include "gigabar/machine.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_archive.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"
#include "support/run_program.hpp"
#include "topology/view.hpp"

namespace gigabar::tool {
namespace topology {
namespace {

// Has Graphviz's `dot` draw the machine as SVG, and writes that to the file. Ends the command when there is no such program, when
// it fails or takes longer than `most_seconds`, and when the file cannot be written.
void write_svg(const Topology& topology, const std::string& title, const std::string& path, double most_seconds) {
  const std::string graph = drawing(topology, title);
  const auto [code, status, svg, messages] = run_program("--svg", {"dot", "-Tsvg"}, &graph, most_seconds);
  if (code == ENOENT) {
    fail("--svg: Graphviz's program 'dot', which draws the picture, is not in PATH; install it: apt install graphviz");
  }
  if (code != 0) {
    fail(fmt::format("--svg: cannot start 'dot': {}; it is part of Graphviz: apt install graphviz", std::strerror(code)));
  }
  if (!status) fail(fmt::format("--svg: 'dot' was not done after {:g} s and was ended", most_seconds));
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    const std::string how = WIFEXITED(*status) ? fmt::format("exit status {}", WEXITSTATUS(*status)) : "ended by a signal";
    const std::string first_line = messages.substr(0, std::min<std::size_t>(messages.find('\n'), 400));
    fail(fmt::format("--svg {}: 'dot' failed ({}): {}", plain(path), how, plain(first_line)));
  }
  if (svg.empty()) fail(fmt::format("--svg {}: 'dot' wrote nothing", plain(path)));
  write_file("--svg", path, svg);
}

// --- The command ----------------------------------------------------------------------------------------------------------------

struct Options {
  std::string sysroot;
  std::string capture_path;
  std::string json_path;
  std::string svg_path;
  double most_svg_seconds = 30;
  bool is_tree = false;
  bool has_all_routes = false;

  bool is_capture_only() const {
    return !capture_path.empty() && json_path.empty() && svg_path.empty() && !is_tree && !has_all_routes;
  }
};

void capture(Report& report, const Machine& machine, const std::string& path) {
  const std::string archive = take(machine.archive());
  // Counted before it is written: what no reader takes must not be left behind. Files that nobody can read are not denied ones: the
  // kernel refuses what does not apply, the speed of a link without one, say.
  const auto [file_count, link_count, denied_count] = take(read_archive(archive)).counts;
  write_file("--capture", path, archive);
  const std::size_t gpu_count = machine.answers().gpus.size();
  report.print("captured: {} in {}\n", counted(archive.size(), "byte"), plain(path));
  report.print("  {} of /sys, /proc, /dev, /etc and /boot, {}, and what the drivers say of {}\n", counted(file_count, "file"),
               counted(link_count, "link"), counted(gpu_count, "GPU"));
  if (denied_count > 0) {
    report.print("  {} could not be read by this user; checks that need them will be UNKNOWN (capture as root to have them)\n",
                 counted(denied_count, "file"));
  }
  report.print("  look at it anywhere with 'gigabar topology --sysroot FILE' and 'gigabar doctor --sysroot FILE'\n");
  report.add_result({{"what", "capture"},
                     {"path", plain(path)},
                     {"bytes", archive.size()},
                     {"files", file_count},
                     {"links", link_count},
                     {"unreadable", denied_count},
                     {"gpus", gpu_count}});
}

void show(Report& report, const Machine& machine, const Options& options) {
  Result<Topology> found = discover_topology(machine);
  if (!found) fail(plain(found.error().message()));
  const Topology& machine_topology = found.value();
  if (options.is_tree) {
    print_tree(report, machine_topology);
  } else {
    print_matrix(report, machine_topology, options.has_all_routes);
  }
  for (const std::string& note : machine_topology.notes) report.note(plain(note));
  report.add_result(doctor::to_json(machine_topology));
  if (options.svg_path.empty()) return;
  const std::string title = machine.is_live() ? "this machine" : "captured machine: " + plain(machine.origin());
  report.show_progress("drawing {}", plain(options.svg_path));
  write_svg(machine_topology, title, options.svg_path, options.most_svg_seconds);
  report.print("drawn: {}\n", plain(options.svg_path));
}

void run_topology(const Options& options, const Invocation& invocation) {
  const Machine machine = open_machine(options.sysroot);
  Report report("topology", invocation, options.json_path);
  tell_origin(report, machine);
  if (!options.svg_path.empty()) require_writable("--svg", options.svg_path);
  if (!options.capture_path.empty()) require_writable("--capture", options.capture_path);
  report.show_progress("reading the machine");
  if (!options.capture_path.empty()) capture(report, machine, options.capture_path);
  if (!options.is_capture_only()) show(report, machine, options);
  report.write();
}

}  // namespace
}  // namespace topology

void add_topology(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<topology::Options>(
      program, invocation, "topology",
      "GPUs, NICs, PCI tree and NUMA nodes: how any two are joined, how fast, and where the bottleneck is", topology::run_topology);
  Option sysroot = add_sysroot_option(command, options.sysroot);
  command
      ->add_option("--capture", options.capture_path, {"FILE", file_name()},
                   "Write what topology and doctor read of this machine into one file, to be looked at elsewhere with --sysroot; "
                   "alone, nothing else is shown")
      ->excludes(sysroot);
  Option tree = command->add_flag("--tree", options.is_tree, "The PCI tree below NUMA nodes instead of the matrix");
  command->add_flag("--routes", options.has_all_routes, "Rate, bottleneck and hops of every pair")->excludes(tree);
  add_json_option(command, options.json_path);
  command->add_option("--svg", options.svg_path, {"FILE", file_name()}, "Also draw it: an SVG file made by Graphviz's 'dot'");
  command->add_option("--svg-timeout", options.most_svg_seconds, seconds(3600), "Seconds that 'dot' may take")->group("");
  command->footer(
      "Rates are theoretical, each way, of the narrowest link, and take links at the speed that both ends can do: idle devices\n"
      "lower theirs. Stand-ins have no place in a machine and are not shown.\n"
      "Exit status: 0 done, 1 failed, 2 the command line cannot be followed (a bad --sysroot too).");
}

}  // namespace gigabar::tool
