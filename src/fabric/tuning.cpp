// SPDX-License-Identifier: Apache-2.0
// Where tuned limits are kept, and how a fabric takes them over.
#include "fabric/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "fabric/settings.hpp"
#include "gigabar/device.hpp"
#include "platform/stored_json.hpp"

namespace gigabar::fabric {
namespace {

struct TunedLimit {
  const char* setting;
  std::optional<std::uint64_t> TunedPair::* tuned;
  std::uint64_t Limits::* limit;
};
constexpr std::array<TunedLimit, 4> kTunedLimits = {{{"gdr_limit", &TunedPair::gdr_bytes, &Limits::gdr_bytes},
                                                     {"gdr_read_limit", &TunedPair::gdr_read_bytes, &Limits::gdr_read_bytes},
                                                     {"chunk", &TunedPair::chunk_bytes, &Limits::chunk_bytes},
                                                     {"stripe", &TunedPair::stripe_bytes, &Limits::stripe_bytes}}};

std::optional<Tuning> usable_tuning(std::string& path) {
  const MachineFingerprint machine = machine_fingerprint();
  path = tuning_path(machine);
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return {};
  auto loaded = Tuning::load(path);
  if (!loaded) {
    log(LogLevel::warning, text("tuned limits not used: ", loaded.error().message()));
    return {};
  }
  if (const std::string differs = loaded->machine.difference(machine); !differs.empty()) {
    log(LogLevel::warning, text("tuned limits not used: ", path, " is of another machine: ", differs,
                                "; run 'gigabar tune' here, or set GIGABAR_TUNING to this machine's file or to none"));
    return {};
  }
  return std::move(*loaded);
}

}  // namespace

std::string tuning_path(const MachineFingerprint& machine) {
  if (const auto path = environment("GIGABAR_TUNING"); path && !path->empty()) return *path == "none" ? std::string() : *path;
  const std::string folder = stored::cache_folder();
  return folder.empty() ? std::string() : text(folder, "/tuning-", machine.digits(), ".json");
}

std::string tuned_device_name(int device) {
  const auto known = devices();
  if (!known || device < 0) return "none";
  for (const DeviceInfo& info : known.value()) {
    if (info.index == device) return info.is_stand_in || info.uuid.empty() ? "stand-in" : info.uuid;
  }
  return "none";
}

void apply_tuning(Settings& settings, int device, const std::vector<TransportUse>& uses) {
  std::string path;
  const auto tuning = usable_tuning(path);
  if (!tuning) return;
  const std::string device_name = tuned_device_name(device);
  for (const TunedPair& pair : tuning->pairs) {
    const bool is_used = std::any_of(uses.begin(), uses.end(), [&](const TransportUse& use) {
      return pair.key == TunedKey{device_name, use.transport, use.rails, pair.key.is_same_host};
    });
    if (!is_used) continue;
    Limits& limits = settings.limits_by_peer[static_cast<std::size_t>(pair.key.transport)][pair.key.is_same_host ? 1 : 0];
    const std::string_view where = pair.key.is_same_host ? "same host" : "other hosts";
    for (const TunedLimit& each : kTunedLimits) {
      const auto& tuned = pair.*each.tuned;
      if (!tuned || !settings.is_default(each.setting)) continue;
      limits.*each.limit = *tuned;
      settings.table.push_back(
          {text(each.setting, " (", name_of(pair.key.transport), ", ", where, ")"), limit_text(*tuned), text("tuned, ", path)});
    }
  }
}

}  // namespace gigabar::fabric
