#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: htmldocs.sh
#
# Makes pages of Documentation/ with Sphinx, in the cache, and prints the name of the first one. Fails if Sphinx
# has a warning; it reads all documents each time, because it does not repeat warnings of those that did not change.

. "$(dirname "$0")/lib.sh"

"$here/buildroot.sh" docs
lock htmldocs
pages=$CACHE/build/htmldocs
cd "$PROJECT"
"$here/in-buildroot.sh" sphinx-build -q -E -W --keep-going -C -D project='rpcrdma.ko in Rust' -D html_theme=alabaster \
	-D html_theme_options.page_width=95% -D html_theme_options.body_max_width=none \
	-D html_copy_source=0 -D html_show_copyright=0 -d "$pages.doctrees" -b html Documentation "$pages"
printf '%s\n' "$pages/index.html"
