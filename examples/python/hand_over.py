# SPDX-License-Identifier: Apache-2.0
"""Hand a KV cache from a process that fills it to one that decodes: one-sided writes, the last with a notification.

Starts both processes itself. Under a launcher (gigabar run -n 2 python hand_over.py) it is one rank of two.
"""

import os
import socket
import subprocess
import sys

import gigabar

LAYERS, LAYER_BYTES = 4, 1 << 20
CACHE, READY = 1, 0  # a segment, one of its notifications


def fill(fabric: gigabar.Fabric, cache: gigabar.Memory) -> None:
    with gigabar.map(cache) as mapped:
        for layer in range(LAYERS):  # here a model's kernels would fill the layer
            mapped.fill(layer + 1, layer * LAYER_BYTES, LAYER_BYTES)
    last = 0
    for layer in range(LAYERS):
        at = layer * LAYER_BYTES
        if layer + 1 < LAYERS:
            fabric.write((CACHE, at), (1, CACHE, at), LAYER_BYTES)
        else:  # set behind this layer and those before it
            last = fabric.write_notify((CACHE, at), (1, CACHE, at), LAYER_BYTES, READY, LAYERS)
    fabric.wait(timeout=20)
    report = fabric.report(last)
    print(f"filled: {LAYERS} layers by {report.transport}, path {report.path}: {report.reason}")


def decode(fabric: gigabar.Fabric, cache: gigabar.Memory) -> None:
    fabric.notification_wait(CACHE, READY, timeout=20)
    layers = fabric.notification_reset(CACHE, READY)
    with gigabar.map(cache) as mapped:
        for layer in range(layers):
            seen = mapped.read_bytes(LAYER_BYTES, layer * LAYER_BYTES)
            if seen != bytes([layer + 1]) * LAYER_BYTES:
                raise SystemExit(f"layer {layer} has other bytes")
    print(f"decoding: {layers} layers arrived")


def main() -> int:
    if "RANK" not in os.environ and "GIGABAR_RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [subprocess.Popen([sys.executable, __file__], env=os.environ | job | {"RANK": str(rank)}) for rank in range(2)]
        return max(abs(rank.wait(50)) for rank in ranks)
    with gigabar.Fabric() as fabric:
        cache = gigabar.allocate(LAYERS * LAYER_BYTES, device=fabric.device)
        fabric.register(CACHE, cache)
        fabric.barrier(timeout=20)
        (fill if fabric.rank == 0 else decode)(fabric, cache)
        fabric.barrier(timeout=20)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
