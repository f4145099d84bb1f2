#!/usr/bin/env python3
"""Writes the tables of measured figures into README.md and docs/*.md from the JSON files in bench/results.

What stands between '<!-- table:NAME -->' and '<!-- /table:NAME -->' is made from bench/results/NAME.json, as `gigabar TOOL --json`
wrote it; the tool in the file says what kind of table it is. With --check nothing is written, and the exit status is 1 when a table
is not what its file says.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
MARKED = re.compile(r"(<!-- table:([\w-]+) -->\n)(.*?)(<!-- /table:\2 -->)", re.DOTALL)
# What a reader compares; the JSON has every size.
SHOWN_BYTES = [1, 8, 64, 512, 4096, 65536, 1 << 20, 1 << 24]
DIRECTIONS = ["to_device", "from_device"]


class BadResult(Exception):
    """A file in bench/results that no table can be made of."""


def bytes_text(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def us(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


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


def pplat(document):
    rows = [
        [bytes_text(result["data_bytes"]) if result["data_bytes"] else "flag only", us(result["p50_us"]), us(result["p99_us"]), us(result["min_us"])]
        for result in document["results"]
    ]
    return markdown(["CPU → GPU → CPU, µs", "p50", "p99", "min"], rows)


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


TOOLS = {function.__name__: function for function in (copylat, copybw, pplat, apiperf, sanity)}


def caption(document):
    device, machine = document["device"], document["machine"]
    # Where the figures were written is of no interest.
    command = re.sub(r" --json[ =]\S+", "", " ".join(["gigabar", *document["command"][1:]]))
    return (
        f"{device['name']}, {device['driver']}; {machine['cpu']}; mapping `{document['mapping']['backend']}`, "
        f"{document['mapping']['type'].replace('_', '-')}; user `{machine['user']}`; {document['date'][:10]}; `{command}`"
    )


def table(name):
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return "_Not measured yet._"
    try:
        document = json.loads(path.read_text())
        if document["device"]["is_stand_in"]:
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
