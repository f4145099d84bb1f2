// SPDX-License-Identifier: GPL-2.0
// BAR 2 of QEMU's ivshmem-plain device as /dev/fakegpu: it plays a GPU's memory. The BAR gets struct pages, so that
// get_user_pages(), and with it ibv_reg_mr(), accepts mappings of it. lseek to the end tells its size.
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>

enum { kBar = 2 };

// One device is enough; a second one is refused.
static void* base;
static size_t length_bytes;

static int fakegpu_mmap(struct file* file, struct vm_area_struct* area) {
  const size_t bytes = area->vm_end - area->vm_start;
  const size_t offset_bytes = (size_t)area->vm_pgoff << PAGE_SHIFT;
  size_t done_bytes;

  if (area->vm_pgoff > length_bytes >> PAGE_SHIFT || bytes > length_bytes - offset_bytes) return -EINVAL;
  for (done_bytes = 0; done_bytes < bytes; done_bytes += PAGE_SIZE) {
    const int code = vm_insert_page(area, area->vm_start + done_bytes, virt_to_page(base + offset_bytes + done_bytes));
    if (code) return code;
  }
  return 0;
}

static loff_t fakegpu_llseek(struct file* file, loff_t offset, int whence) {
  return fixed_size_llseek(file, offset, whence, (loff_t)length_bytes);
}

static const struct file_operations operations = {.owner = THIS_MODULE, .mmap = fakegpu_mmap, .llseek = fakegpu_llseek};
static struct miscdevice device = {.minor = MISC_DYNAMIC_MINOR, .name = "fakegpu", .fops = &operations, .mode = 0666};

static int fakegpu_probe(struct pci_dev* pci, const struct pci_device_id* id) {
  struct dev_pagemap* map;
  int code;

  if (base) return -EBUSY;
  code = pcim_enable_device(pci);
  if (code) return code;
  pci_set_master(pci);
  map = devm_kzalloc(&pci->dev, sizeof(*map), GFP_KERNEL);
  if (!map) return -ENOMEM;
  map->type = MEMORY_DEVICE_GENERIC;
  map->range.start = pci_resource_start(pci, kBar);
  map->range.end = pci_resource_end(pci, kBar);
  map->nr_range = 1;
  base = devm_memremap_pages(&pci->dev, map);
  if (IS_ERR(base)) {
    code = PTR_ERR(base);
    base = NULL;
    dev_err(&pci->dev, "no pages for the BAR: %d\n", code);
    return code;
  }
  length_bytes = pci_resource_len(pci, kBar);
  code = misc_register(&device);
  if (code) base = NULL;
  return code;
}

static void fakegpu_remove(struct pci_dev* pci) {
  misc_deregister(&device);
  base = NULL;
}

static const struct pci_device_id ids[] = {{PCI_DEVICE(0x1af4, 0x1110)}, {}};
MODULE_DEVICE_TABLE(pci, ids);
static struct pci_driver fakegpu_driver = {.name = "fakegpu", .id_table = ids, .probe = fakegpu_probe, .remove = fakegpu_remove};
module_pci_driver(fakegpu_driver);
MODULE_DESCRIPTION("memory of a stand-in GPU");
MODULE_LICENSE("GPL");
