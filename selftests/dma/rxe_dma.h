/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What every file of rxe's copy includes first, see scripts/dma-device.sh.
 */
#ifndef RXE_DMA_H
#define RXE_DMA_H

#include <linux/dma-direct.h>
#include <linux/mm.h>
#include <rdma/ib_verbs.h>

/* The device for which memory is mapped, made once; NULL if it cannot be made. */
struct device *rxe_dma_device(void);

void rxe_dma_device_unregister(void);

/* The page that a DMA address of the device is in: that of a bounce buffer, perhaps. */
static inline struct page *rxe_dma_to_page(struct ib_device *dev, dma_addr_t addr)
{
	return pfn_to_page(PHYS_PFN(dma_to_phys(dev->dma_device, addr)));
}

#endif
