# SPDX-License-Identifier: Apache-2.0
"""Stop a loop on a GPU by a flag in its memory, which the CPU sets in a fraction of a microsecond, without a stream or a copy.

With torch on a GPU the steps run there and read the flag on the GPU; otherwise this runs on a stand-in device.
"""

import threading
import time

import gigabar


def main() -> int:
    flag = gigabar.allocate(8)
    print("device", gigabar.devices()[0].name)
    with gigabar.map(flag) as mapped:
        mapped.fill(0)

        def stop() -> None:
            mapped.publish(None, flag_offset=0, value=1)

        # What decides to stop: a signal, a deadline, another rank.
        decision = threading.Timer(0.05, stop)
        decision.start()
        steps, deadline = 0, time.monotonic() + 10
        while time.monotonic() < deadline:
            steps += 1  # a training step; its kernels read the flag at flag.address
            if mapped.read_bytes(4) != bytes(4):
                break
        decision.join()
        print(f"stopped after {steps} steps; mapped by {mapped.backend}, stand-in: {mapped.is_stand_in}")
        return 0 if mapped.read_bytes(4) != bytes(4) else 1


if __name__ == "__main__":
    raise SystemExit(main())
