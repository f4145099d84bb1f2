# SPDX-License-Identifier: Apache-2.0
"""One module for each constructed machine; build() returns it finished."""

import importlib

NAMES = ("hgx_h200", "workstation_geforce", "grace_hopper", "epyc_nps4", "vm_passthrough", "container_no_infiniband",
         "acs_redirect", "iommu_translating", "link_x8", "worn", "no_gpu", "unprivileged", "equal_nics", "stale_gdrdrv",
         "gdrdrv_of_nobody", "gdrdrv_folder", "stale_uvm", "refused_nodes", "fallen_gpu", "limited_member", "elastic_fabric")


def build(name):
    return importlib.import_module(f"{__name__}.{name}").build()
