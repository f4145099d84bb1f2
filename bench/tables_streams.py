# SPDX-License-Identifier: Apache-2.0
"""The tables of `gigabar streams`, each made of the documents of one or several runs."""

import re

from tables_text import BadResult, bytes_text, markdown, us


def streams_rows(document):
    """One row per transfer; the overlap and the aggregate of all behind the first."""
    rows = []
    for result in document["results"]:
        if result["error"]:
            raise BadResult(result["error"]["message"])
        totals = {total["group"]: total for total in result["totals"]}
        for index, transfer in enumerate(result["transfers"]):
            if transfer["error"]:
                raise BadResult(transfer["error"]["message"])
            rows.append((index, transfer, totals.get("")))
    return rows


def stream_name(transfer):
    name = re.sub(r" (bytes|iterations|seconds)=\S+", "", transfer["text"])
    return f"`{name}`" + (f", {bytes_text(transfer['bytes'])}" if transfer["executor"] != "flag" else "")


def share(part):
    return f"{100 * part:.1f} %"


def streams(documents):
    """Rates of all files of a set: each run is separated by its command."""
    rows = []
    for document in documents:
        for index, transfer, total in streams_rows(document):
            if not transfer["life_gb_per_s"] or transfer["is_latency"]:
                continue
            if not transfer["is_verified"]:
                raise BadResult(f"{transfer['text']}: the data was not verified")
            figure = transfer["window_gb_per_s"] if transfer["is_background"] else transfer["life_gb_per_s"]
            link = transfer["link"]
            plain = transfer.get("plain_cudaMemcpyAsync_gb_per_s")
            is_first = index == 0 and total and len(document["results"][0]["transfers"]) > 1
            row = [
                stream_name(transfer),
                figure,
                f"{plain['median']:.2f}" if plain else "",
                link["name"],
                transfer["ratio"],
                f"{total['aggregate_gb_per_s']['median']:.1f}" if is_first else "",
                share(total["overlap_percent"]["median"] / 100) if is_first else "",
            ]
            # Equal transfers of one run share a row.
            if index > 0 and rows and rows[-1][0][0] == row[0]:
                rows[-1].append(row)
            else:
                rows.append([row])
    return markdown(["GB/s", "median", "least..most of the runs", "plain cudaMemcpyAsync", "link", "of the link", "all together", "overlap"],
                    [merged(row) for row in rows])


def merged(rows):
    name, _, plain, link, _, aggregate, overlap = rows[0]
    medians = sorted(row[1]["median"] for row in rows)
    least, most = min(row[1]["min"] for row in rows), max(row[1]["max"] for row in rows)
    ratio = sum(row[4] for row in rows) / len(rows) if all(row[4] for row in rows) else None
    return [
        f"{len(rows)} × {name}" if len(rows) > 1 else name,
        f"{medians[len(medians) // 2]:.2f}",
        f"{least:.2f}..{most:.2f}",
        plain,
        link,
        share(ratio) if ratio else "unknown",
        aggregate,
        overlap,
    ]


def streams_latency(documents):
    rows = []
    for document in documents:
        transfers = document["results"][0]["transfers"]
        load = [stream_name(transfer) for transfer in transfers if transfer["is_background"]]
        for transfer in transfers:
            if latency := transfer["latency"]:
                rows.append([stream_name(transfer), " and ".join(load) or "none", us(latency["p50_us"]), us(latency["p99_us"])])
    return markdown(["µs", "load", "p50", "p99"], rows)


def streams_presets(documents):
    rows = []
    for result in documents[0]["results"]:
        for matrix in result["matrices"]:
            figures = [matrix[key] for key in ("min", "max", "sum")]
            name = f"`{result['name']}`" + (f" {matrix['name']}" if matrix["name"] else "")
            rows.append([name, result["unit"]] + [f"{figure:.1f}" if figure is not None else "" for figure in figures])
    return markdown(["test case", "unit", "least", "most", "sum"], rows)


def caption_of_set(documents):
    first = documents[0]
    devices, machine = first["devices"], first["machine"]
    driver = next(entry["reason"] for entry in first["drivers"] if entry["name"] == "resource manager")
    same = {(document["machine"]["cpu"], tuple(device["name"] for device in document["devices"])) for document in documents}
    if len(same) != 1:
        raise BadResult("the files of one table are of different machines")
    if any(document["is_stand_in"] for document in documents):
        raise BadResult("figures of a stand-in device say nothing about a GPU")
    return f"{len(devices)} × {devices[0]['name']}, {driver}; {machine['cpu']}; user `{machine['user']}`; {first['date'][:10]}"
