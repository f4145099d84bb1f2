// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_stream.hpp"

#include <cstring>
#include <utility>

#include "base/errors.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

class HostCopies final : public CopyStream {
 public:
  Result<std::uint64_t> post(CopyWay, void* destination, const void* source, std::size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return ++last_;
  }
  Result<std::uint64_t> done() override { return last_; }

 private:
  std::uint64_t last_ = 0;
};

}  // namespace

Result<std::unique_ptr<CopyStream>> CopyStream::open(int device) {
  if (device < 0) return std::unique_ptr<CopyStream>(std::make_unique<HostCopies>());
  auto runtime = active_runtime();
  if (!runtime) return std::move(runtime).error();
  if (*runtime == &stand_in_runtime()) return std::unique_ptr<CopyStream>(std::make_unique<HostCopies>());
#if GIGABAR_HAS_CUDA
  return open_cuda_copies(device);
#else
  return make_error(Status::unavailable, "copy stream", text("device ", device), "this build has no CUDA", {});
#endif
}

}  // namespace gigabar::inline v0
