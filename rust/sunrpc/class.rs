// SPDX-License-Identifier: GPL-2.0

//! The transport class: what sunrpc finds by the names "rdma" and "rdma6".

use super::{
    address, connect, credits, ops,
    queue::OwnedQueue,
    rqst::{BackwardReply, Rqst},
    send_lock::SendLock,
    xprt::{Allocation, OwnedXprt},
};
use crate::{
    bindings::{self, SocketAddress},
    trace,
};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_char,
    prelude::*,
    seq_file::SeqFile,
    str::CStrExt,
    sync::{Arc, ArcBorrow},
    time::msecs_to_jiffies,
};

/// Why a request was not sent, in the terms that sunrpc acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// No credit: the sender waits for one.
    NoCredit,
    /// A resource is in use: the sender waits, if [`super::Xprt::wait_for_space`] was called.
    Busy,
    /// Memory is short: again after a quarter of a second.
    NoMemory,
    /// No connection any more: again after a new one.
    NotConnected,
    /// The RPC does not fit this transport; it ends with an error.
    TooLarge,
    /// The RPC cannot be sent; it ends with an error.
    Failed,
}

impl SendError {
    /// What `send_request` returns for it.
    pub(crate) fn to_errno(self) -> i32 {
        let errno = match self {
            Self::NoCredit => bindings::EBADSLT,
            Self::Busy => bindings::EAGAIN,
            Self::NoMemory => bindings::ENOBUFS,
            Self::NotConnected => bindings::ENOTCONN,
            Self::TooLarge => bindings::EMSGSIZE,
            Self::Failed => bindings::EIO,
        };
        i32::try_from(errno).map_or(EIO.to_errno(), |errno| -errno)
    }
}

/// A client transport.
///
/// sunrpc's send lock excludes `connect`, `close`, `send` and `send_backward` from one another. All of
/// them run in process context.
pub(crate) trait ClientTransport: Send + Sync + Sized + 'static {
    /// The most bytes of an RPC's data.
    const MAX_PAYLOAD: usize;

    /// How many requests a new transport can have outstanding.
    fn max_requests() -> u32;

    /// Makes a transport, which owns `xprt`. May sleep.
    ///
    /// # Errors
    ///
    /// The mount's error.
    fn setup(xprt: OwnedXprt) -> Result<Arc<Self>>;

    /// Makes a connection. On a worker of the module's queue, in a scope that lets allocations
    /// not wait for file systems; may sleep.
    ///
    /// # Errors
    ///
    /// One of those that sunrpc's `call_connect_status` knows. What was made is undone.
    fn connect(this: ArcBorrow<'_, Self>, lock: &mut SendLock<'_>) -> Result;

    /// Tears the connection down, if there is one, and waits until all of it is gone.
    fn close(&self, lock: &mut SendLock<'_>);

    /// Sends a Call.
    ///
    /// # Errors
    ///
    /// [`SendError`]; after [`SendError::NotConnected`] the connection is closed.
    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError>;

    /// Sends a backward Reply (RFC 8167), on the connection that its Call came on only. On another the
    /// peer has no Receive for it: it is dropped without an error.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    fn send_backward(
        &self,
        lock: &mut SendLock<'_>,
        reply: &BackwardReply<'_>,
    ) -> Result<(), SendError>;

    /// Waits until the peer cannot reach the memory of the request any more. Task context without
    /// the send lock; may sleep.
    fn fence(&self, rqst: &Rqst);

    /// A request has timed out. There is no keepalive on a reliable connection, so the path and
    /// the peer are to be probed with a new connection. Does not sleep.
    fn timed_out(&self);

    /// Breaks the connection, for fault injection. Task context, maybe without the send lock; may
    /// sleep.
    fn disconnect(&self);

    /// Writes the rest of the transport's line of `/proc/self/mountstats`, columns 11 to 27. Must not
    /// wait for the connection.
    fn print_stats(&self, seq: &SeqFile);

    /// The address at this end of the connection, if there is one.
    fn source(&self) -> Option<SocketAddress>;

    /// The largest backward message in bytes. Called under RCU: does not sleep.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_payload(&self) -> usize;

    /// How many backward Calls can be under way.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_slots() -> u32;

    /// The backward requests of the transport.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward(&self) -> &super::BackwardCalls;
}

/// The name, then the network identifiers, of which an empty one is the last.
const NAME: &[u8] = b"rdma";
const NETIDS: usize = 3;

/// `struct xprt_class` with room for its network identifiers.
#[repr(C)]
struct Class {
    class: bindings::xprt_class,
    netid: [*const c_char; NETIDS],
}

const _: () = assert!(
    core::mem::offset_of!(bindings::xprt_class, netid) == core::mem::offset_of!(Class, netid),
    "sunrpc looks for the network identifiers elsewhere"
);

/// The one class of this module, and the queue for its transports.
struct Registered {
    class: UnsafeCell<Class>,
    queue: UnsafeCell<Option<Arc<OwnedQueue>>>,
}

// SAFETY: Only `ClassRegistration` writes, before sunrpc knows the class and after it forgot it.
unsafe impl Sync for Registered {}

static REGISTERED: Registered = Registered {
    class: UnsafeCell::new(Class {
        // SAFETY: The C structure is valid as zeroes.
        class: unsafe { core::mem::MaybeUninit::zeroed().assume_init() },
        netid: [core::ptr::null(); NETIDS],
    }),
    queue: UnsafeCell::new(None),
};

/// The class, as long as sunrpc knows it.
pub(crate) struct ClassRegistration(());

impl ClassRegistration {
    /// Registers `T` as the transport class "rdma". `queue` runs the connects.
    ///
    /// # Errors
    ///
    /// `EEXIST` if another module has registered the class.
    pub(crate) fn new<T: ClientTransport>(
        module: &'static ThisModule,
        queue: Arc<OwnedQueue>,
    ) -> Result<Self> {
        // SAFETY: A module is initialised once, and nobody else knows the class yet.
        let (class, slot) = unsafe { (&mut *REGISTERED.class.get(), &mut *REGISTERED.queue.get()) };
        class.class.ident = bindings::xprt_transports_XPRT_TRANSPORT_RDMA;
        class.class.setup = Some(setup::<T>);
        class.class.owner = module.as_ptr();
        for (to, from) in class.class.name.iter_mut().zip(NAME) {
            *to = *from;
        }
        class.netid = [
            c"rdma".as_char_ptr(),
            c"rdma6".as_char_ptr(),
            c"".as_char_ptr(),
        ];
        *slot = Some(queue);
        // SAFETY: The class is complete, lives as long as the module, and has an own list head.
        to_result(unsafe {
            bindings::INIT_LIST_HEAD(&mut class.class.list);
            bindings::xprt_register_transport(&mut class.class)
        })
        .inspect_err(|_| *slot = None)?;
        Ok(Self(()))
    }
}

impl Drop for ClassRegistration {
    fn drop(&mut self) {
        // SAFETY: `new` registered the class. Transports hold module references, so none is left
        // and sunrpc does not call `setup` any more.
        unsafe {
            bindings::xprt_unregister_transport(&mut (*REGISTERED.class.get()).class);
            *REGISTERED.queue.get() = None;
            // Who gave the last reference to a transport back in a callback may not have returned from
            // it yet, and from there to sunrpc nothing sleeps.
            bindings::rpcrdma_synchronize_rcu_tasks();
        }
    }
}

/// `setup`: makes a transport for a mount. Process context, may sleep.
///
/// # Safety
///
/// Called by sunrpc only, as the contract of the callback says.
unsafe extern "C" fn setup<T: ClientTransport>(
    args: *mut bindings::xprt_create,
) -> *mut bindings::rpc_xprt {
    // SAFETY: The arguments are valid during the callback.
    match create::<T>(unsafe { &*args }) {
        Ok(raw) => raw,
        Err(error) => error.to_ptr(),
    }
}

fn create<T: ClientTransport>(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
    if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SAFETY: The class is registered, or sunrpc would not have called.
    let (class, queue) = unsafe { (&*REGISTERED.class.get(), &*REGISTERED.queue.get()) };
    let queue = queue.as_ref().ok_or(EIO)?.as_raw();
    let module = class.class.owner;
    // SAFETY: The module is loaded, as its code runs.
    if !unsafe { bindings::try_module_get(module) } {
        return Err(EIO);
    }
    let requests = T::max_requests();
    // SAFETY: The namespace is referenced during the callback.
    let raw = unsafe {
        bindings::xprt_alloc(
            args.net,
            size_of::<Allocation>(),
            requests.min(PREALLOCATED_SLOTS),
            requests,
        )
    };
    let Some(allocation) = NonNull::new(raw.cast::<Allocation>()) else {
        // SAFETY: Referenced above.
        unsafe { bindings::module_put(module) };
        return Err(ENOMEM);
    };
    // SAFETY: The allocation is zeroed, but for what sunrpc has initialised; the module is
    // referenced above.
    let owned = unsafe { OwnedXprt::new(allocation, module) };
    // SAFETY: Nobody else knows the allocation yet.
    let inner = unsafe { &mut *allocation.as_ptr() };
    let xprt = &mut inner.xprt;
    inner.queue = queue;
    inner.timeout.to_initval = seconds(60);
    inner.timeout.to_maxval = seconds(60);
    xprt.timeout = &raw const inner.timeout;
    xprt.connect_timeout = seconds(60);
    // So long may a server be back before its clients notice, beside the RPC layer's own 3 s.
    xprt.max_reconnect_timeout = seconds(15);
    xprt.bind_timeout = seconds(60);
    xprt.idle_timeout = seconds(300);
    xprt.set_resvport(0);
    xprt.ops = ops::VTable::<T>::ops();
    // Side protocols that look at the transport want to use TCP.
    xprt.prot = i32::try_from(bindings::IPPROTO_TCP)?;
    xprt.xprt_class = &raw const class.class;
    xprt.max_payload = T::MAX_PAYLOAD;
    xprt.addrlen = args.addrlen;
    // SAFETY: The destination has room, as checked; the source has `addrlen` bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(
            args.dstaddr.cast::<u8>(),
            (&raw mut xprt.addr).cast::<u8>(),
            args.addrlen,
        );
        if bindings::rpcrdma_rpc_get_port(args.dstaddr) != 0 {
            bindings::rpcrdma_xprt_set_bound(xprt);
        }
        bindings::rpcrdma_init_delayed_work(&mut inner.work, Some(connect::work::<T>));
        let overdue = &raw mut inner.shares.overdue;
        bindings::rpcrdma_init_delayed_work(overdue, Some(credits::overdue::<T>));
    }
    address::format_strings(xprt)?;
    inner.transport = Arc::into_raw(T::setup(owned)?).cast();
    Ok(raw)
}

/// Requests that a transport has from the start; the others are allocated when they are needed.
const PREALLOCATED_SLOTS: u32 = 16;

fn seconds(seconds: u32) -> usize {
    msecs_to_jiffies(seconds.saturating_mul(1000))
}

/// `set_connect_timeout`: lowers the timeouts. Process context.
///
/// # Safety
///
/// Called by sunrpc only, as the contract of the callback says.
pub(super) unsafe extern "C" fn set_connect_timeout(
    raw: *mut bindings::rpc_xprt,
    connect: usize,
    reconnect: usize,
) {
    // SAFETY: The transport is valid during the callback.
    let xprt = unsafe { super::Xprt::from_raw(raw) };
    trace::xprtrdma_op_set_cto(xprt, connect, reconnect);
    let _guard = xprt.transport_lock();
    // SAFETY: The lock that guards the timeouts is held.
    unsafe {
        if connect < (*raw).connect_timeout {
            let timeout = &mut (*xprt.allocation()).timeout;
            // An attempt that is given up sooner would not outlive the pause before it.
            timeout.to_initval = connect.max(seconds(10));
            timeout.to_maxval = timeout.to_initval;
            (*raw).connect_timeout = connect;
        }
        if reconnect < (*raw).max_reconnect_timeout {
            (*raw).max_reconnect_timeout = reconnect;
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_class)]
mod tests {
    use super::*;
    use kernel::str::CStr;

    /// What NFS does with the netid of a pNFS data server, and with the word of a mount option.
    fn ident(netid: &CStr) -> i32 {
        // SAFETY: The text is terminated.
        unsafe { bindings::xprt_find_transport_ident(netid.as_char_ptr()) }
    }

    /// Has the class make a transport for an address that begins with `family`.
    fn setup(family: u32, addrlen: usize) -> i32 {
        // SAFETY: The C structures are valid as zeroes.
        let (mut args, mut address): (bindings::xprt_create, bindings::__kernel_sockaddr_storage) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        let family = u16::try_from(family).unwrap_or(0);
        // SAFETY: An address begins with its family.
        unsafe { (&raw mut address).cast::<u16>().write(family) };
        args.net = &raw mut bindings::init_net;
        args.dstaddr = (&raw mut address).cast();
        args.addrlen = addrlen;
        // SAFETY: The class is registered, as these tests run when the module is loaded.
        let setup = unsafe { (*REGISTERED.class.get()).class.setup };
        // SAFETY: The arguments are complete.
        let raw = setup.map(|setup| unsafe { setup(&raw mut args) });
        raw.map_or(0, |raw| {
            kernel::error::from_err_ptr(raw).map_or_else(|error| error.to_errno(), |_| 0)
        })
    }

    #[test]
    fn either_netid_of_a_data_server_finds_the_class() {
        let rdma = i32::try_from(bindings::xprt_transports_XPRT_TRANSPORT_RDMA);
        assert_eq!(Ok(ident(c"rdma")), rdma);
        assert_eq!(Ok(ident(c"rdma6")), rdma);
    }

    #[test]
    fn the_list_of_netids_has_an_end() {
        assert!(ident(c"rdma7") < 0);
    }

    #[test]
    fn an_address_that_is_too_long_is_refused() {
        let len = size_of::<bindings::__kernel_sockaddr_storage>() + 1;
        assert_eq!(setup(bindings::AF_INET, len), EBADF.to_errno());
    }

    #[test]
    fn an_address_of_another_family_is_refused() {
        let refused = -i32::try_from(bindings::EAFNOSUPPORT).unwrap_or(0);
        assert_eq!(setup(bindings::AF_UNIX, 16), refused);
    }
}
