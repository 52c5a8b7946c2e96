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

/// The module's directory. It exists as long as one of these objects does, or another directory in
/// it.
pub(crate) struct Folder(());

impl Folder {
    /// Creates the directory. Without debugfs there is none, which is not an error.
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

/// A directory with files, until it is removed.
///
/// # Invariants
///
/// `folder` came from `rpcrdma_debugfs_add`, and its files refer to `_hooks`.
struct Files {
    folder: *mut bindings::dentry,
    _hooks: KVec<bindings::rpcrdma_debugfs_file>,
}

// SAFETY: Any thread may remove files.
unsafe impl Send for Files {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for Files {}

impl Files {
    /// Creates the files of `data`, which is number `id` of its kind.
    ///
    /// # Safety
    ///
    /// `data` is valid and initialised until the returned object is dropped.
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
        // SAFETY: The name is copied. The callee keeps the module's directory for this one.
        let folder = unsafe { bindings::rpcrdma_debugfs_add(T::PREFIX.as_char_ptr(), id) };
        // INVARIANT: Just created, and the hooks do not move any longer.
        let mut files = Self {
            folder,
            _hooks: hooks,
        };
        for ((name, _), hook) in T::FILES.iter().zip(&mut *files._hooks) {
            // SAFETY: The directory was just created, and the name is copied. The hook stays in its
            // vector until the file is removed.
            unsafe { bindings::rpcrdma_debugfs_add_file(folder, name.as_char_ptr(), hook) };
        }
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: `folder` came from `rpcrdma_debugfs_add` (type invariant). The call waits for
        // readers, so nobody uses `_hooks` after it.
        unsafe { bindings::rpcrdma_debugfs_remove(self.folder) };
    }
}

/// Data, and the files that show it.
///
/// # Invariants
///
/// The files are dropped before the data: fields are dropped in order.
#[pin_data]
pub(crate) struct WithFiles<T: Show> {
    _files: Files,
    #[pin]
    data: T,
}

impl<T: Show> WithFiles<T> {
    /// Shows `data`, which is number `id` of its kind, in a directory of its own.
    ///
    /// # Errors
    ///
    /// The error of `data`, or `ENOMEM`.
    pub(crate) fn new(id: u32, data: impl PinInit<T, Error>) -> impl PinInit<Self, Error> {
        try_pin_init!(&this in Self {
            data <- data,
            _files: {
                // SAFETY: Only takes the address of a field.
                let data = unsafe { &raw const (*this.as_ptr()).data };
                // SAFETY: The data, initialised above, is part of this pinned object, and is
                // dropped after the files.
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
