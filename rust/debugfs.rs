// SPDX-License-Identifier: GPL-2.0

//! The files below `/sys/kernel/debug/rpcrdma`.

use crate::bindings;
use core::ffi::c_void;
use kernel::{
    ffi::c_uint,
    prelude::*,
    seq_file::SeqFile,
    str::{CStr, CStrExt},
};

/// The module's directory. Dropped after all that is in it.
pub(crate) struct Folder(());

impl Folder {
    /// Creates the directory. Without debugfs there is none, which is not an error.
    pub(crate) fn new() -> Self {
        // SAFETY: No preconditions but process context.
        unsafe { bindings::rpcrdma_debugfs_init() };
        Self(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // SAFETY: `new` has created the directory. May sleep.
        unsafe { bindings::rpcrdma_debugfs_exit() };
    }
}

/// A file: its name, and the function that writes its text.
pub(crate) type File<T> = (&'static CStr, fn(&T, &SeqFile));

/// Data that can be shown in files. Process context, may sleep.
pub(crate) trait Show: Sync + 'static {
    /// The prefix of each directory's name, before its number.
    const PREFIX: &'static CStr = c"";

    /// The files.
    const FILES: &'static [File<Self>];
}

/// Shows the data of a file.
///
/// # Safety
///
/// Called only for a reader of a file of a `WithFiles<T>`.
unsafe extern "C" fn show<T: Show>(
    seq: *mut bindings::seq_file,
    data: *const c_void,
    index: c_uint,
) {
    // SAFETY: `data` is that of a `WithFiles<T>`, which removes the file before the data is
    // dropped; the seq_file belongs to this reader.
    let (data, seq) = unsafe { (&*data.cast::<T>(), SeqFile::from_raw(seq)) };
    // CAST: An unsigned int always fits the kernel's usize.
    if let Some((_, show)) = T::FILES.get(index as usize) {
        show(data, seq);
    }
}

/// Data, and a directory with the files that show it.
///
/// # Invariants
///
/// `folder` came from `rpcrdma_debugfs_add`, and its files refer to `hooks` and `data`.
#[pin_data(PinnedDrop)]
pub(crate) struct WithFiles<T: Show> {
    folder: *mut bindings::dentry,
    hooks: KVec<bindings::rpcrdma_debugfs_file>,
    #[pin]
    data: T,
}

// SAFETY: `folder` is used only by `drop`; debugfs_remove() and `T` may run in any thread.
unsafe impl<T: Show + Send> Send for WithFiles<T> {}
// SAFETY: Only `data` is reachable through `&self`.
unsafe impl<T: Show> Sync for WithFiles<T> {}

impl<T: Show> WithFiles<T> {
    /// Shows `data`, which is number `id` of its kind, in a directory of its own.
    ///
    /// # Errors
    ///
    /// The error of `data`, or `ENOMEM`.
    pub(crate) fn new(id: u32, data: impl PinInit<T, Error>) -> impl PinInit<Self, Error> {
        // INVARIANT: The object is pinned, and the directory is removed before its fields are
        // dropped.
        try_pin_init!(&this in Self {
            data <- data,
            hooks: {
                // SAFETY: Only takes the address of a field.
                let data = unsafe { &raw const (*this.as_ptr()).data }.cast();
                let mut hooks = KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
                for (index, (name, _)) in (0..).zip(T::FILES) {
                    let hook = bindings::rpcrdma_debugfs_file {
                        name: name.as_char_ptr(),
                        show: Some(show::<T>),
                        data,
                        index,
                    };
                    hooks.push(hook, GFP_KERNEL)?;
                }
                hooks
            },
            // SAFETY: The names are static. The hooks and the data were initialised above.
            folder: unsafe {
                let name = T::PREFIX.as_char_ptr();
                bindings::rpcrdma_debugfs_add(name, id, hooks.as_mut_ptr(), hooks.len())
            },
        }? Error)
    }
}

#[pinned_drop]
impl<T: Show> PinnedDrop for WithFiles<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `folder` came from `rpcrdma_debugfs_add` (type invariant). The call waits for
        // readers, so no thread uses the hooks or the data for a file after it.
        unsafe { bindings::rpcrdma_debugfs_remove(self.folder) };
    }
}

impl<T: Show> core::ops::Deref for WithFiles<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}
