// SPDX-License-Identifier: Apache-2.0
// Each rank writes to the next one's device memory and raises a notification there: gigabar run -n 4 -- ./write_to_a_neighbour
// Says which path the write took, and why.
#include <cstdio>
#include <cstring>
#include <gigabar/copy.hpp>
#include <gigabar/fabric.hpp>

using namespace std::chrono_literals;

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.message().c_str()), 1;
}

int main() {
  constexpr gigabar::SegmentId kSegment = 1;
  constexpr gigabar::NotificationId kArrived = 0;
  constexpr std::size_t kBytes = 65536;  // the first half is sent, the second is received into

  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  const gigabar::Rank next = (fabric->rank() + 1) % fabric->rank_count();
  const gigabar::Rank previous = (fabric->rank() + fabric->rank_count() - 1) % fabric->rank_count();

  auto memory = gigabar::DeviceMemory::allocate(fabric->device(), 2 * kBytes);
  if (!memory) return tell(memory);
  auto mapping = gigabar::map(memory->address(), memory->bytes());
  if (!mapping) return tell(mapping);
  if (const auto filled = gigabar::fill(*mapping, 0, std::byte(fabric->rank() + 1), kBytes); !filled) return tell(filled);
  if (const auto done = fabric->register_segment(kSegment, memory->address(), memory->bytes()); !done) return tell(done);
  if (const auto met = fabric->barrier({}, 10s); !met) return tell(met);  // every rank has registered its segment

  const auto posted = fabric->write_notify({kSegment, 0}, {next, kSegment, kBytes}, kBytes, kArrived, 1);
  if (!posted) return tell(posted);
  if (const auto arrived = fabric->notification_wait(kSegment, kArrived, 1, 10s); !arrived) return tell(arrived);
  if (const auto ended = fabric->wait(0, 10s); !ended) return tell(ended);

  std::byte received{};
  if (const auto read = gigabar::copy_from(*mapping, 2 * kBytes - 1, &received, 1); !read) return tell(read);
  const auto report = fabric->report(*posted);
  if (!report) return tell(report);
  std::printf("rank %u: wrote by %s: %s; received from rank %d\n", fabric->rank(), std::string(name_of(report->path)).c_str(),
              report->reason.c_str(), std::to_integer<int>(received) - 1);
  if (received != std::byte(previous + 1)) return 1;

  // Rank 0 keeps the directory by which ranks find each other: nobody leaves before all have found whom they need.
  if (const auto met = fabric->barrier({}, 10s); !met) return tell(met);
  if (const auto done = fabric->deregister_segment(kSegment, 10s); !done) return tell(done);
  const auto closed = fabric->close(10s);
  return closed ? 0 : tell(closed);
}
