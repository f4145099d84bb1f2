#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of measurements into README.md and docs/*.md from the JSON files in bench/results.

What stands between '<!-- table:NAME -->' and '<!-- /table:NAME -->' is made from bench/results/NAME.json, as `gigabar TOOL --json`
wrote it; the tool in the file says what kind of table it is. What SUMMARIES names is made by a function each.
With --check nothing is written, and the exit status is 1 when a table is not what its file says.
"""

import argparse
import json
import re
import sys

from tables_streams import caption_of_set, share, streams, streams_latency, streams_presets
from tables_text import RESULTS, ROOT, BadResult, bytes_text, caption, command_of, markdown, us

MARKED = re.compile(r"(<!-- table:([\w-]+) -->\n)(.*?)(<!-- /table:\2 -->)", re.DOTALL)
# What a reader compares; the JSON has every size.
SHOWN_BYTES = [1, 8, 64, 512, 4096, 65536, 1 << 20, 1 << 24]
DIRECTIONS = ["to_device", "from_device"]


def copylat(document):
    by_size = {}
    for result in document["results"]:
        if result.get("measure") != "copy" or result["bytes"] not in SHOWN_BYTES:
            continue
        if not result["data_checked"]:
            raise BadResult(f"{bytes_text(result['bytes'])}: the data was not checked")
        methods = {method["name"]: method["p50_us"] for method in result["methods"]}
        ours = methods["copy_to" if result["direction"] == "to_device" else "copy_from"]
        baseline = methods[result["baseline"]]
        by_size.setdefault(result["bytes"], {})[result["direction"]] = [us(ours), us(baseline), f"{baseline / ours:.1f}"]
    header = ["p50, µs", "`copy_to`", "cudaMemcpy", "ratio", "`copy_from`", "cudaMemcpy", "ratio"]
    rows = [
        [bytes_text(size)] + [cell for direction in DIRECTIONS for cell in by_size[size].get(direction, ["", "", ""])]
        for size in sorted(by_size)
    ]
    return markdown(header, rows)


def copybw(document):
    threads = sorted({result["threads"] for result in document["results"]})
    cells, sizes = {}, set()
    for result in document["results"]:
        if not result["data_checked"]:
            raise BadResult(f"{bytes_text(result['bytes'])}: the data was not checked")
        sizes.add(result["bytes"])
        cells[result["direction"], result["threads"], result["bytes"]] = f"{result['median_gb_per_s']:.2f}"
    shown = sorted(size for size in sizes if size in SHOWN_BYTES or size == max(sizes))
    columns = [(direction, count) for direction in DIRECTIONS for count in threads]
    header = ["GB/s, median"] + [
        f"`{'copy_to' if direction == 'to_device' else 'copy_from'}`, {count} thread{'s' if count > 1 else ''}" for direction, count in columns
    ]
    return markdown(header, [[bytes_text(size)] + [cells.get((*column, size), "") for column in columns] for size in shown])


def apiperf(document):
    names = [operation["name"] for operation in document["results"][0]["operations"]]
    sizes = [result["bytes"] for result in document["results"]]
    p50 = [{operation["name"]: us(operation["p50_us"]) for operation in result["operations"]} for result in document["results"]]
    return markdown(["p50, µs"] + [bytes_text(size) for size in sizes], [[name] + [column.get(name, "") for column in p50] for name in names])


def sanity(document):
    counts = {verdict: sum(result["verdict"] == verdict for result in document["results"]) for verdict in ("pass", "fail", "waived")}
    waived = [[f"`{result['name']}`", result["reason"]] for result in document["results"] if result["verdict"] == "waived"]
    summary = f"{counts['pass']} scenarios passed, {counts['fail']} failed, {counts['waived']} waived."
    return summary + ("\n\n" + markdown(["waived", "because"], waived) if waived else "")


def survey(document):
    """One page: copies of the first GPU, each path alone, the worst pattern of paths at once."""
    worst_pattern = document["worst"]["key"].partition(" ")[2] if document["worst"] else "alone"
    rows = []
    for result in document["results"]:
        subject, _, what = result["key"].partition(" ")
        if "->" in subject and what in ("alone", worst_pattern) or subject == "gpu0":
            figure = us if result["unit"] == "us" else "{:.1f}".format
            span = f"{figure(result['min'])}..{figure(result['max'])}"
            unit = result["unit"].replace("us", "µs")
            rows.append([result["key"], unit, figure(result["value"]), span, share(result["ratio"]) if result.get("ratio") else ""])
    return markdown(["", "unit", "median", "least..most", "of the link"], rows)


def hosts(document):
    """The figures that differ most from host to host: one row per host and user."""
    gpus = list(dict.fromkeys(result["gpu_uuid"] for result in document["results"]))
    rows = [
        [
            f"{gpus.index(result['gpu_uuid']) + 1}, `{result['user']}`",
            us(result["copy_to_8_b_p50_us"]),
            us(result["copy_from_8_b_p50_us"]),
            f"{result['copy_to_64_kib_gb_per_s']:.1f}",
            us(result["first_map_64_kib_p50_us"]),
        ]
        for result in document["results"]
    ]
    return markdown(["host, user", "`copy_to` 8 B, µs", "`copy_from` 8 B, µs", "`copy_to` 64 KiB, GB/s", "first map of 64 KiB, µs"], rows)


def latency(document):
    """Between two ranks: every third size and 1 MiB, one row each."""
    rows = [
        [bytes_text(result["bytes"]), us(result["mean_us"]), us(result["p50_us"]), us(result["p99_us"]), f"`{result['path_text']}`"]
        for index, result in enumerate(document["results"])
        if index % 3 == 0 or result["bytes"] == 1 << 20 or result is document["results"][-1]
    ]
    return markdown([document["results"][0]["kind"], "mean, µs", "p50, µs", "p99, µs", "path"], rows)


def bw(document):
    """Between two ranks: every other size, one row each."""
    rows = [
        [bytes_text(result["bytes"]), f"{result['mb_per_s'] / 1000:.1f}", f"`{result['path_text']}`"]
        for index, result in enumerate(document["results"])
        if index % 2 == 0 or result is document["results"][-1]
    ]
    return markdown([document["results"][0]["kind"], "GB/s", "path"], rows)


def ranks_in_turns(document):
    """Ranks beside what limits them."""
    beside = {"copies": "`cudaMemcpyPeerAsync` in one process", "tcp": "host memory to host memory over the same TCP",
              "kernels": "`gigabar bw`, whose CPUs post the writes"}
    rows = [
        [bytes_text(result["bytes"]), f"{result['ranks_gb_per_s']:.1f}", beside[result["comparison"]], f"{result['beside_gb_per_s']:.1f}",
         f"{100 * result['ratio']:.0f} %"]
        for result in document["results"]
    ]
    return markdown(["ranks, GPU to GPU", "GB/s", "beside", "GB/s", "ratio"], rows)


def tcp_in_turns(document):
    """Ranks over tcp beside what others do with as many connections: a row for each, of each measure and size."""
    names = {"bare": "bare sockets", "tcp": "`tcp`", "ucx": "`ucx`", "sealed": "`tcp`, sealed", "gpu": "`tcp`, GPU memory to GPU memory",
             "iperf3": "iperf3, a process for each connection", "earlier": "`ucx` of an earlier version, with connections for large writes",
             "send": "`send()`", "zerocopy": "`MSG_ZEROCOPY`", "io_uring": "io_uring", "io_uring_zerocopy": "io_uring, without a copy"}
    measures = {(result["measure"], result["bytes"]): result for result in document["results"]}  # of several judgements one
    rows = []
    for (measure, _), result in measures.items():
        text = us if result["unit"] == "us" else lambda figure: f"{figure / 1000:.1f}"
        unit = "µs" if result["unit"] == "us" else "GB/s"
        rows += [[f"{measure}, {bytes_text(result['bytes'])}, {unit}", names[name], text(median)] for name, median in result["medians"].items()]
    return markdown(["", "", "median"], rows)


def builds_in_turns(document):
    """Kernels of two builds: a row per command, over its sizes."""
    commands = {}
    for result in document["results"]:
        commands.setdefault(result["case"], []).append(result)
    rows = [[f"`{command}`", bytes_text(results[0]["bytes"]), f"{results[0]['before']:.4g}", f"{results[0]['now']:.4g}",
             f"{min(result['ratio'] for result in results):.2f} to {max(result['ratio'] for result in results):.2f}"]
            for command, results in commands.items()]
    return markdown(["", "least size", "before", "now", "speed, now to before, over all sizes"], rows)


def kernels(document):
    """Kernels of two ranks: latencies, bandwidths and rates of bench/kernels.py."""
    units = {"device-latency": ("p50_us", "µs"), "device-bw": ("gb_per_s", "GB/s"), "device-rate": ("million_per_s", "million/s")}
    rows = []
    for run in document["results"]:
        name, unit = units[run["command"][1]]
        shown = [result for result in run["results"] if result["bytes"] in (0, 8, 65536, 1 << 20, 1 << 26)]
        for result in shown:
            threads = f"{result['blocks']} × {result['threads']}" if result["blocks"] * result["threads"] > 1 else "1"
            size = bytes_text(result["bytes"]) if result["bytes"] else ""
            p99 = us(result["p99_us"]) if unit == "µs" else ""
            rows.append([f"`{result['op']}`", size, result["scope"], threads, result["path"], us(result[name]), p99, unit])
    return markdown(["kernels", "size", "scope", "threads", "path", "p50, or whole run", "p99", ""], rows)


def operation_of(result):
    return result["command"][result["command"].index("--op") + 1]


def caller_of(result):
    """Who calls, as far as the command says."""
    words = result["command"]
    scope = words[words.index("--scope") + 1] if "--scope" in words else "thread"
    if "--blocks" in words:
        return f"{words[words.index('--blocks') + 1]} blocks"
    return f"a {scope}"


def nvshmem(document):
    """Beside NVSHMEM, kernels of two ranks."""
    rows = []
    for result in document["results"]:
        threads = f"{result['blocks']} × {result['threads']}" if result["blocks"] * result["threads"] > 1 else "1"
        size = bytes_text(result["bytes"]) if result["bytes"] else ""
        rows.append([size, f"`{operation_of(result)}`, {caller_of(result)}", us(result["gigabar"]), f"`{result['nvshmem_op']}`", threads,
                     us(result["nvshmem"]), "µs" if result["unit"] == "us" else "GB/s"])
    return markdown(["size", "Gigabar", "", f"NVSHMEM {document['versions']['NVSHMEM']}", "threads", "", ""], rows)


def matvec(document):
    """A product in a stream of vectors: one kernel beside one launch for each batch."""
    rows = [
        [str(result["elements"]), str(result["batch_vectors"]), f"{result['kernel_vectors_per_s'] / 1e6:.2f}",
         f"{result['cpu_vectors_per_s'] / 1e6:.2f}", f"{result['ratio']:.2f}"]
        for result in document["results"]
        if result["batch_vectors"] in (16, 64, 512)
    ]
    return markdown(["elements", "vectors in a batch", "kernel, million vectors/s", "CPU, million vectors/s", "ratio"], rows)


def pingpong(document):
    """A message computed, sent and answered: one kernel beside one launch for each turn."""
    rows = [
        [bytes_text(result["bytes"]), us(result["kernel"]["p50_us"]), us(result["cpu"]["p50_us"]), f"{result['ratio']:.2f}"]
        for result in document["results"]
    ]
    return markdown(["message", "kernel, p50, µs", "CPU, p50, µs", "ratio"], rows)


def store_order(document):
    """What order costs between two GPUs, and what is seen without it."""
    names = {"none": "none", "device": "`fence.acq_rel.gpu`", "system": "`fence.acq_rel.sys`"}
    figures = {(result["what"], result["fence"], result["load_blocks"]): result for result in document["results"]}
    loads = sorted({load for what, _, load in figures if what == "early"})
    time = lambda what, fence: us(figures[what, fence, 0]["us"]) if (what, fence, 0) in figures else ""  # noqa: E731
    rows = [
        [name, time("fence", fence), time("payload", fence), *(str(figures["early", fence, load]["early_count"]) for load in loads)]
        for fence, name in names.items()
    ]
    header = ["between payload and word", "alone, µs", "there, and a word back, half, µs"]
    return markdown(header + [f"early words, {load} blocks beside" for load in loads], rows)


def clients(document):
    """Programs of others without and with libgdrapi.so.2 of Gigabar."""
    rows = [
        [f"{result['program']}, {result['operation']}", bytes_text(result["bytes"]), us(result["without"]), us(result["with"]),
         f"{result['without'] / result['with']:.1f}"]
        for result in document["results"]
    ]
    return markdown(["p50, µs", "size", "without", "over Gigabar's `libgdrapi.so.2`", "ratio"], rows)


def caption_of_clients(document):
    device = document["device"]
    commands = ", ".join(dict.fromkeys(f"`{result['command']}`" for result in document["results"] if "command" in result))
    return (f"{device['count']} × {device['name']}, {device['links']}; {device['driver']}; no kernel module; "
            f"user `{document['machine']['user']}`; {document['date']}; {commands}")


def ucx():
    """What UCX gains, as a sentence."""
    document = json.loads((RESULTS / "clients-h100.json").read_text())
    facts = [("sends a message of 8 bytes from GPU to GPU", "tag, GPU to GPU, two processes", 8), ("puts 4 KiB from the CPU to a GPU", "put", 4096),
             ("gets 8 bytes from a GPU to the CPU", "get", 8)]
    figures = [(what, *client_pair(document["results"], operation, size)) for what, operation, size in facts]
    first, *others = [f"{what} in {us(ours)} µs instead of {us(alone)}" for what, ours, alone in figures]
    return f"On two {document['device']['name'].split()[1]} UCX {first},\n{' and '.join(others)}."


def result_of(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def round_trips():
    """Of a flag, of a flag behind data, and of messages, a file each."""
    documents = [result_of(f"h200-pplat{which}") for which in ("", "-4096", "-message-8", "-message-192", "-message-768")]
    rows = []
    for document in documents:
        result = document["results"][0]
        data = bytes_text(result["data_bytes"])
        what = f"message of {data}" if result.get("by") == "message" else f"flag behind {data}" if result["data_bytes"] else "flag only"
        rows.append([what, us(result["p50_us"]), us(result["p99_us"]), us(result["min_us"])])
    commands = ", ".join(f"`{command_of(document)}`" for document in documents[1:])
    return f"{markdown(['CPU → GPU → CPU, µs', 'p50', 'p99', 'min'], rows)}\n\n{caption(documents[0])}, {commands}"


def readback():
    """Copies from the GPU by each method, back to back, where the readback kernel is in use."""
    document = result_of("h200-copylat-readback")
    methods = ["copy()", "readback", "cpu", "cpu_parallel", "copy_engine", "cudaMemcpy"]
    rows = []
    for result in document["results"]:
        if result["measure"] != "copy_back_to_back" or result["direction"] != "from_device" or not 1024 <= result["bytes"] <= 32768:
            continue
        figures = {method["name"]: us(method["p50_us"]) for method in result["methods"]}
        rows.append([bytes_text(result["bytes"])] + [figures.get(name, "") for name in methods])
    return f"{markdown(['p50, µs'] + [f'`{name}`' for name in methods], rows)}\n\n{caption(document)}, with `GIGABAR_READBACK_KERNEL=1`"


def queue_threads():
    """Threads of a rank with a queue each; of three runs each the one in the middle."""
    documents = [result_of(f"h200-rate-threads-{count}") for count in (1, 2, 4)]
    rates = [document["results"][0]["messages_per_s"] / 1e6 for document in documents]
    rows = [[str(document["results"][0]["threads"]), f"{rate:.1f}", f"{rate / rates[0]:.2f}"] for document, rate in zip(documents, rates)]
    machine, date = documents[0]["machine"], documents[0]["date"][:10]
    text = markdown(["threads of each rank", "million messages per second", "over one thread"], rows)
    return f"{text}\n\n{machine['cpu']}, {machine['cores']} processors; {date}; `{command_of(documents[-1])}`"


def clients_notes():
    """What else was seen of programs of others."""
    notes = json.loads((RESULTS / "clients-h100.json").read_text())["notes"]
    return "\n".join(f"- {note}" for note in notes)


def perftest(document):
    """Beside perftest: one row for each network, measure and size. Not of a GPU."""
    rows = []
    for result in document["results"]:
        if result["ratio"] is None:
            raise BadResult(f"{result['network']}, {result['measure']}, {bytes_text(result['bytes'])}: no figure")
        unit = "µs" if result["unit"] == "us" else "MB/s"
        limit = "" if result["limit"] is None else f"{'at most' if unit == 'µs' else 'at least'} {result['limit']:.2f}"
        counts = " / ".join(f"{result['undisturbed'][name]} of {len(result['rounds'][name])}" for name in ("beside", "gigabar"))
        name = f"{result['network']}, {result['measure']}, {bytes_text(result['bytes'])}, {unit}"
        rows.append([name, us(result["beside"]), us(result["gigabar"]), f"{result['ratio']:.2f}", limit, counts])
    return markdown(["", "beside", "gigabar", "ratio", "wanted", "rounds that count"], rows)


def caption_of_perftest(document):
    machine, versions = document["machine"], document["versions"]
    others = ", ".join(f"{tool}: {version}" for tool, version in versions.items() if tool != "gigabar")
    where = "virtual machine with an emulated processor" if machine["is_virtual"] else "machine"
    command = re.sub(r" --(json|gigabar)[ =]\S+", "", " ".join(document["command"]))
    return (
        f"{where}, {machine['cores']} × {machine['cpu']}, Linux {machine['kernel']}; {others}; "
        f"{document['date'][:10]}; `{command}`"
    )


# The README's table: what, the other program, file, both figures made of the file's results, unit.
HEADLINES = [
    ("8 B, CPU to GPU", "`cudaMemcpy`", "h200-copylat", lambda results: copy_pair(results, "to_device", 8), "µs"),
    ("4 KiB, CPU to GPU", "`cudaMemcpy`", "h200-copylat", lambda results: copy_pair(results, "to_device", 4096), "µs"),
    ("8 B, GPU to CPU", "`cudaMemcpy`", "h200-copylat", lambda results: copy_pair(results, "from_device", 8), "µs"),
    ("64 KiB, GPU to CPU, by CPU loads", "`cudaMemcpy`", "h200-copylat", lambda results: copy_pair(results, "from_device", 65536), "µs"),
    ("UCX message of 8 B, GPU to GPU", "UCX alone", "clients-h100", lambda results: client_pair(results, "tag, GPU to GPU, two processes", 8), "µs"),
    ("UCX put of 4 KiB, CPU to GPU", "UCX alone", "clients-h100", lambda results: client_pair(results, "put", 4096), "µs"),
    ("UCX get of 8 B, GPU to CPU", "UCX alone", "clients-h100", lambda results: client_pair(results, "get", 8), "µs"),
    ("stream of 1 GiB, CPU to GPU", "`cudaMemcpyAsync`", "h200-streams-h2d", lambda results: stream_pair(results[0]["transfers"][0]), "GB/s"),
    ("two ranks, 64 MiB, GPU to GPU", "`cudaMemcpyPeerAsync`", "h200-ranks-in-turns", lambda results: turns_pair(results, "copies", 1 << 26), "GB/s"),
    ("kernels: message of 8 B", "NVSHMEM put-signal", "h200-nvshmem", lambda results: nvshmem_pair(results, "message", 8), "µs"),
    ("kernels: 1 MiB and its arrival, 8 blocks", "NVSHMEM put-signal, 1 block", "h200-nvshmem",
     lambda results: nvshmem_pair(results, "write-count", 1 << 20), "µs"),
    ("kernels: 64 MiB by 16 blocks", "NVSHMEM put", "h200-nvshmem", lambda results: nvshmem_pair(results, "write", 1 << 26, 16), "GB/s"),
]


def the_one(results, **wanted):
    """The first result with these values; a text need only begin so."""
    for result in results:
        if all(result.get(key, "").startswith(value) if isinstance(value, str) else result.get(key) == value for key, value in wanted.items()):
            return result
    raise BadResult(f"nothing like {wanted}")


def copy_pair(results, direction, size):
    result = the_one(results, measure="copy", direction=direction, bytes=size)
    methods = {method["name"]: method["p50_us"] for method in result["methods"]}
    return methods["copy_to" if direction == "to_device" else "copy_from"], methods["cudaMemcpy"]


def client_pair(results, operation, size):
    result = the_one(results, operation=operation, bytes=size)
    return result["with"], result["without"]


def stream_pair(transfer):
    return transfer["life_gb_per_s"]["median"], transfer["plain_cudaMemcpyAsync_gb_per_s"]["median"]


def turns_pair(results, comparison, size):
    result = the_one(results, comparison=comparison, bytes=size)
    return result["ranks_gb_per_s"], result["beside_gb_per_s"]


def nvshmem_pair(results, operation, size, blocks=1):
    result = the_one([result for result in results if operation_of(result) == operation], bytes=size, blocks=blocks)
    return result["gigabar"], result["nvshmem"]


def headlines():
    rows, dates, drivers = [], set(), set()
    for what, other, name, pair, unit in HEADLINES:
        document = json.loads((RESULTS / f"{name}.json").read_text())
        ours, theirs = pair(document["results"])
        device = document["device"] or document["devices"][0]
        dates.add(document["date"][:10])
        drivers.update(re.findall(r"driver [\d.]+", json.dumps([device, document.get("drivers")])))
        ratio = theirs / ours if unit == "µs" else ours / theirs
        rows.append([what, f"**{us(ours)} {unit}**", other, f"{us(theirs)} {unit}", f"{ratio:.1f}" if ratio > 10 else f"{ratio:.2f}",
                     f"[{device['name'].split()[1]}](bench/results/{name}.json)"])
    header = ["", "Gigabar", "compared with", "", "speed-up", "measured on"]
    return f"{markdown(header, rows)}\n\nMedians; {', '.join(sorted(drivers))}, no kernel module; {min(dates)} to {max(dates)}"


def h100_ranks():
    """The latencies of the H200's two tables on another machine, as a sentence."""
    facts, names = [], set()
    for kind in ("write", "send"):
        document = json.loads((RESULTS / f"h100-ranks-{kind}.json").read_text())
        small, large = (the_one(document["results"], kind=kind, bytes=size) for size in (64, 1 << 20))
        facts.append(f"a {kind} of 64 B takes {us(small['p50_us'])} µs, of 1 MiB {us(large['p50_us'])} µs")
        names.add(document["device"]["name"])
    return f"The same commands on two {' and '.join(sorted(names))} of another machine (p50, `bench/results/h100-ranks-*.json`):\n{'; '.join(facts)}."


def many_gpus(documents):
    """What was wanted of a machine with many GPUs, and what was not reached."""
    results = documents[0]["results"]
    rows = [[result["what"], result["figure"], result["wanted"], result["verdict"]] for result in results]
    notes = [f"- {reason}" for result in results for reason in result["reasons"]]
    notes += [f"- left out: {what}" for what in documents[0]["left_out"]]
    return "\n\n".join([markdown(["", "figure", "wanted", ""], rows), *(["\n".join(notes)] if notes else [])])


def many_gpus_pairs(documents):
    """A matrix for each figure; bench/chart.py draws some of them."""
    units = {"us": "µs", "gb_per_s": "GB/s", "million_per_s": "million/s"}
    parts = ['<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="pairs-dark.svg">\n'
             '  <img alt="Figures of each pair of GPUs" src="pairs-light.svg">\n</picture>']
    for result in documents[0]["results"]:
        matrix = result["matrix"]
        header = [f"{result['what']}, {units[result['unit']]}", *(f"GPU {column}" for column in range(len(matrix)))]
        rows = [[f"GPU {index}", *("" if cell is None else us(cell) for cell in row)] for index, row in enumerate(matrix)]
        paths = ", ".join(f"`{path}` ({count})" for path, count in sorted(result["paths"].items()))
        parts.append(f"{markdown(header, rows)}\n\n`{' '.join(result['command'])}`; path {paths}")
    return "\n\n".join(parts)


def many_gpus_presets(documents):
    """nvbandwidth's test cases by gigabar and, where it ran, by nvbandwidth."""
    rows = []
    for case in documents[0]["results"]:
        beside = [f"{case['nvbandwidth_sum']:.1f}", f"{case['ratio']:.3f}"] if case["ratio"] is not None else ["", ""]
        rows.append([f"`{case['name']}`", case["unit"], f"{case['sum']:.1f}", *beside])
    return markdown(["sum of all GPUs or pairs", "unit", "Gigabar", "nvbandwidth", "speed, to nvbandwidth's"], rows)


def many_gpus_ranks(documents):
    """A job with a rank on each GPU."""
    rows = []
    for result in documents[0]["results"]:
        kind, count = result["measure"], len(documents[0]["devices"])
        if kind == "join":
            rows.append([f"{count} ranks join", f"{result['joined_s']:.2f} s"])
        elif kind == "kill":
            rows.append(["one is killed: others that name it", f"{result['others_that_named_it']} of {count - 1}"])
        elif kind == "matvec_ring":
            rates = [edge["value"] for edge in result["edges"]]
            rows.append(["`gigabar matvec`, each GPU and the next", f"{min(rates):.2f} to {max(rates):.2f} million vectors/s"])
        else:
            rows.append([f"`{' '.join(result['command'])}`", f"{result['gb_per_s']:.1f} GB/s together"])
    return markdown(["a rank on each GPU", ""], rows)


SUMMARIES = {"round-trips": round_trips, "readback": readback, "queue-threads": queue_threads,
             "headlines": headlines, "ucx": ucx, "clients-notes": clients_notes, "h100-ranks": h100_ranks}
# Tables of several files: name of the table -> (maker, files in the order of the rows).
SETS = {
    "h200-streams": (
        streams,
        [f"h200-streams-{name}" for name in ("h2d", "d2h", "both", "two", "nvlink-one", "nvlink-kernel", "nvlink-both", "six", "cpu", "small")],
    ),
    "h200-streams-latency": (streams_latency, ["h200-streams-idle-latency", "h200-streams-loaded-latency"]),
    "h200-streams-sweep": (streams, ["h200-streams-sweep"]),
    "h200-streams-presets": (streams_presets, ["h200-streams-presets"]),
    "many-gpus": (many_gpus, ["many-gpus"]),
    "many-gpus-pairs": (many_gpus_pairs, ["many-gpus-pairs"]),
    "many-gpus-presets": (many_gpus_presets, ["many-gpus-presets"]),
    "many-gpus-ranks": (many_gpus_ranks, ["many-gpus-ranks"]),
}

TOOLS = {function.__name__: function for function in (copylat, copybw, apiperf, sanity, survey, hosts, latency, bw, builds_in_turns, ranks_in_turns, tcp_in_turns,
                                                        kernels, nvshmem,
                                                        matvec, pingpong, store_order)}


BUILD_COMMANDS = [("run", "`./run`"), ("quick", "`./test --quick`"), ("test", "`./test`"), ("ci", "`.ci/run`")]
BARE_SYSTEMS = [("debian12", "`./run` in a bare Debian 12"), ("debian13", "`./run` in a bare Debian 13")]


def build_time(document):
    """Seconds of each command, before and after; a command that was not measured has no row."""
    before = json.loads((RESULTS / "build-time-before.json").read_text())
    rows = []
    for key, name in BUILD_COMMANDS + BARE_SYSTEMS:
        after = document["results"].get(key)
        if after is None:
            continue
        if after["exit_status"] != 0:
            raise BadResult(f"{key}: it ended with {after['exit_status']}")
        then = before["results"].get(key, {})
        slowest = after["slowest"][0] if after["slowest"] else None
        rows.append([name, str(round(then["seconds"])) if then else "", str(round(after["seconds"])), str(round(after["processor_s"])),
                     f"{slowest['seconds']:.0f}" if slowest else ""])
    header = ["", f"before ({before['results']['run']['revision']}), s", "now, s", "processor-seconds", "slowest file, s"]
    machine = document["machine"]
    dates = sorted(result["date"][:10] for result in document["results"].values())
    return f"{markdown(header, rows)}\n\n{machine['processors']} processors ({machine['processor']}), {machine['system']}, {machine['compiler']}; {dates[-1]}; `bench/build_time.py`"


def python_calls(document):
    """What a call costs in C++ and in Python, on one kind of memory."""
    rows = []
    for result in document["results"]:
        count, samples = result["writes_per_call"], result["samples_ns"]
        call = f"`{result['call'].removeprefix('C++ ')}`" + (", C++" if result["call"].startswith("C++") else "") + (f", {count} at once" if count > 1 else "")
        call += f", a tensor of {result['tensor_of']}" if result.get("tensor_of") else ""
        rows.append([call, f"{result['median_ns']:.1f}", f"{min(samples):.1f}", f"{max(samples):.1f}"])
    device, machine, versions = document["device"], document["machine"], document["versions"]
    header = [f"processor time, ns for each write of {document['results'][0]['bytes']} bytes", "median", "least", "most"]
    caption_line = (f"{device['name']}; {machine['cores']} × {machine['cpu']}; Python {versions['python']}; {document['date'][:10]}; "
                    f"`{command_of(document)}`")
    return f"{markdown(header, rows)}\n\n{caption_line}"


def mutants(document):
    """What became of planted changes, by component, and why some lived."""
    rows, reasons = [], []
    results = document["results"]
    for component in dict.fromkeys(result["component"] for result in results):
        own = [result for result in results if result["component"] == component]
        lived = [result for result in own if result["result"] == "lived"]
        reasons += [f"`{result['name']}` lived: {result['may_live'] or 'no test notices it'}." for result in lived]
        rows.append([component, str(len(own)), str(len(own) - len(lived)), str(len(lived))])
    rows.append(["all", *(str(sum(int(row[i]) for row in rows)) for i in (1, 2, 3))])
    machine = document["machine"]
    caption_line = f"{machine['processors']} processors ({machine['cpu']}); revision {document['revision']}; {document['date'][:10]}; `bench/mutants.py`"
    return "\n\n".join([markdown(["component", "planted", "died", "lived"], rows), *reasons, caption_line])


def set_of(name):
    make, files = SETS[name]
    documents = []
    try:
        for file in files:
            path = RESULTS / f"{file}.json"
            documents.append(json.loads(path.read_text()))
        commands = list(dict.fromkeys(f"`{command_of(document)}`" for document in documents if len(command_of(document)) < 200))
        line = f"{caption_of_set(documents)}" + (f"; {', '.join(commands)}" if commands else "")
        return f"{make(documents)}\n\n{line}"
    except OSError:
        return "_Not measured yet._"
    except (BadResult, KeyError, TypeError, IndexError, ValueError, StopIteration) as error:
        sys.exit(f"{path.relative_to(ROOT)}: {type(error).__name__}: {error}")


def table(name):
    if name in SETS:
        return set_of(name)
    if name in SUMMARIES:
        return SUMMARIES[name]()
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return "_Not measured yet._"
    try:
        document = json.loads(path.read_text())
        if document["tool"] == "build_time":
            return build_time(document)
        if document["tool"] == "mutants":
            return mutants(document)
        if document["tool"] == "python_calls":
            return python_calls(document)
        if document["tool"] == "clients":
            return f"{clients(document)}\n\n{caption_of_clients(document)}"
        if document["tool"] == "perftest":
            return f"{perftest(document)}\n\n{caption_of_perftest(document)}"
        if document["device"] and document["device"]["is_stand_in"]:
            raise BadResult("figures of a stand-in device say nothing about a GPU")
        text = TOOLS[document["tool"]](document)
        return text if document["tool"] == "sanity" and not document["mapping"] else f"{text}\n\n{caption(document)}"
    except (BadResult, KeyError, TypeError, IndexError, ValueError) as error:
        sys.exit(f"{path.relative_to(ROOT)}: {type(error).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a table is not what its file says")
    check = parser.parse_args().check

    stale, count = [], 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        before = page.read_text()
        for marker in re.findall(r"<!-- table:([\w-]+) -->", before):
            if f"<!-- /table:{marker} -->" not in before:
                sys.exit(f"{page.relative_to(ROOT)}: table:{marker} has no end")
        after, found = MARKED.subn(lambda match: f"{match[1]}{table(match[2])}\n{match[4]}", before)
        count += found
        if after != before:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(after)
    if check and stale:
        sys.exit(f"tables differ from bench/results in {', '.join(stale)}; run bench/tables.py")
    print(f"{count} tables, " + ("all as in bench/results" if not stale else f"written: {', '.join(stale)}"))


if __name__ == "__main__":
    main()
