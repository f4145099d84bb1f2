// SPDX-License-Identifier: Apache-2.0
// A topology as `topology` of docs/schema/common.schema.json.
#pragma once

#include <string>

#include "gigabar/topology.hpp"

namespace gigabar::c {

std::string topology_json(const Topology& topology);

}  // namespace gigabar::c
