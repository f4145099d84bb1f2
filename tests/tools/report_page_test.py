#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `gigabar report` in a headless Chromium: nothing overlaps or overflows from 360 to 1600 px and on paper, and contrasts are those
of WCAG AA, in light and dark. Options and exit status as command_line_test.py, and 77 where there is no Chromium.

GIGABAR_SCREENSHOTS=FOLDER keeps what it has seen.
"""

import copy
import json
import os
import sys

import browser
import command_line_test as shared
import report_test
from command_line_test import expect, run
from report_test import RESULTS, in_folder, result, written

WIDTHS = (360, 480, 601, 768, 1024, 1600)
PAPER = 718  # A4 between its margins, at 96 dots an inch
# What is wrong with the page as it is shown. Text: each line of each text. Lines of a drawing: of the page's style sheet.
MEASURE = r"""
(() => {
  const problems = [];
  const shown = (element) => element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  const name = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 50)}"`;
  const numbers = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => { const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor, alpha = numbers(colour)[3];
      if (alpha === undefined || alpha === 1) return colour;
      if (alpha !== 0) problems.push(`a half transparent background: ${colour}`);
    }
    return "rgb(255, 255, 255)";
  };
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) problems.push(`the page is ${page.scrollWidth} wide on ${innerWidth}`);

  const lines = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0, drawn = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("style") || !shown(element)) continue;
    ++texts;
    const style = getComputedStyle(element), isDrawn = !!element.closest("svg");
    drawn += isDrawn;
    const colour = isDrawn ? style.fill : style.color, size = parseFloat(style.fontSize);
    const least = !isDrawn && (size >= 24 || (size >= 18.66 && style.fontWeight >= 700)) ? 3 : 4.5;
    const contrast = ratio(colour, behind(element));
    if (!(contrast >= least)) problems.push(`contrast ${contrast.toFixed(2)} of ${name(node.data)}: ${colour} on ${behind(element)}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = element.closest(".scroll"), limit = box && box.getBoundingClientRect();
    for (const rect of range.getClientRects()) {
      let {left, right, top, bottom} = rect;
      if (limit && SCREEN) { left = Math.max(left, limit.left); right = Math.min(right, limit.right); }
      if (right - left < 1 || bottom - top < 1) continue;
      const isRotated = isDrawn && bottom - top > 2 * (right - left);
      if ((isRotated ? right - left : bottom - top) < 10) problems.push(`${name(node.data)} is ${(bottom - top).toFixed(1)} px high`);
      if (left < -0.5 || right > innerWidth + 0.5) problems.push(`${name(node.data)} reaches from ${left.toFixed()} to ${right.toFixed()} of ${innerWidth}`);
      lines.push({left, right, top, bottom, node});
    }
  }
  lines.sort((one, other) => one.top - other.top);
  lines.forEach((line, index) => {
    for (let next = index + 1; next < lines.length && lines[next].top < line.bottom - 3; ++next) {
      const other = lines[next];
      if (other.node !== line.node && Math.min(line.right, other.right) - Math.max(line.left, other.left) > 1)
        problems.push(`${name(line.node.data)} and ${name(other.node.data)} overlap`);
    }
  });

  // Boxes, cards, bars and drawings stay inside what they are in.
  for (const element of document.querySelectorAll(".box, .cards li, .bar, .frame, .finding, .drawing svg, .legend li, .notice")) {
    if (!shown(element)) continue;
    const own = element.getBoundingClientRect(), outer = element.parentElement.getBoundingClientRect();
    if (own.right > outer.right + 1 || own.left < outer.left - 1) problems.push(`${element.className.baseVal ?? element.className} ${name(element.textContent)} leaves its parent`);
    for (const other of element.parentElement.children) {
      if (other === element || !shown(other)) continue;
      const its = other.getBoundingClientRect();
      if (Math.min(own.right, its.right) - Math.max(own.left, its.left) > 1 && Math.min(own.bottom, its.bottom) - Math.max(own.top, its.top) > 1)
        problems.push(`${name(element.textContent)} and ${name(other.textContent)} overlap as boxes`);
    }
  }
  const paper = behind(document.body);
  let curves = 0;
  for (const path of document.querySelectorAll(".drawing path")) {
    const stroke = path.style.stroke;
    if (!shown(path) || !/series|limit/.test(stroke)) continue;
    ++curves;
    if (!(ratio(getComputedStyle(path).stroke, paper) >= 3)) problems.push(`a line with contrast ${ratio(getComputedStyle(path).stroke, paper).toFixed(2)}`);
  }
  for (const fill of document.querySelectorAll(".fill")) {
    const contrast = ratio(getComputedStyle(fill).backgroundColor, behind(fill.parentElement));
    if (!(contrast >= 3)) problems.push(`a bar with contrast ${contrast.toFixed(2)}`);
  }
  return {problems: [...new Set(problems)].slice(0, 12), texts, drawn, curves, paper};
})()
"""


def sick_doctor():
    document = result("h200-doctor")
    for finding, verdict in zip(document["results"], ("FAIL", "FAIL", "WARN", "UNKNOWN")):
        finding.update(verdict=verdict, needs_reboot=True, remedy="write options nvidia NVreg_" + "EnableSomethingWithAVeryLongName" * 3 + "=1 into a file",
                       readings=[{"source": "/sys/bus/pci/devices/0000:17:00.0/" + "a_long_folder/" * 8, "value": "0x" + "f" * 90}])
    document["machine"]["host"] = "a-host-with-a-long-name.rack-17.row-3.example.invalid"
    return written("a-doctor-with-a-long-name-of-a-file.json", document)


def large_machine():
    """Eight GPUs and eight NICs below switches of two nodes, all joined."""
    document = result("many-gpus-topology")
    machine = document["results"][0]
    machine["numa_nodes"] = [{**machine["numa_nodes"][0], "index": index} for index in (0, 1)]
    link = {"gt_per_s": 32, "width": 16, "most_gt_per_s": 32, "most_width": 16}
    machine["pci"], machine["gpus"], machine["nics"] = [], [], []

    def add(address, parent, node):
        machine["pci"].append({"address": address, "vendor": 1, "device": 1, "class_code": 1, "name": None, "is_bridge": True, "parent": parent, "root_complex": f"pci{node}",
                               "numa_node": node, "link": link, "driver": None})
        return len(machine["pci"]) - 1

    for switch in range(4):
        node = switch // 2
        root = add(f"0000:{switch}0:00.0", None, node)
        top = add(f"0000:{switch}1:00.0", root, node)
        for port in range(2):
            below = add(f"0000:{switch}{port + 2}:00.0", top, node)
            index = 2 * switch + port
            machine["gpus"].append({"pci": add(f"0000:{switch}{port + 4}:00.0", below, node), "address": f"0000:{switch}{port + 4}:00.0", "cuda_index": index,
                                    "name": "NVIDIA H100 80GB HBM3", "uuid": None, "numa_node": node, "is_coherent": False, "nvlinks_active": 18, "nvlinks_total": 18})
            ports = [{"number": 1, "state": "active", "link_layer": "InfiniBand", "rate_gbit_per_s": 400, "active_mtu_bytes": 4096, "gids": []}]
            machine["nics"].append({"pci": add(f"0000:{switch}{port + 6}:00.0", below, node), "name": f"mlx5_{index}", "rdma_device": f"mlx5_{index}", "driver": "mlx5_core",
                                    "numa_node": node, "rate_gbit_per_s": 400, "ports": ports, "net_devices": [{"name": f"ib{index}", "state": "up", "mtu_bytes": 4096, "gbit_per_s": 400}]})
    ends = [("gpu", index) for index in range(8)] + [("nic", index) for index in range(8)]
    machine["routes"] = [{"first": {"kind": one[0], "index": one[1]}, "second": {"kind": other[0], "index": other[1]}, "relation": "same_switch", "symbol": "PXB", "nvlink_count": 0,
                          "gb_per_s": 63.015, "bottleneck": "PCIe 5.0 x16", "hops": []} for place, one in enumerate(ends) for other in ends[place + 1:]]
    machine["nearest_nics"] = [{"gpu": index, "nics": [index], "reason": "the nearest"} for index in range(8)]
    document["machine"]["host"] = "large"
    return written("large.json", document)


def page():
    """One with everything in it."""
    latency = result("h200-ranks-write")
    slower = copy.deepcopy(latency)
    for each in slower["results"]:
        for key in ("min_us", "p50_us", "p99_us"):
            each[key] *= 1.7
    before = [written("last-week.json", latency), str(RESULTS / "h200-nobody-survey.json")]
    now = [written("today.json", slower), sick_doctor(), large_machine()]
    now += [str(RESULTS / f"h200-{name}.json") for name in ("survey", "topology", "streams-six", "streams-sweep", "streams-presets", "ranks-send", "ranks-bw", "ranks-staged")]
    own = report_test.of_this_program(("preflight", "streams"))
    output = in_folder("page.html")
    outcome = run("report", *now, *own.values(), "-o", output, "--before", *before)
    expect(outcome.status == 0, "report", outcome)
    return output


def opened():
    if browser.program() is None:
        print("no Chromium: install chromium")
        sys.exit(77)
    return browser.Browser()


def measured(window, width, scheme, media="screen"):
    window.look(width, scheme, media)
    return window.evaluate(MEASURE.replace("SCREEN", "true" if media == "screen" else "false"))


def keep(window, name):
    if folder := os.environ.get("GIGABAR_SCREENSHOTS"):
        os.makedirs(folder, exist_ok=True)
        window.screenshot(os.path.join(folder, f"{name}.png"))


def test_report_page_is_laid_out_at_every_width():
    with opened() as window:
        window.open(page())
        for is_unfolded, widths in ((False, WIDTHS), (True, (360, 768, 1600))):
            window.evaluate(f"document.querySelectorAll('details').forEach((each) => {{ each.open = {'true' if is_unfolded else 'false'}; }})")
            for width in widths:
                for scheme in ("light", "dark") if width in (360, 1600) else ("light",):
                    found = measured(window, width, scheme)
                    where = f"{width} px, {scheme}, {'unfolded' if is_unfolded else 'folded'}"
                    expect(not found["problems"], f"{where}: {json.dumps(found['problems'], indent=1, ensure_ascii=False)}")
                    expect(found["texts"] > 400 and found["drawn"] > 30 and found["curves"] > 15, f"{where}: little was looked at: {found}")
                    expect(found["paper"] == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 22, 27)"), f"{where}: the paper is {found['paper']}")
                    keep(window, f"{width}-{scheme}-{'unfolded' if is_unfolded else 'folded'}")


def test_report_page_is_laid_out_on_paper():
    with opened() as window:
        window.open(page())
        for scheme in ("light", "dark"):
            found = measured(window, PAPER, scheme, "print")
            expect(not found["problems"], f"on paper: {json.dumps(found['problems'], indent=1, ensure_ascii=False)}")
            expect(found["paper"] == "rgb(255, 255, 255)", f"the paper is {found['paper']} where the screen is {scheme}")
            expect(window.evaluate("document.querySelector('nav').checkVisibility()") is False, "links of a screen are printed")
            keep(window, f"paper-{scheme}")
        # What is folded on a screen is printed.
        reading = "document.querySelector('.finding details table').checkVisibility({contentVisibilityAuto: true})"
        expect(window.evaluate(reading), "what was read is not printed")
        window.print_to_pdf(in_folder("page.pdf"))
        with open(in_folder("page.pdf"), "rb") as file:
            expect(file.read(5) == b"%PDF-", "no PDF")


def test_report_page_faults_are_found():
    """Of the measurement itself: each of these is a fault that it has to see."""
    planted = {"contrast": ".badge.warn { color: #d9a441 !important; }", "overlap": ".cards li { margin-bottom: -2rem; }", "wide on": "h1 { width: 1700px; }",
               "a line with contrast": ":root { --series-1: #cfe3ff; }", "px high": ".drawing { width: 60%; }", "leaves its parent": ".frame { width: calc(100% + 0.4rem); }",
               "a bar with contrast": ":root { --fill: #dde6f0; }", "reaches from": ".fine { position: relative; left: -20rem; }"}
    with opened() as window:
        window.open(page())
        expect(not measured(window, 360, "light")["problems"], "a page without faults has some")
        for words, style in planted.items():
            window.evaluate(f"(() => {{ const style = document.createElement('style'); style.id = 'planted'; style.textContent = {json.dumps(style)}; document.head.append(style); }})()")
            found = measured(window, 360, "light")["problems"]
            expect(any(words in problem for problem in found), f"'{words}' is not found with {style}: {found}")
            window.evaluate("document.getElementById('planted').remove()")


def test_report_page_can_be_read_without_colour():
    """Every verdict and change has a sign and a word; lines differ by markers and dashes."""
    with opened() as window:
        window.open(page())
        window.look(1600)
        badges = window.evaluate("[...document.querySelectorAll('.badge')].map((each) => each.textContent.trim())")
        expect(len(badges) > 60, f"{len(badges)} signs")
        for text in badges:
            expect(len(text.split()) >= 2 and any(letter.isalpha() for letter in text), f"a verdict without a sign or a word: {text!r}")
        marks = window.evaluate("""[...document.querySelectorAll('.legend')].map((legend) => [...legend.querySelectorAll('.swatch')].map(
            (swatch) => swatch.innerHTML.replace(/(stroke|fill)="var\\(--series-\\d\\)"/g, "")))""")
        for legend in marks:
            expect(len(set(legend)) == len(legend), f"lines that only their colour tells apart: {legend}")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
