"""One module for each constructed machine; build() returns it finished."""

import importlib

NAMES = ("hgx_h200", "workstation_geforce", "grace_hopper", "epyc_nps4", "vm_passthrough", "container_no_infiniband",
         "acs_redirect", "iommu_translating", "link_x8", "worn", "no_gpu", "unprivileged")


def build(name):
    return importlib.import_module(f"{__name__}.{name}").build()
