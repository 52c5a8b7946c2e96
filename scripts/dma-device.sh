#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: dma-device.sh KERNEL
#
# Builds a software RDMA device whose users map memory for DMA, and prints the module's file. The
# kernel's own ones get pointers, so that nothing there shows a mapping that is missing, that has the
# wrong direction, or that is not synchronised. It is a copy of rxe, from the source of the series of
# KERNEL, with five changes and the files of selftests/dma. It goes by rxe's own name, in its place.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${1:?usage: dma-device.sh KERNEL}
"$here/kernel.sh" "$kernel" >&2
rxe=${KSRC:-$KERNELS/src}/drivers/infiniband/sw/rxe
copy=$KERNELS/build/$kernel-dma-source

# Changes what a pattern matches in a file of the copy: change FILE COUNT PATTERN REPLACEMENT.
change() {
	local found
	found=$(grep -c -- "$3" "$copy/$1" || true)
	[ "$found" -eq "$2" ] || die "rxe of kernel $SERIES has '$3' $found times in $1, not $2 times: see what its copy needs now"
	sed -i "s/$3/$4/" "$copy/$1"
}

rm -rf "$copy"
mkdir -p "$copy"
cp "$rxe"/{*.[ch],Makefile} "$PROJECT"/selftests/dma/*.[ch] "$copy/"
change rxe_mr.c 4 'ib_virt_dma_to_page(' 'rxe_dma_to_page(mr->ibmr.device, '
change rxe_verbs.c 1 'ib_register_device(dev, ibdev_name, NULL)' 'ib_register_device(dev, ibdev_name, rxe_dma_device())'
change rxe.c 1 'ib_unregister_driver(RDMA_DRIVER_RXE);' '&\n\trxe_dma_device_unregister();'
cat >>"$copy/Makefile" <<'END'
rdma_rxe-y += rxe_dma.o
ccflags-y += -include $(src)/rxe_dma.h
END
SOURCE=$copy VARIANT=$kernel-dma "$here/module.sh" "$kernel" >&2
printf '%s\n' "$KERNELS/build/$kernel-dma/rdma_rxe.ko"
