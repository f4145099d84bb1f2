// SPDX-License-Identifier: Apache-2.0
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "mapping/backend.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kPlaceBytes = 16;

// Loads and stores that the compiler can neither drop nor merge; the window may be write-combining.
void read_window(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (bytes > 0) {
    if (bytes >= 8 && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
      const std::uint64_t value = *reinterpret_cast<const volatile std::uint64_t*>(from);
      std::copy_n(reinterpret_cast<const std::byte*>(&value), 8, to);
      to += 8, from += 8, bytes -= 8;
    } else {
      *to++ = *reinterpret_cast<const volatile std::byte*>(from++);
      --bytes;
    }
  }
}

void write_window(std::byte* to, std::uint64_t value) {
  *reinterpret_cast<volatile std::uint64_t*>(to) = value;
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// A place to compare, and what was seen there.
struct Place {
  std::uintptr_t device_address = 0;
  std::size_t bytes = 0;
  std::array<std::byte, kPlaceBytes> by_engine{};
  std::array<std::byte, kPlaceBytes> by_window{};

  bool agrees() const {
    return std::equal(by_engine.begin(), by_engine.begin() + static_cast<std::ptrdiff_t>(bytes), by_window.begin());
  }
};

std::vector<Place> places_of(const Window& window, const PointerInfo& memory) {
  const std::uintptr_t begin = std::max(window.device_begin, memory.base);
  const std::uintptr_t past = std::min(window.device_begin + window.bytes, memory.base + memory.length_bytes);
  std::vector<Place> places;
  const auto add = [&](std::uintptr_t at) {
    at = std::max(begin, at / 8 * 8);
    if (places.empty() || at >= places.back().device_address + places.back().bytes) {
      places.push_back({at, std::min<std::size_t>(kPlaceBytes, past - at), {}, {}});
    }
  };
  add(begin);
  add(begin + (past - begin) / 2);
  add(past - std::min<std::size_t>(kPlaceBytes, past - begin));
  return places;
}

void look_through(const Window& window, std::vector<Place>& places) {
  for (Place& place : places) read_window(place.by_window.data(), window.at(place.device_address), place.bytes);
}

Result<void> ask_engine(Runtime& runtime, int device, std::vector<Place>& places) {
  std::vector<EngineCopy> pieces;
  for (Place& place : places) pieces.push_back({place.by_engine.data(), place.device_address, place.bytes});
  return runtime.engine_copy(device, CopyWay::from_device, pieces);
}

bool all_agree(const std::vector<Place>& places) {
  return std::all_of(places.begin(), places.end(), [](const Place& place) { return place.agrees(); });
}

bool are_all_bytes_alike(const std::vector<Place>& places) {
  const std::byte first = places.front().by_engine[0];
  return std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return std::all_of(place.by_engine.begin(), place.by_engine.begin() + static_cast<std::ptrdiff_t>(place.bytes),
                       [&](std::byte value) { return value == first; });
  });
}

Error mismatch(const Window& window, const PointerInfo& memory, const char* what) {
  return make_error(
      Status::verification_failed, "map", range_text(memory.base, memory.length_bytes),
      text("the window at ", hex_text(reinterpret_cast<std::uintptr_t>(window.address)), " does not show this memory on ",
           memory.device < 0 ? "the GPU of another process" : text("device ", memory.device), " (", what, ")"),
      "the mapping was undone; please report driver version and GPU list", {}, check_id::kMappingProbe);
}

// Whether the places that disagree stand still: two looks through the window around the engine's answer see the same.
enum class Verdict { agree, disagree, changing };
Result<Verdict> compare(const Window& window, Runtime& runtime, int device, std::vector<Place>& places) {
  look_through(window, places);
  if (Result<void> asked = ask_engine(runtime, device, places); !asked) return std::move(asked).error();
  if (all_agree(places)) return Verdict::agree;
  std::vector<Place> again = places;
  look_through(window, again);
  bool is_changing = false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (again[i].agrees() || places[i].agrees()) continue;
    if (again[i].by_window == places[i].by_window) return Verdict::disagree;
    is_changing = true;
  }
  return is_changing ? Verdict::changing : Verdict::agree;
}

Result<void> try_nonce(const Window& window, const PointerInfo& memory, Runtime& runtime, std::vector<Place>& places,
                       std::uint64_t nonce) {
  for (Place& place : places) {
    if (place.bytes < sizeof nonce) continue;
    std::uint64_t kept = 0;
    std::copy_n(place.by_engine.begin(), sizeof kept, reinterpret_cast<std::byte*>(&kept));
    const EngineCopy write{&nonce, place.device_address, sizeof nonce};
    const EngineCopy restore{&kept, place.device_address, sizeof kept};
    if (Result<void> done = runtime.engine_copy(memory.device, CopyWay::to_device, {&write, 1}); !done) return done;
    std::uint64_t seen = 0;
    read_window(reinterpret_cast<std::byte*>(&seen), window.at(place.device_address), sizeof seen);
    if (Result<void> done = runtime.engine_copy(memory.device, CopyWay::to_device, {&restore, 1}); !done) return done;
    if (seen != nonce) return mismatch(window, memory, "a value written by the copy engine is not there");
  }
  return {};
}

// Not std::random_device: libstdc++ has its numbers from the C library's arc4random, which is newer than what wheels may need.
std::uint64_t random_nonce() {
  // The time stays where the system has no number.
  auto nonce = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  (void)::getrandom(&nonce, sizeof nonce, GRND_NONBLOCK);
  return nonce | 1;
}

}  // namespace

Result<void> verify_window(const Window& window, const PointerInfo& memory, Verification verification) {
  Runtime& runtime = runtime_of(memory);
  std::vector<Place> places = places_of(window, memory);
  constexpr int kMaxTries = 8;
  int disagreement_count = 0;
  for (int turn = 0; turn < kMaxTries; ++turn) {
    const auto verdict = compare(window, runtime, memory.device, places);
    if (!verdict) return verdict.error();
    if (*verdict == Verdict::agree) {
      if (verification == Verification::nonce && are_all_bytes_alike(places))
        return try_nonce(window, memory, runtime, places, random_nonce());
      return {};
    }
    if (*verdict == Verdict::disagree) ++disagreement_count;
  }
  // A store of the GPU between two looks makes good memory disagree now and then, not every time.
  if (disagreement_count == kMaxTries) return mismatch(window, memory, "the copy engine reads other bytes");
  return {};  // the memory did not stand still: the device's proof has to do
}

namespace {

Result<void> prove_block(const Backend& backend, int device, const DeviceMemory& block) {
  const auto memory = describe(block.address());
  if (!memory) return memory.error();
  const std::size_t bytes = block.bytes();
  const auto window = backend.open(*memory, {{memory->base, bytes}, false});
  if (!window) return window.error();
  Runtime& runtime = runtime_of(*memory);
  for (const std::size_t offset : {std::size_t{0}, bytes / 2, bytes - 8}) {
    const std::uintptr_t at = memory->base + offset;
    std::uint64_t nonce = random_nonce();
    const EngineCopy write{&nonce, at, sizeof nonce};
    if (Result<void> done = runtime.engine_copy(device, CopyWay::to_device, {&write, 1}); !done) return done;
    std::uint64_t seen = 0;
    read_window(reinterpret_cast<std::byte*>(&seen), window->at(at), sizeof seen);
    if (seen != nonce) return mismatch(*window, *memory, "a nonce written by the copy engine is not there");
    nonce = random_nonce();
    write_window(window->at(at), nonce);
    const EngineCopy read{&seen, at, sizeof seen};
    if (Result<void> done = runtime.engine_copy(device, CopyWay::from_device, {&read, 1}); !done) return done;
    if (seen != nonce) return mismatch(*window, *memory, "a nonce written through it is not in the memory");
  }
  return {};
}

constexpr std::size_t kSmallBytes = 4096;

// The small allocation lies somewhere in a block that it shares; the large one has a block of its own, where there is room for it.
Result<void> allocate(int device, ProofMemory& proof_memory) {
  constexpr std::array<std::size_t, 2> kBytes{kSmallBytes, std::size_t{4} << 20};
  for (std::size_t index = 0; index < kBytes.size(); ++index) {
    std::optional<DeviceMemory>& block = proof_memory.blocks[index];
    if (block) continue;
    auto own = DeviceMemory::allocate(device, kBytes[index]);
    if (own.status() == Status::out_of_memory && index != 0) break;
    if (!own) return std::move(own).error();
    block.emplace(std::move(*own));
  }
  return {};
}

// Where the numbers of a proof stand: not where prove_block() writes.
std::array<std::uintptr_t, 2> places_of(const DeviceProof& proof) {
  return {proof.address + proof.bytes / 4, proof.address + proof.bytes / 4 * 3};
}

}  // namespace

Result<void> prove_device(const Backend& backend, int device, ProofMemory& proof_memory) {
  if (Result<void> allocated = allocate(device, proof_memory); !allocated) return allocated;
  for (const std::optional<DeviceMemory>& block : proof_memory.blocks) {
    if (!block) continue;
    if (Result<void> proved = prove_block(backend, device, *block); !proved) return proved;
  }
  return {};
}

Result<void> tell_proof(int device, ProofMemory& proof_memory) {
  if (Result<void> allocated = allocate(device, proof_memory); !allocated) return allocated;
  const DeviceMemory& block = proof_memory.blocks[1] ? *proof_memory.blocks[1] : *proof_memory.blocks[0];
  const auto memory = describe(block.address());
  if (!memory) return memory.error();
  Runtime& runtime = runtime_of(*memory);
  const auto identity = runtime.ipc_identity(*memory);
  if (!identity) return identity.error();
  if (!memory->pci) {
    return make_error(Status::unavailable, "prove a GPU to other processes", text("device ", device),
                      "its PCI address is not known");
  }
  const auto list = devices();
  if (!list) return list.error();
  DeviceProof proof;
  memory->pci->to_string().copy(proof.pci.data(), proof.pci.size() - 1);
  proof.bar1_bytes = list->at(static_cast<std::size_t>(device)).bar1_bytes.value_or(0);
  proof.address = memory->base;
  proof.bytes = memory->length_bytes;
  proof.identity = *identity;
  const auto places = places_of(proof);
  for (std::size_t i = 0; i < places.size(); ++i) {
    proof.nonces[i] = random_nonce();
    const EngineCopy write{&proof.nonces[i], places[i], sizeof proof.nonces[i]};
    if (Result<void> done = runtime.engine_copy(device, CopyWay::to_device, {&write, 1}); !done) return done;
  }
  proof_memory.told = proof;
  return {};
}

Result<void> check_proof(const DeviceProof& proof) {
  PointerInfo memory;
  memory.kind = MemoryKind::device;
  memory.pci = address_of(proof);
  if (!memory.pci || proof.bytes < kSmallBytes) {
    return make_error(Status::not_supported, "map", "memory of another process", "its owner does not say which GPU it is on",
                      "look for the reason in the owner's log (GIGABAR_LOG=info)");
  }
  memory.base = memory.address = proof.address;
  memory.length_bytes = proof.bytes;
  const auto window = open_peer_by_rm({memory, proof.identity}, {proof.address, proof.bytes});
  if (!window) return window.error();
  const auto places = places_of(proof);
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::uint64_t seen = 0;
    const bool is_there = window->covers(places[i], sizeof seen);
    if (is_there) read_window(reinterpret_cast<std::byte*>(&seen), window->at(places[i]), sizeof seen);
    if (!is_there || seen != proof.nonces[i]) return mismatch(*window, memory, "a number that its owner wrote is not there");
  }
  return {};
}

}  // namespace gigabar::inline v0
