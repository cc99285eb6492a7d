// SPDX-License-Identifier: Apache-2.0
#include "rdma_writes.hpp"

namespace paceline::comm::device {

std::expected<RdmaWrites, std::string> RdmaWrites::of(const cuda::Driver& driver, int device,
                                                      int scope) {
  const auto attribute = [&](int which) {
    int value = 0;
    return driver.device_get_attribute(&value, which, device) == cuda::kSuccess ? value : 0;
  };
  if (attribute(cuda::kRdmaSupported) == 0)
    return std::unexpected(
        "its GPU lets no RDMA device at its memory (GPU_DIRECT_RDMA_SUPPORTED is 0)");
  const RdmaWrites writes(driver, device, attribute(cuda::kRdmaWriteOrdering));
  const bool flushes = (attribute(cuda::kRdmaFlushOptions) & cuda::kFlushByHost) != 0 &&
                       driver.flush_rdma_writes != nullptr;
  if (writes.ordered_ < scope && !flushes)
    return std::unexpected("its GPU neither orders what an RDMA device writes nor can be asked to");
  return writes;
}

int RdmaWrites::flush(int scope) const {
  return ordered_ >= scope ? cuda::kSuccess
                           : driver_->flush_rdma_writes(cuda::kFlushCurrent, scope);
}

DeviceRange RdmaWrites::range_of(cuda::Address address, std::size_t bytes, Fd& file) const {
  DeviceRange range{.address = address, .bytes = bytes, .dma_buf = -1, .refusal = {}};
  int supported = 0;
  int descriptor = -1;
  if (driver_->device_get_attribute(&supported, cuda::kDmaBufSupported, device_) !=
          cuda::kSuccess ||
      supported == 0 || driver_->range_handle == nullptr) {
    range.refusal = "the driver makes none of this GPU";
  } else if (const int status =
                 driver_->range_handle(&descriptor, address, bytes, cuda::kDmaBuf, 0);
             status != cuda::kSuccess) {
    range.refusal = "cuMemGetHandleForAddressRange: " + driver_->error_name(status);
  } else {
    file = Fd(descriptor);
    range.dma_buf = descriptor;
  }
  return range;
}

}  // namespace paceline::comm::device
