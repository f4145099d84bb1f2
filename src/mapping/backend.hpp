// SPDX-License-Identifier: Apache-2.0
// Who can make windows, and the reasons why not. One file per backend.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/errors.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "mapping/window.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

// What a window must reach, and whether forked children have it too.
struct WindowRequest {
  DeviceRange asked;
  bool is_inherited = false;
};

// Device memory of another process of this user.
struct PeerMemory {
  PointerInfo memory;                   // `device` as this process counts, addresses as the owner has them
  std::optional<IpcIdentity> identity;  // of cudaMalloc memory
  int descriptor = -1;                  // of VMM memory, exported; stays the caller's
};

// Threads: open() is called by one thread at a time; the rest by any.
class Backend {
 public:
  explicit Backend(MappingBackend which) noexcept : name(which) {}
  virtual ~Backend() = default;

  // Whether it works with that device at all. Opens drivers on first use; a failure that can pass (descriptors) is asked anew.
  virtual Availability availability(int device) = 0;
  // Whether it can map this kind of memory.
  virtual Availability can_map(const PointerInfo& memory) = 0;
  // A window over at least the range asked for, which lies in the allocation. Errors as of map().
  virtual Result<std::unique_ptr<Window>> open(const PointerInfo& memory, const WindowRequest& request) = 0;
  // The same over memory of another process.
  virtual Result<std::unique_ptr<Window>> open_peer(const PeerMemory& peer, DeviceRange /*range*/) {
    return make_error(Status::not_supported, "map", range_text(peer.memory.base, peer.memory.length_bytes),
                      "memory of another process is mapped by the rm backend only");
  }
  // Whether a device must be proved with memory of the library's own before the first window is handed out.
  virtual bool needs_proof() const { return true; }

  const MappingBackend name;
};

// All four, in order of preference; they live as long as the process.
std::span<Backend* const> mapping_backend_list();

Backend& dmabuf_backend();
Backend& gdrdrv_backend();
Backend& rm_backend();
Backend& host_backend();

// The one that GIGABAR_MAPPING asks for; nothing: any. Errors, of `operation`: invalid_argument.
Result<std::optional<MappingBackend>> backend_of_environment(const char* operation);

// CUDA's reason, when device memory cannot exist here or `device` is not a GPU; ok otherwise.
Availability gpu_availability(int device);

// "managed memory moves between host and device" and the like, for memory that no backend can map.
inline Availability not_supported(std::string reason, std::string remedy) {
  return {AvailabilityCode::not_supported, std::move(reason), std::move(remedy), {}};
}

}  // namespace gigabar::inline v0
