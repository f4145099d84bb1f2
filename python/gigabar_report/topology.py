# SPDX-License-Identifier: Apache-2.0
"""A machine as nested boxes (NUMA nodes, PCI bridges, devices) and a matrix of how any two devices are joined."""

from .html import counted, element, number_text, table

GENERATIONS = {2.5: "1.0", 5: "2.0", 8: "3.0", 16: "4.0", 32: "5.0", 64: "6.0"}


def link_text(link):
    """At the speed that both ends can do: idle devices lower theirs. And whether it is narrower than they can."""
    if link is None or not link.has("width") or not link.has("gt_per_s"):
        return None, None
    width, best = link.number("width"), link.number("most_width", 0)
    speed = max(link.number("gt_per_s"), link.number("most_gt_per_s", 0))
    generation = GENERATIONS.get(speed)
    text = f"PCIe {generation} x{width:.0f}" if generation else f"PCIe {number_text(speed)} GT/s x{width:.0f}"
    return text, f"{width:.0f} of {best:.0f} lanes" if best > width else None


class Machine:
    """The parts of the tree that hold a GPU or a NIC."""

    def __init__(self, topology):
        self.pci, self.gpus, self.nics = (topology.nodes(key) for key in ("pci", "gpus", "nics"))
        self.numa_nodes = topology.nodes("numa_nodes")
        self.devices = {}  # by index into pci
        self.unplaced = []
        for kind, devices in (("gpu", self.gpus), ("nic", self.nics)):
            for index, device in enumerate(devices):
                place = device.number("pci", None)
                if place is not None and 0 <= place < len(self.pci):
                    self.devices.setdefault(int(place), []).append((kind, index, device))
                else:
                    self.unplaced.append((kind, index, device))
        self.children, self.roots, self.is_kept = {}, [], set()
        for place in self.devices:
            self._keep(place)

    def _keep(self, place):
        """It and what is above it, each below its parent."""
        while place not in self.is_kept:
            self.is_kept.add(place)
            parent = self.pci[place].number("parent", None)
            if parent is None or not 0 <= parent < len(self.pci) or int(parent) == place:
                self.roots.append(place)
                return
            self.children.setdefault(int(parent), []).append(place)
            place = int(parent)

    def numa_node_of(self, place):
        known = self.pci[place].number("numa_node", None)
        for _, _, device in self.devices.get(place, []):
            known = known if known is not None else device.number("numa_node", None)
        for child in self.children.get(place, []):
            known = known if known is not None else self.numa_node_of(child)
        return known


def gpu_name(index, gpu):
    return f"GPU {int(gpu.number('cuda_index', index))}"


def nic_name(nic):
    return nic.text("rdma_device", None) or nic.text("name")


def _device_box(kind, index, device, link):
    link_name, narrowed = link_text(link)
    lines = []
    if kind == "gpu":
        title = [element("strong", gpu_name(index, device)), " ", device.text("name", "")]
        lines.append(device.text("address", ""))
        if device.number("nvlinks_total", 0):
            lines.append(f"NVLink: {device.number('nvlinks_active', 0):.0f} of {device.number('nvlinks_total'):.0f} active")
    else:
        title = [element("strong", "NIC"), " ", nic_name(device)]
        for port in device.nodes("ports"):
            rate = port.number("rate_gbit_per_s", None)
            lines.append(f"port {port.number('number', 0):.0f}: {port.text('link_layer', None) or 'RDMA'}, {port.text('state', None) or 'state unknown'}" +
                         (f", {number_text(rate)} Gbit/s" if rate else ""))
        lines += [f"{each.text('name')}: {each.text('state', None) or 'state unknown'}" for each in device.nodes("net_devices")]
    if link_name:
        lines.append(link_name)
    if narrowed:
        lines.append(element("span", element("span", "!", aria_hidden="true"), " narrowed: ", narrowed, class_="badge warn"))
    return element("div", element("div", title), [element("div", line, class_="fine") for line in lines if line], class_=f"box {kind}")


def _subtree(machine, place, depth=0):
    """A bridge with one way on is no box of its own. Nothing here is deeper than the list is long, and boxes end at a depth that fits a page."""
    while True:
        own = [_device_box(*device, machine.pci[place].node("link")) for device in machine.devices.get(place, [])]
        below = machine.children.get(place, [])
        if own or len(below) != 1:
            break
        place = below[0]
    if not below:
        return own
    inner = own + [_subtree(machine, child, depth + 1) for child in below]
    if depth > 8:
        return inner
    text, _ = link_text(machine.pci[place].node("link"))
    title = f"PCI bridge {machine.pci[place].text('address', '')}" + (f", {text}" if text else "")
    return element("div", element("div", title, class_="title"), element("div", inner, class_="boxes"), class_="box bridge")


def _numa_box(title, parts):
    return element("div", element("div", title, class_="title"), element("div", parts or element("div", "no GPU or NIC", class_="fine"), class_="boxes"), class_="box numa")


def _cpus_text(cpus):
    """0-7,16"""
    ranges = []
    for cpu in sorted(int(each) for each in cpus if each is not None):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def boxes(topology):
    machine = Machine(topology)
    found = []
    for numa in machine.numa_nodes:
        index = numa.number("index")
        below = [_subtree(machine, root) for root in machine.roots if machine.numa_node_of(root) == index]
        below += [_device_box(*device, None) for device in machine.unplaced if device[2].number("numa_node", None) == index]
        cpus = _cpus_text(numa.numbers("cpus"))
        memory = numa.number("memory_bytes", 0) / (1 << 30)
        found.append(_numa_box(f"NUMA node {index:.0f}: " + (f"CPUs {cpus}, " if cpus else "no CPUs, ") + f"{memory:,.1f} GiB of host memory", below))
    known = {numa.number("index") for numa in machine.numa_nodes}
    lost = [_subtree(machine, root) for root in machine.roots if machine.numa_node_of(root) not in known]
    lost += [_device_box(*device, None) for device in machine.unplaced if device[2].number("numa_node", None) not in known]
    if lost:
        found.append(_numa_box("NUMA node not known", lost))
    return element("div", found, class_="boxes")


def matrix(topology):
    """How any two of the GPUs and NICs are joined, with the rate of the narrowest link each way."""
    ends = [("gpu", index, gpu_name(index, gpu)) for index, gpu in enumerate(topology.nodes("gpus"))]
    ends += [("nic", index, nic_name(nic)) for index, nic in enumerate(topology.nodes("nics"))]
    routes = {}
    for route in topology.nodes("routes"):
        first, second = ([route.node(end).text("kind"), int(route.node(end).number("index"))] if route.node(end) else None for end in ("first", "second"))
        if first and second:
            routes[(*first, *second)] = route
            routes.setdefault((*second, *first), route)
    if len(ends) < 2 or not routes:
        return None

    def cell(row, column):
        if row == column:
            return "–"
        route = routes.get((*row[:2], *column[:2]))
        if route is None:
            return "?"
        rate = route.number("gb_per_s", None)
        return [element("strong", route.text("symbol")), " ", number_text(rate) if rate else "rate not known"]

    rows = [[element("strong", row[2]), *(cell(row, column) for column in ends)] for row in ends]
    symbols = {route.text("symbol"): route.text("relation") for route in routes.values()}
    legend = ", ".join(f"{symbol}: {relation.replace('_', ' ')}" for symbol, relation in sorted(symbols.items()))
    return [table(["", *(end[2] for end in ends)], rows, caption="How any two are joined, and the theoretical rate each way of the narrowest link, GB/s"),
            element("p", legend, class_="fine")]


def nearest(topology):
    gpus, nics = topology.nodes("gpus"), topology.nodes("nics")
    rows = []
    for each in topology.nodes("nearest_nics"):
        gpu = int(each.number("gpu"))
        found = [int(nic) for nic in each.numbers("nics") if nic is not None]
        if 0 <= gpu < len(gpus):
            names = ", ".join(nic_name(nics[nic]) for nic in found if 0 <= nic < len(nics))
            rows.append([gpu_name(gpu, gpus[gpu]), names or "none", each.text("reason", "")])
    return table(["GPU", "nearest NIC", "why"], rows) if rows else None


def drawn(topology):
    notes = topology.texts("could_not_be_found_out")
    counts = f"{counted(len(topology.nodes('gpus')), 'GPU')}, {counted(len(topology.nodes('nics')), 'NIC')}, {counted(len(topology.nodes('numa_nodes')), 'NUMA node')}"
    return [element("p", counts), boxes(topology), matrix(topology), nearest(topology),
            element("p", "Could not be found out: ", "; ".join(notes), class_="fine") if notes else None]


def limit_between(topologies, addresses):
    """The rate and the name of the narrowest link between the GPUs with these two addresses, where one of the topologies has both."""
    for topology in topologies:
        index = {gpu.text("address", ""): number for number, gpu in enumerate(topology.nodes("gpus"))}
        wanted = [index.get(address) for address in addresses]
        if None in wanted:
            continue
        for route in topology.nodes("routes"):
            ends = [route.node(end) for end in ("first", "second")]
            if all(end and end.text("kind") == "gpu" for end in ends) and {end.number("index") for end in ends} == set(wanted) and route.has("gb_per_s"):
                return route.number("gb_per_s"), route.text("bottleneck", None) or route.text("relation")
    return None
