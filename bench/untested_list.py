# SPDX-License-Identifier: Apache-2.0
"""The errors that no test brings about where bench/untested_errors.py runs, and why.

`part` stands in the text of the call, in one line; an empty one stands for every call of the file. A reason is no excuse for a call that a
fake, a failing call (tests/support/failing_calls.hpp) or a hostile peer can reach.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Reason:
    file: str
    part: str
    why: str


def because(why, *places):
    return [Reason(file, part, why) for file, *parts in places for part in parts]


REASONS = [
    *because(
        "kernels: the fake libcuda runs none; tests/gpu does, on a GPU that does not fail",
        ("src/streams/cpu_workers.cpp", '"no answer within 2 s"'),
        ("src/streams/cuda_session.cpp", "failure(operation, ", '"chase pointers"', '"flag"'),
        ("src/transport/local/persistent_copy_kernel.cpp", "cuda::describe_result", "has no device code", "has no module functions", '"allocate pinned memory"',
         '"make a stream"', '"load"', '"copy"'),
    ),
    *because(
        "a GPU that stops in the middle of a copy, for longer than the deadline of seconds",
        ("src/device/session/control_memory.cpp", "did not end it in 10 s"),
        ("src/memory/copy_stream.cpp", "did not finish within its deadline"),
        ("src/streams/cuda_device.cpp", "failure(operation", "did not end within"),
        ("src/streams/cuda_session.cpp", "was not done within the plan's time", 'failure("copy"'),
    ),
    *because(
        "memory of a GPU that the processor does not reach any more: a fake's stays",
        ("src/fabric/incoming.cpp", "refuse(peer, message, stored.status())"),
        ("src/fabric/mapped_segments.cpp", "kernels do not reach pageable memory", "mapping.error().record().cause"),
        ("src/transport/local/region.cpp", "cannot_map(kDeviceMemory"),
        ("src/transport/placing.cpp", "could not be written to through its mapping"),
    ),
    *because(
        "answers what it found of a file, which is no error",
        ("src/platform/system_files.cpp", "failed("),
    ),
    *because(
        "an interface of a library that has to be there, and that the library does not call for text",
        ("src/base/json.cpp", "has bytes that are no text"),
    ),
    *because(
        "a library that fails where it has no cause to: for wrong data, memory or a kernel without random numbers",
        ("src/driver/archive/archive.cpp", '"is truncated"', "kWrite"),
        ("src/fabric/job/job_key.cpp", '"libsodium"'),
        ("src/transport/ucx/transport.cpp", '"ucp_config_modify"', '"ucp_worker_create"', '"ucp_worker_get_efd"', '"ucp_worker_set_am_recv_handler"',
         '"ucp_worker_get_address"'),
    ),
    *because(
        "UCX has started a thread of its own before, in a process that tries it: where there are none it is not opened",
        ("src/fabric/open.cpp", '"open UCX"'),
    ),
    *because(
        "UCX takes the bytes of an address as they are, and dies of wrong ones: they come from ranks that hold the key",
        ("src/transport/ucx/transport.cpp", '"ucp_ep_create"'),
    ),
    *because(
        "a check of what the library's own code gives, which only a mistake there would fail",
        ("src/gdrapi/log.hpp", "error.what()"),
        ("src/mapping/mapping.cpp", "the window does not reach the whole range"),
    ),
    *because(
        "a file of a third user, which only root can make",
        ("src/fabric/job/job_key.cpp", "the file belongs to user"),
    ),
    *because(
        "reserved huge pages, which a machine of tests has none of",
        ("src/memory/host_pages.cpp", "mmap of reserved huge pages", "populating reserved huge pages"),
    ),
    *because(
        "memory of the C library's own allocator that runs out: the tests' operator new is not asked",
        ("src/memory/copy_stream.cpp", "no host memory left"),
    ),
    *because(
        "memory would have to run out twice in one call, while it waits and while it gives up waiting",
        ("src/fabric/fabric.cpp", 'error_of_exception("send")', 'error_of_exception("recv")'),
    ),
    *because(
        "another thread would have to forget the peer between its loss and this look",
        ("src/fabric/incoming.cpp", '"the peer is lost"'),
    ),
]
