// SPDX-License-Identifier: GPL-2.0
/*
 * The device for which the RDMA core maps memory when rxe's copy is used. With it, users of the copy
 * get DMA addresses from the DMA API; rxe itself has none and gets pointers.
 */
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>

#include "rxe_dma.h"

static bool keep_offsets = true;
module_param(keep_offsets, bool, 0444);
MODULE_PARM_DESC(keep_offsets, "bounce buffers begin where in a page their memory begins");

static DEFINE_MUTEX(rxe_dma_mutex);
static struct platform_device *rxe_dma;

struct device *rxe_dma_device(void)
{
	struct platform_device *made;

	guard(mutex)(&rxe_dma_mutex);
	if (!rxe_dma) {
		made = platform_device_register_simple("rxe_dma", PLATFORM_DEVID_NONE, NULL, 0);
		if (IS_ERR(made))
			return NULL;
		if (dma_coerce_mask_and_coherent(&made->dev, DMA_BIT_MASK(64))) {
			platform_device_unregister(made);
			return NULL;
		}
		/* Of a region all pages but the first and the last are whole. */
		if (keep_offsets)
			dma_set_min_align_mask(&made->dev, PAGE_SIZE - 1);
		dma_set_max_seg_size(&made->dev, UINT_MAX);
		rxe_dma = made;
	}
	return &rxe_dma->dev;
}

void rxe_dma_device_unregister(void)
{
	platform_device_unregister(rxe_dma);
}
