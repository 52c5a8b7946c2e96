# SPDX-License-Identifier: GPL-2.0
#
# The person's entry: what kbuild reads is Kbuild beside it.

RUSTC ?= rustc
BINDGEN ?= bindgen
INSTALL_MOD_DIR ?= updates
VECTORS ?= selftests/vectors/vectors.tsv
S := $(CURDIR)/scripts
# The first and the last versions that this was built with (scripts/check-kernels.sh).
TRIED_LINUX = 7.2 7.3
TRIED_RUSTC = 1.85 1.97
space := $() $()

# A module must be built by the compiler that built its kernel, which the tree names.
conf = $(KDIR)/include/config/auto.conf
setting = $(shell sed -n 's/^$(1)="\{0,1\}\([^"]*\)"\{0,1\}$$/\1/p' $(conf) 2>/dev/null)
ifneq ($(KDIR),)
ifneq ($(call setting,CONFIG_CC_IS_GCC),)
tool = $(if $(filter command% environment%,$(origin CC)),,CC=$(firstword $(call setting,CONFIG_CC_VERSION_TEXT)))
else
tool = LLVM=$(or $(LLVM),$(addprefix -,$(shell expr $(call setting,CONFIG_CLANG_VERSION) / 10000 2>/dev/null)))
endif
ifneq ($(call setting,CONFIG_UML),)
tool += ARCH=um
endif
ifneq ($(call setting,CONFIG_ARM64),)
tool += ARCH=arm64
endif
endif

release = $(shell cat $(KDIR)/include/config/kernel.release)

kbuild = $(MAKE) -C $(KDIR) M=$(abspath $(or $(SOURCE),.)) $(if $(MO),MO=$(MO)) $(tool) \
	RUSTC=$(RUSTC) BINDGEN=$(BINDGEN) $(if $(CLIPPY),CLIPPY=$(CLIPPY))

help:
	@printf '%s\n' \
	  'make run          mount NFS over RDMA through the module, in two virtual machines' \
	  '                  (VERS=3|4.0|4.1|4.2 KERNEL=stock|custom|um KERNEL_SERIES=7.2|7.3|testing' \
	  '                  CLIENT=rust|c PEER=rust|c)' \
	  'make shell        the same, but leaves you at a prompt in the client' \
	  'make test         one kselftest, with what it needs (T=mount|io|... ONLY=REGEX KERNEL=um|custom|...)' \
	  'make lint         format, rules and clippy, without a kernel build' \
	  'make check        the main tests, in under an hour; the last line is the sum' \
	  'make check-long   the rest: fuzzing, slow checkers, thousands of repetitions' \
	  'make check-arm64  the main tests on emulated arm64, with pages of 4 and 64 KiB' \
	  'make cost         count what an RPC costs, beside the C module (ROLE=client|server)' \
	  'make bench        time RPCs and their CPU, beside the C module' \
	  '                  (ROLE=client|server MINUTES=9 for each, MODULE=FILE to compare as well, ONLY=REGEX)' \
	  'make benchmarks   a page with tables and bars of what cost and bench have measured' \
	  'make htmldocs     pages of the documents and of the tables that belong to them' \
	  'make vectors      run the rows of VECTORS=FILE against the protocol code' \
	  'make fuzz         fuzz the protocol code (FUZZ_SECONDS=30 for each target)' \
	  'make stock        prepare the stock Debian kernel tree in the cache' \
	  'make custom       build the kernel of .config.fragment (also: debug, um, um-debug, um-leaks)' \
	  'make modules      build the module against KDIR=TREE' \
	  '                  [ARCH=um] [LLVM=] [RUSTC=] [BINDGEN=] [MO=OUTPUT] [CLIPPY=1]' \
	  '                  (tried: Linux $(subst $(space), to ,$(TRIED_LINUX)), rustc $(subst $(space), to ,$(TRIED_RUSTC)))' \
	  'make install      KDIR=TREE [INSTALL_MOD_PATH=] put it where modprobe prefers it' \
	  'make uninstall    KDIR=TREE [INSTALL_MOD_PATH=] and away again: modprobe finds the C module' \
	  'make deb          build the Debian packages; prints where they are' \
	  'make rust-project.json' \
	  '                  what rust-analyzer wants of the module built for KERNEL' \
	  'make tags         what other editors want' \
	  'make fmt          format the Rust sources' \
	  'make clean        remove what builds left in the cache, or with KDIR=TREE in this folder' \
	  '' \
	  'The cache is $${RPCRDMA_CACHE:-$${XDG_CACHE_HOME:-~/.cache}/rpcrdma}.'

tree:
	$(if $(KDIR),,$(error say which kernel to build for: make KDIR=TREE modules, where TREE is a prepared 7.2 or later tree with CONFIG_RUST=y))
	@$(S)/check-tree.sh '$(KDIR)' '$(RUSTC)' '$(BINDGEN)'

modules modules_install rust-analyzer: tree
	+$(kbuild) INSTALL_MOD_DIR=$(INSTALL_MOD_DIR) $@

# Kbuild leaves depmod out where the tree has no System.map, as prepared ones do not.
depmod = depmod -b '$(or $(INSTALL_MOD_PATH),/)' $(release)

install: modules_install
	$(depmod)

installed = $(INSTALL_MOD_PATH)/lib/modules/$(release)

uninstall: tree
	rm -f '$(installed)/$(INSTALL_MOD_DIR)'/rust/rpcrdma.ko*
	[ ! -d '$(installed)/$(INSTALL_MOD_DIR)/rust' ] || \
		(cd '$(installed)' && rmdir -p --ignore-fail-on-non-empty '$(INSTALL_MOD_DIR)/rust')
	$(depmod)

run:
	+@$(S)/run.sh

shell:
	+@VM_SHELL=1 $(S)/run.sh shell.sh

test:
	+@$(S)/check.sh test

lint:
	+@$(S)/check.sh layers conformance format clippy

check check-long:
	+@$(S)/check.sh $(if $(filter check-long,$@),long)

check-arm64:
	+@$(S)/check.sh arm64

cost:
	+@for role in $(or $(ROLE),client server); do $(S)/cost.sh $$role --functions 12 || exit; done

bench:
	+@$(S)/bench.sh $(ROLE)

benchmarks:
	@$(S)/benchmarks.sh

htmldocs:
	@$(S)/htmldocs.sh

vectors:
	@$(S)/vectors.sh '$(VECTORS)'

fuzz:
	+@$(S)/fuzz.sh

stock custom debug um um-debug um-leaks:
	+@$(S)/kernel.sh $@

deb:
	@$(S)/deb.sh

rust-project.json:
	@$(S)/rust-project.sh

tags:
	@$(S)/tags.sh

fmt:
	$(S)/in-buildroot.sh sh -c 'find rust selftests tools -name "*.rs" -not -path "*/target/*" | xargs rustfmt --edition 2021'

# Of all clones that have this cache.
clean-cache = cache="$${RPCRDMA_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/rpcrdma}" && rm -rf "$$cache/build" "$$cache"/*/build

clean:
	$(if $(KDIR),+$(kbuild) clean,$(clean-cache))

.DEFAULT_GOAL := help
.PHONY: help tree modules modules_install install uninstall run shell test lint check check-long check-arm64 vectors fuzz bench benchmarks cost htmldocs stock custom debug um um-debug um-leaks deb rust-analyzer rust-project.json tags fmt clean
