// SPDX-License-Identifier: GPL-2.0

//! What one can look into: the files in the folders below `/sys/kernel/debug/rpcrdma`.

use crate::bindings;
use core::ffi::c_void;
use kernel::{
    ffi::c_uint,
    prelude::*,
    seq_file::SeqFile,
    str::{CStr, CStrExt},
};

/// The folder of this module. It stays as long as one of these exists, or another folder in it.
pub(crate) struct Folder(());

impl Folder {
    /// Makes the folder. There is none without debugfs, which is no error.
    pub(crate) fn new() -> Self {
        // SAFETY: May sleep.
        unsafe { bindings::rpcrdma_debugfs_get() };
        Self(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // SAFETY: `new` has counted this object.
        unsafe { bindings::rpcrdma_debugfs_put() };
    }
}

/// A file: its name, and what writes its text for a reader.
pub(crate) type File<T> = (&'static CStr, fn(&T, &SeqFile));

/// What can be shown in files. Process context, may sleep.
pub(crate) trait Show: Sync + 'static {
    /// What the name of each folder begins with, before its number.
    const PREFIX: &'static CStr = c"";

    /// The files.
    const FILES: &'static [File<Self>];
}

/// Shows the data of a file.
///
/// # Safety
///
/// Called for a reader of a file of a `WithFiles<T>` only.
unsafe extern "C" fn show<T: Show>(
    seq: *mut bindings::seq_file,
    data: *const c_void,
    index: c_uint,
) {
    // SAFETY: `data` is that of a `WithFiles<T>`, which removes the file before it goes; the
    // seq_file is this reader's.
    let (data, seq) = unsafe { (&*data.cast::<T>(), SeqFile::from_raw(seq)) };
    // CAST: An unsigned int always fits the kernel's usize.
    if let Some((_, show)) = T::FILES.get(index as usize) {
        show(data, seq);
    }
}

/// A folder with files, until it is removed.
///
/// # Invariants
///
/// `folder` came from `rpcrdma_debugfs_add`, and its files refer to `_hooks`.
struct Files {
    folder: *mut bindings::dentry,
    _hooks: KVec<bindings::rpcrdma_debugfs_file>,
}

// SAFETY: Files may be removed from any thread.
unsafe impl Send for Files {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for Files {}

impl Files {
    /// Makes the files of `data`, number `id` of its kind.
    ///
    /// # Safety
    ///
    /// `data` is valid and initialised until the result is dropped.
    unsafe fn new<T: Show>(id: u32, data: *const T) -> Result<Self> {
        let mut hooks = KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
        for index in 0..T::FILES.len() {
            hooks.push(
                bindings::rpcrdma_debugfs_file {
                    show: Some(show::<T>),
                    data: data.cast(),
                    index: c_uint::try_from(index)?,
                },
                GFP_KERNEL,
            )?;
        }
        // SAFETY: The name is copied. The callee keeps the folder of the module for this one.
        let folder = unsafe { bindings::rpcrdma_debugfs_add(T::PREFIX.as_char_ptr(), id) };
        // INVARIANT: Just made, and the hooks are not moved any more.
        let mut files = Self {
            folder,
            _hooks: hooks,
        };
        for ((name, _), hook) in T::FILES.iter().zip(&mut *files._hooks) {
            // SAFETY: The folder was just made, the name is copied. The hook lives in its vector
            // until the file is removed.
            unsafe { bindings::rpcrdma_debugfs_add_file(folder, name.as_char_ptr(), hook) };
        }
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. The call waits for readers.
        unsafe { bindings::rpcrdma_debugfs_remove(self.folder) };
    }
}

/// Data with files that show it.
///
/// # Invariants
///
/// The files go before the data: the order of the fields is the order of teardown.
#[pin_data]
pub(crate) struct WithFiles<T: Show> {
    _files: Files,
    #[pin]
    data: T,
}

impl<T: Show> WithFiles<T> {
    /// Shows `data`, number `id` of its kind, in a folder of its own.
    ///
    /// # Errors
    ///
    /// That of `data`, and `ENOMEM`.
    pub(crate) fn new(id: u32, data: impl PinInit<T, Error>) -> impl PinInit<Self, Error> {
        try_pin_init!(&this in Self {
            data <- data,
            _files: {
                // SAFETY: Only takes the address of a field.
                let data = unsafe { &raw const (*this.as_ptr()).data };
                // SAFETY: The data, initialised above, lives in this pinned object, and is dropped
                // after the files.
                unsafe { Files::new(id, data)? }
            },
        }? Error)
    }
}

impl<T: Show> core::ops::Deref for WithFiles<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}
