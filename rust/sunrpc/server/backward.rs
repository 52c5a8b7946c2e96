// SPDX-License-Identifier: GPL-2.0

//! The backward direction of a connection (RFC 8167): the Calls that the service sends to its
//! client.
//!
//! sunrpc sends these Calls through a transport of their own, whose requests are matched here with
//! the Replies that arrive on the connection. No thread of the service takes part in that: all of
//! them may be waiting for the result of the Call.
//!
//! Lock order: the list of transports, then sunrpc's `queue_lock`, then its `transport_lock`.

use crate::{
    bindings,
    sunrpc::{
        orphans::Orphans,
        registration::ClassUser,
        rpc_xprt::{self, window},
        send_error::end_task,
        XdrBuf,
    },
};
use core::{cell::Cell, marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        CondVar, SpinLock,
    },
    time::msecs_to_jiffies,
    types::Opaque,
};

/// The allocation of one backward transport.
#[repr(C)]
pub(super) struct Allocation {
    /// First, because sunrpc frees the allocation by this pointer.
    pub(super) xprt: bindings::rpc_xprt,
    /// An `Arc` of the connection's [`Backward`], from setup to the end.
    pub(super) backward: *const Backward,
    /// The next transport of the connection.
    next: Cell<*mut BackwardXprt>,
    /// Calls that were given up after they were sent keep their credits until the client answers.
    orphans: Orphans,
    /// The timeouts that `xprt.timeout` points to.
    pub(super) timeout: bindings::rpc_timeout,
    /// The transport's end.
    pub(super) work: bindings::delayed_work,
    /// The class, and thus the module.
    pub(super) user: ManuallyDrop<ClassUser>,
}

/// How long a client may leave all Calls that it grants unanswered before the next one ends the
/// connection, in milliseconds.
const PATIENCE_MS: u32 = 10_000;

/// A backward transport.
///
/// # Invariants
///
/// A reference to a `BackwardXprt` points to the `xprt` of a valid [`Allocation`].
#[repr(transparent)]
pub(super) struct BackwardXprt(Opaque<bindings::rpc_xprt>);

/// Whether a Call has been given a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// It has been given one.
    New,
    /// It was sent before, and has the one of then.
    Kept,
    /// It has to wait for one.
    None,
}

impl BackwardXprt {
    /// Borrows a transport from C.
    ///
    /// # Safety
    ///
    /// `ptr` is one of this module's backward transports, and stays valid for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `BackwardXprt` is transparent over `rpc_xprt`; the caller guarantees the rest.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.0.get()
    }

    /// The allocation that contains the C object.
    pub(super) fn allocation(&self) -> *mut Allocation {
        self.as_raw().cast()
    }

    /// The transports of the connection.
    pub(super) fn backward(&self) -> &Backward {
        // SAFETY: By the type's invariant the allocation is valid, and has a count of the `Arc`
        // from before anybody else knows of it until it is freed.
        unsafe { &*(*self.allocation()).backward }
    }

    /// The next transport of the connection; the list's lock guards it.
    fn next(&self) -> &Cell<*mut Self> {
        // SAFETY: By the type's invariant the allocation is valid.
        unsafe { &(*self.allocation()).next }
    }

    fn orphans(&self) -> *mut Orphans {
        // SAFETY: By the type's invariant; only takes the address of a field.
        unsafe { &raw mut (*self.allocation()).orphans }
    }

    /// Whether the connection is up.
    pub(super) fn is_connected(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { rpc_xprt::is_connected(self.as_raw()) }
    }

    /// Ends all Calls, and allows no others. Process context; does not sleep.
    pub(super) fn disconnect(&self) {
        if self.is_connected() {
            // SAFETY: The transport is valid.
            unsafe { bindings::xprt_disconnect_done(self.as_raw()) };
        }
    }

    /// Takes a credit for a request, which keeps it until its Reply arrives.
    ///
    /// # Safety
    ///
    /// `rqst` is a request of this transport, and the send lock is held.
    pub(super) unsafe fn take_credit(&self, rqst: *mut bindings::rpc_rqst) -> Credit {
        // SAFETY: The transport is valid; the caller guarantees the rest. Credits are taken under
        // the send lock only.
        unsafe {
            let is_kept = (*rqst).rq_cong != 0;
            match bindings::xprt_request_get_cong(self.as_raw(), rqst) {
                true if is_kept => Credit::Kept,
                true => Credit::New,
                false => Credit::None,
            }
        }
    }

    /// Whether all credits belong to Calls that were given up, and have done so for a while.
    /// Process context; does not sleep.
    pub(super) fn is_overdue(&self) -> bool {
        // SAFETY: The transport is valid, and the lock that guards the window and the orphaned
        // credits is held.
        let (owed, cwnd) = unsafe {
            let _guard = rpc_xprt::transport_lock(self.as_raw());
            let owed = (*self.orphans()).owed(bindings::rpcrdma_jiffies());
            (owed, (*self.as_raw()).cwnd)
        };
        let patience = msecs_to_jiffies(PATIENCE_MS);
        owed.is_some_and(|owed| window(owed.credits) >= cwnd && owed.unchanged > patience)
    }

    /// Returns a request's credit, if it has one: it is new, and the request was not sent, or its
    /// Reply has arrived.
    ///
    /// # Safety
    ///
    /// `rqst` is a request of this transport, has a task, and is not released during the call.
    pub(super) unsafe fn give_credit_back(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: Guaranteed by the caller; the lock that the call requires is held.
        unsafe {
            let _guard = rpc_xprt::transport_lock(self.as_raw());
            bindings::xprt_release_rqst_cong((*rqst).rq_task);
        }
    }

    /// `release_request`: a request that was sent and has no Reply leaves its credit in use. Called
    /// under the transport lock.
    ///
    /// # Safety
    ///
    /// - `task` has a request, of one of this module's backward transports, whose transport lock is
    ///   held.
    pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
        // SAFETY: Guaranteed by the caller; the lock guards the orphaned credits and the request's.
        unsafe {
            let rqst = (*task).tk_rqstp;
            let was_sent = u32::from((*task).tk_flags) & bindings::RPC_TASK_SENT != 0;
            if (*rqst).rq_cong != 0 && was_sent {
                let orphans = &mut *Self::from_raw((*rqst).rq_xprt).orphans();
                if orphans.give_up(bindings::rpcrdma_jiffies()) {
                    (*rqst).rq_cong = 0;
                }
            }
            bindings::xprt_release_rqst_cong(task);
        }
    }

    /// Calls `with` for the request of the RPC with this XID, if it waits for its Reply, under the
    /// lock that completing it requires; the request stays during the call.
    fn with_waiting(&self, xid: u32, with: impl FnOnce(*mut bindings::rpc_rqst)) -> bool {
        let raw = self.as_raw();
        // SAFETY: The transport is valid, and the lock that the lookup requires is held.
        unsafe {
            let _guard = rpc_xprt::queue_lock(raw);
            let rqst = bindings::xprt_lookup_rqst(raw, xid.to_be());
            if rqst.is_null() {
                return false;
            }
            with(rqst);
        }
        true
    }

    /// Completes the RPC with this XID, if it waits for its Reply. `receive` is passed the request,
    /// and returns the length of the Reply, or why there is none. `granted` is the number of
    /// credits that the Reply grants.
    fn finish(
        &self,
        xid: u32,
        granted: u32,
        receive: impl FnOnce(*mut bindings::rpc_rqst) -> Result<i32>,
    ) -> bool {
        let raw = self.as_raw();
        // SAFETY: The transport is valid, the request has a task and stays during the call, and the
        // locks that the window and the completion require are held.
        self.with_waiting(xid, |rqst| unsafe {
            let length = receive(rqst).unwrap_or_else(|error| {
                end_task(rqst, error.to_errno());
                0
            });
            {
                let _guard = rpc_xprt::transport_lock(raw);
                (*raw).cwnd = window(granted.min((*raw).max_reqs));
            }
            self.give_credit_back(rqst);
            bindings::xprt_complete_rqst((*rqst).rq_task, length);
        })
    }

    /// Takes back the credit of the RPC with this XID, if it waits for its Reply: there will be
    /// none.
    fn refuse(&self, xid: u32) -> bool {
        // SAFETY: The request is one of this transport, has a task, and stays during the call.
        self.with_waiting(xid, |rqst| unsafe { self.give_credit_back(rqst) })
    }

    /// Attributes a Reply that no request waits for to a Call that was given up, if there is one.
    fn late_reply(&self) -> bool {
        // SAFETY: The transport is valid, and the lock that guards the orphaned credits and the
        // window is held. The credit of an orphaned Call has no request.
        unsafe {
            let _guard = rpc_xprt::transport_lock(self.as_raw());
            let is_owed = (*self.orphans()).late_reply(bindings::rpcrdma_jiffies());
            if is_owed {
                rpc_xprt::release_credit(self.as_raw());
            }
            is_owed
        }
    }

    /// Records a Reply to a Call that may be about to be given up.
    fn early_reply(&self) {
        // SAFETY: The transport is valid, and the lock that guards the orphaned credits and the
        // window is held.
        unsafe {
            let _guard = rpc_xprt::transport_lock(self.as_raw());
            (*self.orphans()).early_reply((*self.as_raw()).cong);
        }
    }
}

/// sunrpc's request for a backward Call that is to be sent.
///
/// # Invariants
///
/// `rqst` is a request of a [`BackwardXprt`], has an encoded Call, and belongs to the running
/// callback.
pub(crate) struct BackwardRqst<'a> {
    rqst: NonNull<bindings::rpc_rqst>,
    callback: PhantomData<&'a bindings::rpc_rqst>,
}

impl BackwardRqst<'_> {
    /// Wraps a request.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: Guaranteed by the caller.
        Self {
            rqst,
            callback: PhantomData,
        }
    }

    fn raw(&self) -> *mut bindings::rpc_rqst {
        self.rqst.as_ptr()
    }

    /// The transaction identifier, in host byte order.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: By the type's invariant.
        u32::from_be(unsafe { (*self.raw()).rq_xid })
    }

    /// Length of the RPC message in bytes.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: By the type's invariant.
        // CAST: An unsigned int always fits the kernel's usize.
        unsafe { (*self.raw()).rq_snd_buf.len as usize }
    }

    /// Copies the beginning of the RPC message to `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message is shorter.
    pub(crate) fn copy_out(&self, to: &mut [u8]) -> Result {
        // SAFETY: By the type's invariant; sunrpc has encoded the Call. The address of a field is
        // not null.
        let message =
            unsafe { XdrBuf::from_raw(NonNull::new_unchecked(&raw mut (*self.raw()).rq_snd_buf)) };
        message.copy_out(0, to)
    }

    /// Starts to measure the round-trip time, and counts the bytes as sent. Must be called before
    /// the Call is posted, after which the Reply can change the request.
    pub(super) fn start(&self) {
        let length = self.len();
        // SAFETY: By the type's invariant.
        unsafe {
            let rqst = self.raw();
            (*rqst).rq_xtime = bindings::ktime_get();
            (*rqst).rq_xmit_bytes_sent = (*rqst).rq_xmit_bytes_sent.wrapping_add(length);
        }
    }
}

/// The transports through which a connection's service calls the client. There is one, unless
/// sunrpc creates more.
#[pin_data]
pub(crate) struct Backward {
    #[pin]
    transports: SpinLock<Transports>,
    /// Notified when nobody uses the connection.
    #[pin]
    unused: CondVar,
    /// Whether there is, or was, a transport.
    is_used: Atomic<bool>,
}

/// The transports of one connection.
///
/// # Invariants
///
/// All transports linked from `first` are valid: a transport is removed before it is freed.
struct Transports {
    first: *mut BackwardXprt,
    /// How many callbacks use the connection, and whether it is about to be freed: sunrpc's tasks
    /// may outlive the references that nfsd has to it.
    users: usize,
    is_gone: bool,
    /// Whether the connection has been closed, or is being closed.
    is_closed: bool,
}

// SAFETY: The transports may be used from any thread.
unsafe impl Send for Transports {}

impl Transports {
    fn iter(&self) -> impl Iterator<Item = &BackwardXprt> {
        // SAFETY: By the type's invariant; the list's lock, which guards the links, is held for as
        // long as the borrow.
        let at = |xprt: *mut BackwardXprt| unsafe { xprt.as_ref() };
        core::iter::successors(at(self.first), move |xprt| at(xprt.next().get()))
    }

    /// Records a Reply that no Call waits for. It may answer a Call that was given up.
    fn unexpected_reply(&self) {
        if !self.iter().any(BackwardXprt::late_reply) {
            if let Some(xprt) = self.iter().next() {
                xprt.early_reply();
            }
        }
    }
}

impl Backward {
    /// No transports.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            transports <- new_spinlock!(Transports {
                first: core::ptr::null_mut(),
                users: 0,
                is_gone: false,
                is_closed: false,
            }, "rpcrdma_backward"),
            unused <- new_condvar!("rpcrdma_backward"),
            is_used: Atomic::new(false),
        })
    }

    /// Calls `with`, during which the connection is not freed, unless it is about to be. Task
    /// context; sleeps only if `with` does.
    pub(super) fn while_connection<R>(&self, with: impl FnOnce() -> R) -> Option<R> {
        {
            let mut transports = self.transports.lock();
            if transports.is_gone {
                return None;
            }
            transports.users = transports.users.checked_add(1)?;
        }
        let result = with();
        let mut transports = self.transports.lock();
        transports.users = transports.users.saturating_sub(1);
        let is_last = transports.users == 0 && transports.is_gone;
        drop(transports);
        if is_last {
            self.unused.notify_all();
        }
        Some(result)
    }

    /// Calls `with`, which does not sleep, unless the connection has been closed. Until `with` has
    /// ended it is not closed, and so not freed.
    pub(super) fn unless_closed(&self, with: impl FnOnce()) {
        let transports = self.transports.lock();
        if !transports.is_closed {
            with();
        }
    }

    /// The connection is about to be freed: waits for those who use it. Process context.
    pub(super) fn connection_ends(&self) {
        let mut transports = self.transports.lock();
        transports.is_gone = true;
        while transports.users != 0 {
            self.unused.wait(&mut transports);
        }
    }

    /// Whether the service may call the client.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Completes the Call that a Reply answers, and applies the credits that it grants; returns
    /// whether there is such a Call. Process context; does not sleep.
    pub(crate) fn reply(&self, xid: u32, credits: u32, payload: &[u8]) -> bool {
        let receive = |rqst: *mut bindings::rpc_rqst| {
            // SAFETY: The request waits for this Reply, and has a buffer for it that nobody else
            // uses.
            let room = unsafe { &mut (*rqst).rq_rcv_buf };
            // nfsd's callbacks expect no pages; none would be allocated yet.
            if room.flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
                return Err(EIO);
            }
            // SAFETY: As above, and no page is missing.
            let room = unsafe { XdrBuf::from_raw(NonNull::from(room)) };
            Ok(i32::try_from(room.copy_in(0, payload)?)?)
        };
        self.find(|xprt| xprt.finish(xid, credits, receive))
    }

    /// The client has refused a Call. If it is one that waits, it goes on to do so until its time
    /// is over: nfsd repeats what has failed without a pause. Process context; does not sleep.
    pub(crate) fn refused(&self, xid: u32) {
        self.find(|xprt| xprt.refuse(xid));
    }

    /// Finds the transport of a Call, for a message that answers it.
    fn find(&self, is_found: impl Fn(&BackwardXprt) -> bool) -> bool {
        let transports = self.transports.lock();
        let found = transports.iter().any(is_found);
        if !found {
            transports.unexpected_reply();
        }
        found
    }

    /// Ends all Calls, as the connection is ending. Process context; does not sleep.
    pub(crate) fn disconnected(&self) {
        let mut transports = self.transports.lock();
        transports.is_closed = true;
        for xprt in transports.iter() {
            xprt.disconnect();
        }
    }

    /// Adds a transport.
    ///
    /// # Safety
    ///
    /// It is in no list, and stays valid until [`Self::remove`].
    pub(super) unsafe fn add(&self, xprt: &BackwardXprt) {
        let mut transports = self.transports.lock();
        xprt.next().set(transports.first);
        // INVARIANT: Guaranteed by the caller.
        transports.first = core::ptr::from_ref(xprt).cast_mut();
        self.is_used.store(true, Relaxed);
    }

    /// Removes a transport, if it is in the list.
    pub(super) fn remove(&self, xprt: &BackwardXprt) {
        let mut transports = self.transports.lock();
        let next = xprt.next().get();
        if core::ptr::eq(transports.first, xprt) {
            transports.first = next;
            return;
        }
        let before = transports
            .iter()
            .find(|before| core::ptr::eq(before.next().get(), xprt));
        if let Some(before) = before {
            before.next().set(next);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_backward_credits)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    /// A transport of two credits that only its test knows of.
    struct Unregistered(*mut bindings::rpc_xprt);

    impl Unregistered {
        fn new() -> Self {
            // SAFETY: The initial namespace always exists.
            let raw = unsafe {
                let net = &raw mut bindings::init_net;
                bindings::xprt_alloc(net, size_of::<Allocation>(), 2, 2)
            };
            assert!(!raw.is_null());
            // SAFETY: Nobody else knows of the transport.
            unsafe { (*raw).cwnd = window(2) };
            Self(raw)
        }

        fn xprt(&self) -> &BackwardXprt {
            // SAFETY: It is valid until it is dropped.
            unsafe { BackwardXprt::from_raw(self.0) }
        }

        /// A request of it with its task.
        fn request(&self) -> KBox<(bindings::rpc_rqst, bindings::rpc_task)> {
            let mut both = KBox::new(Default::default(), GFP_KERNEL).unwrap();
            let (rqst, task): &mut (bindings::rpc_rqst, bindings::rpc_task) = &mut both;
            rqst.rq_xprt = self.0;
            rqst.rq_task = task;
            task.tk_rqstp = rqst;
            both
        }

        fn take(&self, request: &mut (bindings::rpc_rqst, bindings::rpc_task)) -> Credit {
            // SAFETY: It is a request of this transport, which nobody else uses.
            unsafe { self.xprt().take_credit(&raw mut request.0) }
        }
    }

    impl Drop for Unregistered {
        fn drop(&mut self) {
            // SAFETY: Nobody else knows of the transport.
            unsafe { bindings::xprt_free(self.0) };
        }
    }

    #[test]
    fn nobody_uses_a_connection_that_has_ended() {
        let backward = Arc::pin_init(Backward::new(), GFP_KERNEL).unwrap();
        let users = || backward.transports.lock().users;
        let inner = || backward.while_connection(users);
        assert_eq!(backward.while_connection(inner), Some(Some(2)));
        assert_eq!(users(), 0);
        // Nobody is waited for.
        backward.connection_ends();
        assert_eq!(backward.while_connection(users), None);
    }

    #[test]
    fn nothing_is_published_on_a_closed_connection() {
        let backward = Arc::pin_init(Backward::new(), GFP_KERNEL).unwrap();
        let mut published = 0;
        backward.unless_closed(|| published += 1);
        backward.disconnected();
        backward.unless_closed(|| published += 1);
        assert_eq!(published, 1);
    }

    #[test]
    fn a_credit_is_new_once() {
        let transport = Unregistered::new();
        let mut requests = [0; 3].map(|_| transport.request());
        let [first, second, third] = requests.each_mut();
        assert_eq!(transport.take(first), Credit::New);
        assert_eq!(transport.take(first), Credit::Kept);
        assert_eq!(transport.take(second), Credit::New);
        assert_eq!(transport.take(third), Credit::None);
        // SAFETY: It is a request of this transport, and has a task.
        unsafe { transport.xprt().give_credit_back(&raw mut first.0) };
        assert_eq!(transport.take(third), Credit::New);
        assert_eq!(transport.take(first), Credit::None);
    }

    #[test]
    fn calls_wait_for_orphaned_credits_for_a_while() {
        let transport = Unregistered::new();
        let mut requests = [0; 3].map(|_| transport.request());
        let [first, second, third] = requests.each_mut();
        let xprt = transport.xprt();
        let give_up = |request: &mut (bindings::rpc_rqst, bindings::rpc_task), ago| {
            assert_eq!(transport.take(request), Credit::New);
            request.0.rq_cong = 0;
            // SAFETY: Nobody else uses the transport. Its field is valid.
            let orphans = unsafe { &mut *xprt.orphans() };
            // SAFETY: Always safe to call.
            let now = unsafe { bindings::rpcrdma_jiffies() };
            assert!(orphans.give_up(now.wrapping_sub(msecs_to_jiffies(ago))));
        };
        assert!(!xprt.is_overdue());
        give_up(first, 3 * PATIENCE_MS);
        // There is another credit.
        assert!(!xprt.is_overdue());
        give_up(second, PATIENCE_MS / 2);
        assert!(!xprt.is_overdue());
        assert!(xprt.late_reply());
        give_up(third, 2 * PATIENCE_MS);
        assert!(xprt.is_overdue());
    }
}
