// SPDX-License-Identifier: GPL-2.0

// What scripts/check-panics.sh must find in the core when it is there.

// Found: overflow refers to core::panicking::panic_const::panic_const_add_overflow
pub(crate) fn overflow(a: u32, b: u32) -> u32 {
    a + b
}

// Found: index refers to core::panicking::panic_bounds_check
pub(crate) fn index(a: &[u8], at: usize) -> Option<&u8> {
    Some(&a[at])
}

// Found: cut refers to core::slice::index::slice_start_index_len_fail
pub(crate) fn cut(a: &[u8], at: usize) -> &[u8] {
    &a[at..]
}

// Found: unwrapped refers to core::option::unwrap_failed
pub(crate) fn unwrapped(a: Option<u8>) -> u8 {
    a.unwrap()
}

// Found: divided refers to core::panicking::panic_const::panic_const_div_by_zero
pub(crate) fn divided(a: u32, b: u32) -> u32 {
    a / b
}

// Found: counted refers to core::panicking::panic_const::panic_const_add_overflow
pub(crate) fn counted(lists: &Lists<'_>) -> u32 {
    lists
        .writes
        .chunks()
        .map(|chunk| u32::from(chunk.segments().next().is_some()))
        .sum()
}

// Found: : pub(crate) fn uncalled<T: Into<u32>>(a: T) -> u32 {
pub(crate) fn uncalled<T: Into<u32>>(a: T) -> u32 {
    a.into()
}

// Found: : move || a
pub(crate) fn later(a: u32) -> impl FnOnce() -> u32 {
    move || a
}
