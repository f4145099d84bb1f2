// SPDX-License-Identifier: Apache-2.0
// gigabar topology: what the machine is made of and how its parts are joined, as a matrix, a tree, JSON or a drawing; and the
// capture of a machine, to be looked at elsewhere.
#include "gigabar/topology.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "doctor/members.hpp"
#include "doctor/output.hpp"
#include "gigabar/machine.hpp"
#include "platform/driver_answers.hpp"
#include "platform/pci_link.hpp"
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

// --- The drawing ----------------------------------------------------------------------------------------------------------------

constexpr std::size_t kMaxBridges = 2000;  // of all devices together: a drawing of more cannot be read

// A quoted string of DOT. Backslashes begin escapes and '&' begins entities in labels, so both are escaped; "\n" is a new line.
std::string dot_string(std::string_view text) {
  return '"' + replaced(text, {{'"', "\\\""}, {'\\', "\\\\"}, {'&', "&amp;"}, {'\n', "\\n"}}) + '"';
}

// The machine as a graph in the DOT language, which Graphviz draws: GPUs, NICs and the bridges above them, in one box for each NUMA
// node.
class Graph {
 public:
  explicit Graph(const Topology& topology) : topology_(topology) {
    for (const End& end : shown_ends(topology)) add_end(end);
  }

  std::string text(const std::string& title) {
    text_ = "graph machine {\n";
    text_ += fmt::format("  graph [label={}, labelloc=t, fontname=Helvetica, nodesep=0.3, ranksep=0.6];\n", dot_string(title));
    text_ += "  node [fontname=Helvetica, fontsize=11, shape=box];\n  edge [fontname=Helvetica, fontsize=9];\n";
    for (const NumaNode& node : topology_.numa_nodes) clusters_[node.index];
    for (auto& [number, body] : clusters_) text_ += cluster(number, body);
    text_ += loose_ + edges_;
    add_nvlinks();
    return text_ + "}\n";
  }

 private:
  const PciNode& node_at(int pci) const { return topology_.pci[static_cast<std::size_t>(pci)]; }

  std::string label_of(const End& end) const {
    const auto index = static_cast<std::size_t>(end.point.index);
    std::string label = end.label + "\n";
    if (end.point.kind == Endpoint::Kind::gpu) {
      const Gpu& gpu = topology_.gpus[index];
      return label + (gpu.name.empty() ? "" : plain(gpu.name, 80) + "\n") + gpu.address.to_string();
    }
    const Nic& nic = topology_.nics[index];
    label += plain(nic.name, 80);
    const PciNode* const node = element(topology_.pci, nic.pci);
    if (node != nullptr) label += "\n" + node->address.to_string();
    if (nic.rate_gbit_per_s() > 0) label += fmt::format("\n{:g} Gb/s", nic.rate_gbit_per_s());
    return label;
  }

  void add_end(const End& end) {
    const bool is_gpu = end.point.kind == Endpoint::Kind::gpu;
    const std::string name = fmt::format("{}{}", is_gpu ? "gpu" : "nic", end.point.index);
    const std::string line = fmt::format("    {} [label={}, style=filled, fillcolor=\"{}\"];\n", name, dot_string(label_of(end)),
                                         is_gpu ? "#b7e1a1" : "#a9cdf0");
    if (element(topology_.pci, end.pci) == nullptr) {
      loose_ += line;
      return;
    }
    const int number = top_node_of(end.pci);
    clusters_[number] += line;
    join(end.pci, name, number);
  }

  // The NUMA node of the device or of the nearest bridge above that tells.
  int top_node_of(int pci) const {
    for (const int at : way_up(topology_, pci)) {
      if (node_at(at).numa_node >= 0) return node_at(at).numa_node;
    }
    return -1;
  }

  // The link above a device. A root port and the downstream port of a switch tell of the link below them, and what joins them to
  // the rest is inside of one chip; they stand at every other level of the tree (PCI Express Base Specification, topology).
  std::string link_above(int pci) const {
    const bool is_every_other_level = way_up(topology_, pci).size() % 2 == 1;
    return node_at(pci).is_bridge && is_every_other_level ? std::string() : link_text(node_at(pci).link);
  }

  // Edges from a device up to its root complex, and the bridges on the way that are not drawn yet.
  void join(int pci, std::string below, int number) {
    const std::vector<int> way = way_up(topology_, pci);
    for (std::size_t i = 0; i < way.size(); ++i) {
      const bool is_top = i + 1 == way.size();
      const std::string above = is_top ? root_of(node_at(way[i]), number) : fmt::format("pci{}", way[i + 1]);
      edges_ += fmt::format("  {} -- {} [label={}];\n", above, below, dot_string(link_above(way[i])));
      if (is_top || !bridges_.insert(way[i + 1]).second || bridges_.size() > kMaxBridges) return;
      const PciNode& bridge = node_at(way[i + 1]);
      clusters_[number] += fmt::format("    {} [label={}, style=rounded];\n", above,
                                       dot_string("bridge " + bridge.address.to_string() + "\n" + device_text(bridge)));
      below = above;
    }
  }

  std::string root_of(const PciNode& node, int number) {
    const auto [found, is_new] = roots_.emplace(std::pair(number, node.root_complex), roots_.size());
    const std::string name = fmt::format("root{}", found->second);
    if (is_new) {
      clusters_[number] +=
          fmt::format("    {} [label={}, shape=box3d];\n", name, dot_string("root complex\n" + plain(node.root_complex, 64)));
      edges_ += fmt::format("  {} -- {} [style=dotted];\n", memory_name(number), name);
    }
    return name;
  }

  static std::string memory_name(int number) { return number < 0 ? "memory_unknown" : fmt::format("memory{}", number); }

  std::string cluster(int number, const std::string& body) const {
    const NumaNode* const node = element(topology_.numa_nodes, topology_.find_numa_node(number));
    const std::string memory =
        node == nullptr ? "" : fmt::format("\n{:.1f} GiB of host memory", static_cast<double>(node->memory_bytes) / 1073741824.0);
    std::string text = fmt::format("  subgraph cluster_{} {{\n", memory_name(number));
    text += fmt::format("    label={};\n", dot_string(number < 0 ? "NUMA node unknown" : fmt::format("NUMA node {}", number)));
    text += fmt::format("    {} [label={}, shape=cylinder];\n", memory_name(number),
                        dot_string("CPUs " + cpus_text(topology_, number) + memory));
    return text + body + "  }\n";
  }

  // Through NVSwitches every GPU is joined to every other; one node in the middle says the same with fewer lines.
  void add_nvlinks() {
    std::map<int, unsigned> switched;
    for (const NvLinkBond& bond : topology_.nvlinks) {
      if (static_cast<std::size_t>(bond.second) >= kMaxEnds) continue;  // which is not drawn
      if (bond.is_switched) {
        switched[bond.first] = std::max(switched[bond.first], bond.count);
        switched[bond.second] = std::max(switched[bond.second], bond.count);
        continue;
      }
      const std::string rate = bond.gb_per_s > 0 ? fmt::format(", {:.0f} GB/s", bond.gb_per_s) : "";
      text_ += fmt::format("  gpu{} -- gpu{} [style=bold, penwidth=3, color=\"#3a7d1e\", constraint=false, label={}];\n",
                           bond.first, bond.second, dot_string(fmt::format("NV{}{}", bond.count, rate)));
    }
    if (switched.empty()) return;
    text_ += "  nvswitch [label=\"NVSwitch\", shape=hexagon, style=filled, fillcolor=\"#d8efcb\"];\n";
    for (const auto& [gpu, count] : switched) {
      text_ += fmt::format("  gpu{} -- nvswitch [style=bold, penwidth=3, color=\"#3a7d1e\", label={}];\n", gpu,
                           dot_string(fmt::format("NV{}", count)));
    }
  }

  const Topology& topology_;
  std::string text_;
  std::map<int, std::string> clusters_;  // by NUMA node
  std::string loose_;
  std::string edges_;
  std::set<int> bridges_;
  std::map<std::pair<int, std::string>, std::size_t> roots_;
};

std::string first_line(const std::string& text) {
  return plain(std::string_view(text).substr(0, std::min<std::size_t>(text.find('\n'), 400)));
}

// Has Graphviz's `dot` draw the machine as SVG, and writes that to the file. Ends the command when there is no such program, when
// it fails or takes longer than `most_seconds`, and when the file cannot be written.
void write_svg(const Topology& topology, const std::string& title, const std::string& path, double most_seconds) {
  const std::string graph = Graph(topology).text(title);
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
    fail(fmt::format("--svg {}: 'dot' failed ({}): {}", plain(path), how, first_line(messages)));
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
