// SPDX-License-Identifier: Apache-2.0
// Whether a device node works, not only whether there is a name: what it is, its number, who may open it, and what open() says.
#pragma once

#include <string>

#include "doctor/check.hpp"

namespace gigabar::doctor {

enum class NodeState : std::uint8_t {
  works,  // as far as was tried
  missing,
  not_a_device,   // a folder or a file in its place
  wrong_number,   // it leads to another driver's device, or to none
  no_permission,  // this user may not read and write it
  refused,        // it may be opened by its permission bits, and open() failed
};

struct NodeReport {
  std::string path;
  NodeState state = NodeState::missing;
  std::string value;   // for a reading: "character device 195:0, readable and writable, open() succeeds"
  std::string fault;   // a clause about the node, "is a folder, not a device"; empty: it works
  std::string remedy;  // empty: it works

  bool works() const noexcept { return state == NodeState::works; }
  // It is there and cannot do what it is there for, whoever opens it.
  bool is_broken() const noexcept {
    return state == NodeState::not_a_device || state == NodeState::wrong_number || state == NodeState::refused;
  }
  std::string statement() const { return path + " " + fault; }
  // Of something that needs the node; what cannot be said of every node alike: why it is missing, and how to get it or the right.
  Availability availability(std::string when_missing, std::string how_to_have_it, std::string how_to_be_allowed) const;
};

NodeReport look_at_node(const Patient& patient, const std::string& path);

}  // namespace gigabar::doctor
