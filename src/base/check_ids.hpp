// SPDX-License-Identifier: Apache-2.0
// The doctor's checks that errors and absences of the components below it point to. The doctor's tests hold them to its list.
#pragma once

#include <array>
#include <string_view>

namespace gigabar::check_id {

inline constexpr std::string_view kDriverLoaded = "drv.loaded";
inline constexpr std::string_view kDriverFlavour = "drv.flavour";
inline constexpr std::string_view kLibraries = "libs";
inline constexpr std::string_view kGdrdrv = "mod.gdrdrv";
inline constexpr std::string_view kBar1Used = "bar1.used";
inline constexpr std::string_view kLockedMemory = "lim.memlock";
inline constexpr std::string_view kPeerAccess = "gpu.p2p";
inline constexpr std::string_view kMappingProbe = "probe.mapping";

inline constexpr std::array kAll{kDriverLoaded, kDriverFlavour, kLibraries,  kGdrdrv,
                                 kBar1Used,     kLockedMemory,  kPeerAccess, kMappingProbe};

}  // namespace gigabar::check_id
