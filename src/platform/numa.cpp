#include "platform/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/roots.hpp"

namespace gigabar {
namespace {

constexpr int kMostNodes = 1024;

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

// "0-3,8" as numbers; what is not of that form adds nothing.
std::vector<int> numbers_in(std::string_view list) {
  std::vector<int> numbers;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash), 0, kMostNodes - 1);
    const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1), 0, kMostNodes - 1);
    for (std::uint64_t n = first.value_or(1); first && last && n <= *last; ++n) numbers.push_back(static_cast<int>(n));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return numbers;
}

}  // namespace

int numa_node_of_device(const PciAddress& address) {
  const auto content = read_small_file(platform_roots().sys + "/bus/pci/devices/" + address.to_string() + "/numa_node");
  if (!content) return -1;
  const auto node = parse_number(trimmed(*content), 0, kMostNodes - 1);  // "-1" is no number of a node
  return node ? static_cast<int>(*node) : -1;
}

int numa_node_of_page(std::uintptr_t address) {
  void* page = reinterpret_cast<void*>(address);
  int node = -1;
  if (::syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &node, 0) != 0) return -1;
  return std::max(node, -1);  // negative values are errnos of this page
}

std::vector<int> numa_nodes() {
  const auto content = read_small_file(platform_roots().sys + "/devices/system/node/has_memory");
  return content ? numbers_in(trimmed(*content)) : std::vector<int>{};
}

Outcome bind_to_numa_node(void* address, std::size_t bytes, int node) {
  const std::vector<int> nodes = numa_nodes();
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
    std::string list;
    for (const int existing : nodes) list += text(list.empty() ? "" : ", ", existing);
    return make_error(Status::invalid_argument, "bind memory", text("NUMA node ", node),
                      nodes.empty() ? std::string("this machine has no NUMA") : "this machine's nodes with memory are " + list,
                      "use one of them, or -1 for the system's choice");
  }
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMostNodes / kBits> mask{};
  mask[static_cast<std::size_t>(node) / kBits] |= 1UL << (static_cast<std::size_t>(node) % kBits);
  if (::syscall(SYS_mbind, address, bytes, MPOL_BIND, mask.data(), static_cast<unsigned long>(kMostNodes) + 1, 0UL) != 0) {
    const int code = errno;
    return make_error(status_of_errno(code), "bind memory", text("NUMA node ", node), text("mbind: ", std::strerror(code)), {},
                      errno_code(code));
  }
  return {};
}

}  // namespace gigabar
