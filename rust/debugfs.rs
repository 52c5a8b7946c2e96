// SPDX-License-Identifier: GPL-2.0

//! What one can look into: `/sys/kernel/debug/rpcrdma/<transport>/stats`.

use crate::bindings;
use core::ffi::c_void;
use kernel::{prelude::*, seq_file::SeqFile};

/// The folder of this module, as long as it is loaded.
pub(crate) struct Folder(());

impl Folder {
    /// Makes the folder. There is none without debugfs, which is no error.
    pub(crate) fn new() -> Self {
        // SAFETY: Called once, when the module is loaded.
        unsafe { bindings::rpcrdma_debugfs_init() };
        Self(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // SAFETY: `new` made the folder, and all files in it are gone with their transports.
        unsafe { bindings::rpcrdma_debugfs_exit() };
    }
}

/// What can be shown in a file. Process context, may sleep.
pub(crate) trait Show: Sync {
    /// Writes the file's text.
    fn show(&self, seq: &SeqFile);
}

/// Shows the data of a file.
///
/// # Safety
///
/// Called for a reader of the file of a `Shown<T>` only.
unsafe extern "C" fn show<T: Show>(seq: *mut bindings::seq_file, data: *const c_void) {
    // SAFETY: `data` is that of a `Shown<T>`, which removes the file before it goes; the seq_file
    // is this reader's.
    unsafe { (*data.cast::<T>()).show(SeqFile::from_raw(seq)) };
}

/// A file, until it is removed.
///
/// # Invariants
///
/// `folder` came from `rpcrdma_debugfs_add` with `_hook`.
struct File {
    folder: *mut bindings::dentry,
    _hook: KBox<bindings::rpcrdma_debugfs_file>,
}

// SAFETY: A file may be removed from any thread.
unsafe impl Send for File {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for File {}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. The call waits for readers.
        unsafe { bindings::rpcrdma_debugfs_remove(self.folder) };
    }
}

/// Data with a file that shows it.
///
/// # Invariants
///
/// The file goes before the data: the order of the fields is the order of teardown.
#[pin_data]
pub(crate) struct Shown<T: Show> {
    _file: File,
    #[pin]
    data: T,
}

impl<T: Show> Shown<T> {
    /// Shows `data` in the file of transport `id`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(id: u32, data: T) -> impl PinInit<Self, Error> {
        try_pin_init!(&this in Self {
            data,
            _file: {
                // SAFETY: Only takes the address of a field.
                let data = unsafe { &raw const (*this.as_ptr()).data };
                let mut hook = KBox::new(
                    bindings::rpcrdma_debugfs_file {
                        show: Some(show::<T>),
                        data: data.cast(),
                    },
                    GFP_KERNEL,
                )?;
                // SAFETY: The hook lives in its box, and the data, initialised above, in this
                // pinned object, until the file is removed.
                let folder = unsafe { bindings::rpcrdma_debugfs_add(id, &mut *hook) };
                // INVARIANT: Just made with this hook.
                File { folder, _hook: hook }
            },
        }? Error)
    }
}

impl<T: Show> core::ops::Deref for Shown<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}
