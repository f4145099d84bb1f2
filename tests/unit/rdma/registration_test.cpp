// SPDX-License-Identifier: Apache-2.0
// GPU memory that an adapter refuses, as a dma-buf and through the kernel's peer memory: the error has both reasons.
#include "rdma/registration.hpp"

#include <cerrno>
#include <string>

#include "driver/verbs/functions.hpp"
#include "fakes/paths.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

#if GIGABAR_HAS_RDMACM

namespace gigabar::rdma {
namespace {

using test::FakeSession;
using test::ScopedEnvironment;

// The first device that is listed, opened.
class Adapter {
 public:
  explicit Adapter(const std::string& listed, const char* library = test::kFakeVerbsLibrary)
      : library_("GIGABAR_VERBS_LIBRARY", library), devices_("GIGABAR_FAKE_VERBS_DEVICES", listed.c_str()) {
    ibv_device** const list = verbs::functions().ibv_get_device_list(nullptr);
    context_ = verbs::functions().ibv_open_device(list[0]);
    verbs::functions().ibv_free_device_list(list);
    domain_ = verbs::functions().ibv_alloc_pd(context_);
  }
  ~Adapter() {
    verbs::functions().ibv_dealloc_pd(domain_);
    verbs::functions().ibv_close_device(context_);
  }
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  std::string register_gpu(CUdeviceptr address, std::size_t bytes) const {
    const auto registered = register_gpu_memory(domain_, "mlx5_0", address, bytes, IBV_ACCESS_LOCAL_WRITE);
    return registered ? registered->reason : registered.error().message();
  }

 private:
  ScopedEnvironment library_, devices_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
};

constexpr std::size_t kBytes = std::size_t{2} << 20;

// Each reason why a dma-buf is refused, where peer memory is and is not.
void expect_reasons(const std::string& keys, const char* library, const std::string& dma_buf) {
  FakeSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBytes);
  {
    const Adapter adapter("mlx5_0" + keys + " gpu=14", library);
    EXPECT_NE(adapter.register_gpu(memory, kBytes).find("as a dma-buf: " + dma_buf + "; as peer memory: the kernel cannot pin"),
              std::string::npos)
        << adapter.register_gpu(memory, kBytes);
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(Registration, ADmaBufThatTheKernelRefuses) {
  expect_reasons(" dmabuf=" + std::to_string(EOPNOTSUPP), test::kFakeVerbsLibrary,
                 "the adapter's driver or the kernel cannot register dma-bufs");
}
ISOLATED_TEST(Registration, ADmaBufThatTheGpusDriverRefuses) {
  expect_reasons(" dmabuf=524", test::kFakeVerbsLibrary,
                 "the GPU's driver refused to let the adapter attach (its own check of the PCI topology)");
}
ISOLATED_TEST(Registration, ALibraryWithoutDmaBufs) {
  expect_reasons("", test::kFakeOldVerbsLibrary, "libibverbs has no ibv_reg_dmabuf_mr");
}

ISOLATED_TEST(Registration, AMachineWithoutCuda) {
  const ScopedEnvironment cuda("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  const Adapter adapter("mlx5_0");
  std::vector<char> bytes(4096);
  EXPECT_NE(adapter.register_gpu(reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.size()).find("CUDA cannot be used"),
            std::string::npos);
}

}  // namespace
}  // namespace gigabar::rdma

#endif
