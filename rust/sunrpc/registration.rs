// SPDX-License-Identifier: GPL-2.0

//! Transport classes: what sunrpc finds by a name such as "rdma6".

use super::queue::OwnedQueue;
use crate::bindings;
use core::{cell::UnsafeCell, ffi::c_void, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_char,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc,
    },
    workqueue::{Queue, RawDelayedWorkItem, RawWorkItem},
};

/// The number of the class "rdma" (`XPRT_TRANSPORT_RDMA`).
pub(crate) const IDENT_RDMA: i32 = bindings::xprt_transports_XPRT_TRANSPORT_RDMA;

/// The number of the class "rdma backchannel" (`XPRT_TRANSPORT_BC_RDMA`): that of "rdma", with the
/// backchannel bit set.
pub(super) const IDENT_BACKWARD: i32 = bindings::xprt_transports_XPRT_TRANSPORT_BC_RDMA;

/// `struct xprt_class` with its netids. sunrpc reads them up to the first empty one.
#[repr(C)]
struct RawClass {
    class: bindings::xprt_class,
    netid: [*const c_char; 3],
}

const _: () = assert!(
    core::mem::offset_of!(bindings::xprt_class, netid) == core::mem::offset_of!(RawClass, netid),
    "sunrpc looks for the network identifiers elsewhere"
);

/// The callback through which sunrpc creates a transport.
pub(super) type Setup =
    unsafe extern "C" fn(args: *mut bindings::xprt_create) -> *mut bindings::rpc_xprt;

/// A transport class (`struct xprt_class`). It is a static because its transports point to it.
///
/// # Invariants
///
/// Only the thread that has set `was_registered` changes `raw` and `shared`, and from then on
/// sunrpc changes `raw`. `queue` is null, or it and what `shared` points to stay valid as long as
/// `users` is not zero.
pub(crate) struct Class {
    raw: UnsafeCell<RawClass>,
    was_registered: Atomic<bool>,
    /// Where the users' work runs, such as the end of a transport; null while there can be none.
    queue: Atomic<*mut bindings::workqueue_struct>,
    /// What the class's transports have in common, if anything. Set before `queue` is.
    shared: Atomic<*mut c_void>,
    /// Transports, calls of `setup` in progress, and listeners.
    users: Atomic<usize>,
}

// SAFETY: By the type's invariant only one thread at a time changes what is not atomic, and sunrpc
// locks what it changes.
unsafe impl Sync for Class {}

impl Class {
    /// A class with this name, these netids, and this number, which no other class has. A name that
    /// is too long is an error at compile time.
    pub(crate) const fn new(name: &'static CStr, ident: i32, netids: [&'static CStr; 2]) -> Self {
        // SAFETY: The C structure is valid when zeroed.
        let mut class: bindings::xprt_class =
            unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
        class.ident = ident;
        let name = name.to_bytes_with_nul();
        let mut at = 0;
        while at < name.len() {
            class.name[at] = name[at];
            at += 1;
        }
        let [one, other] = netids;
        let netid = [
            one.to_bytes_with_nul().as_ptr(),
            other.to_bytes_with_nul().as_ptr(),
            c"".to_bytes_with_nul().as_ptr(),
        ];
        Self {
            raw: UnsafeCell::new(RawClass { class, netid }),
            was_registered: Atomic::new(false),
            queue: Atomic::new(core::ptr::null_mut()),
            shared: Atomic::new(core::ptr::null_mut()),
            users: Atomic::new(0),
        }
    }

    /// The C structure.
    pub(super) fn as_raw(&self) -> *mut bindings::xprt_class {
        self.raw.get().cast()
    }

    /// Registers the class; `setup` creates its transports, which end on a workqueue with the name
    /// `queue`, and have `shared` in common.
    ///
    /// # Safety
    ///
    /// `setup` may be called with any valid arguments. `shared` is what the users of the class take
    /// it for, and stays valid until the registration has been dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time, `EEXIST` if another module has registered the class's number,
    /// `ENOMEM`.
    pub(super) unsafe fn register(
        &'static self,
        setup: Setup,
        module: &'static ThisModule,
        queue: &'static CStr,
        shared: *const c_void,
    ) -> Result<ClassRegistration> {
        let queue = OwnedQueue::new(queue)?;
        if self.was_registered.xchg(true, Relaxed) {
            return Err(EBUSY);
        }
        let raw = self.as_raw();
        // SAFETY: By the type's invariant no other thread changes the class, and sunrpc does not
        // know of it yet.
        unsafe {
            (*raw).setup = Some(setup);
            (*raw).owner = module.as_ptr();
            bindings::INIT_LIST_HEAD(&raw mut (*raw).list);
        }
        self.shared.store(shared.cast_mut(), Relaxed);
        self.queue.store(queue.as_raw(), Release);
        // SAFETY: The class is complete, and is a static.
        to_result(unsafe { bindings::xprt_register_transport(raw) }).inspect_err(|_| {
            // SAFETY: Its name ends with a zero byte, and does not change.
            let name = unsafe { CStr::from_char_ptr((&raw const (*raw).name).cast()) };
            pr_err!("another module has registered the transport class \"{name}\": unload it\n");
            self.close();
        })?;
        // Without tasks RCU, dropping the registration cannot wait for a thread that was preempted
        // in the last instructions of a callback: on such a kernel the module cannot be unloaded.
        #[cfg(all(CONFIG_PREEMPTION, not(CONFIG_TASKS_RCU)))]
        // SAFETY: The module's code is running, so the module exists.
        unsafe {
            bindings::rpcrdma_module_get(module.as_ptr())
        };
        Ok(ClassRegistration {
            class: self,
            _queue: queue,
        })
    }

    /// Counts a user of the class and of its module, unless the class has been closed. Process
    /// context.
    pub(crate) fn enter(&'static self) -> Option<ClassUser> {
        // Pairs with `close`: either that sees this user, or this no longer sees the queue.
        self.users.fetch_add(1, Full);
        let queue = NonNull::new(self.queue.load(Acquire));
        if queue.is_none() {
            self.leave();
        }
        queue.map(|queue| {
            // SAFETY: A class with a queue has a module, whose code is running here.
            unsafe { bindings::rpcrdma_module_get((*self.as_raw()).owner) };
            // INVARIANT: Both were just counted.
            ClassUser { class: self, queue }
        })
    }

    /// Admits no more users, and waits until there are none. May sleep.
    fn close(&self) {
        self.queue.xchg(core::ptr::null_mut(), Full);
        // Each user holds a reference to the module, so when the module is unloaded none is left
        // but those that are just refused.
        // SAFETY: May sleep. The count is a static's, and `ClassUser` wakes this thread when it
        // lowers it.
        unsafe { bindings::rpcrdma_wait_until_zero(self.users.as_ptr()) };
    }

    /// Counts one user less.
    fn leave(&self) {
        self.users.fetch_sub(1, Full);
        // SAFETY: Only uses the address, to find who waits for it.
        unsafe { bindings::wake_up_var(self.users.as_ptr().cast()) };
    }
}

/// A class known to sunrpc until this object is dropped, which waits for the class's transports.
pub(crate) struct ClassRegistration {
    class: &'static Class,
    _queue: OwnedQueue,
}

impl Drop for ClassRegistration {
    fn drop(&mut self) {
        // SAFETY: `register` has registered the class.
        unsafe { bindings::xprt_unregister_transport(self.class.as_raw()) };
        self.class.close();
        // A thread that dropped the last reference to a transport in a callback may not have
        // returned from it yet. Nothing sleeps between there and sunrpc.
        // SAFETY: May sleep.
        unsafe { bindings::rpcrdma_synchronize_rcu_tasks() };
    }
}

/// A user of a class, which keeps the queue and the module.
///
/// # Invariants
///
/// `class` counts this object as a user, and its module is referenced once on behalf of it.
pub(crate) struct ClassUser {
    class: &'static Class,
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: The counts are atomic, and workqueues may be used from any thread.
unsafe impl Send for ClassUser {}
// SAFETY: The class is a static that is `Sync`, and workqueues may be used from any thread.
unsafe impl Sync for ClassUser {}

impl ClassUser {
    /// The class.
    pub(super) fn class(&self) -> &'static Class {
        self.class
    }

    /// The workqueue of the class's transports, valid as long as `self` exists.
    pub(super) fn queue(&self) -> *mut bindings::workqueue_struct {
        self.queue.as_ptr()
    }

    /// What the class was registered with for its transports.
    pub(super) fn shared(&self) -> *const c_void {
        self.class.shared.load(Relaxed)
    }

    /// Queues a work item, unless it is queued already. Does not sleep.
    pub(crate) fn enqueue<W: RawWorkItem<0> + Send + 'static>(&self, work: W) -> W::EnqueueOutput {
        // SAFETY: By the type's invariant the queue is valid. Its destruction waits for the work.
        unsafe { Queue::from_raw(self.queue.as_ptr().cast()) }.enqueue(work)
    }

    /// Queues `work` on the queue of its own `user` to run after `delay` jiffies, unless it is
    /// queued already. Does not sleep.
    pub(crate) fn enqueue_delayed<W>(work: &Arc<W>, user: fn(&W) -> &Self, delay: usize)
    where
        W: Send + Sync + 'static,
        Arc<W>: RawDelayedWorkItem<0>,
    {
        let queue = user(work).queue.as_ptr().cast();
        // SAFETY: `work` lends the user of the queue, and is counted until it runs, so the queue is
        // valid until then (type invariant). Its destruction waits for work that runs.
        unsafe { Queue::from_raw(queue) }.enqueue_delayed(work.clone(), delay);
    }
}

impl Drop for ClassUser {
    fn drop(&mut self) {
        self.class.leave();
        // SAFETY: The module is referenced once on behalf of this object (type invariant). If this
        // is the module's last reference, its code stays until this thread has left it: unloading
        // waits for the queue and for the callbacks of devices and connections, and at last for
        // threads that do not sleep on their way out.
        unsafe { bindings::rpcrdma_module_put((*self.class.as_raw()).owner) };
    }
}
