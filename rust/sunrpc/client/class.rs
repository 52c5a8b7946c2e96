// SPDX-License-Identifier: GPL-2.0

//! How client transports are created.

use super::{
    connect, credits,
    implementation::{ClientTransport, TypedAllocation},
    ops::XprtOps,
    xprt::{OwnedXprt, XprtAllocation},
};
use crate::{
    bindings,
    sunrpc::{
        queue::OwnedQueue,
        registration::{Class, ClassRegistration},
        rpc_xprt,
    },
};
use core::{marker::PhantomData, mem::MaybeUninit};
use kernel::{prelude::*, str::CStr, sync::Arc, time::msecs_to_jiffies};

/// The class of the transports `T`, and of no others. It is a static because they point to it.
pub(crate) struct ClientClass<T>(Class, PhantomData<fn(T)>);

impl<T> ClientClass<T> {
    /// As for [`Class::new`].
    pub(crate) const fn new(name: &'static CStr, ident: i32, netids: [&'static CStr; 2]) -> Self {
        Self(Class::new(name, ident, netids), PhantomData)
    }
}

/// The class of `T`, known to sunrpc until this object is dropped, which waits for its transports.
///
/// # Invariants
///
/// The class has a pointer to `_common`, which is dropped after the registration.
pub(crate) struct ClientRegistration<T: ClientTransport> {
    _class: ClassRegistration,
    _common: Arc<Common<T>>,
}

/// What the transports of a class have in common.
struct Common<T: ClientTransport> {
    shared: Arc<T::Shared>,
    /// Attempts to connect run here. Each occupies a worker for up to 40 s, on iWARP for minutes;
    /// with little memory the queue may have only one.
    attempts: OwnedQueue,
}

/// Registers the class of `T`. Its transports have `shared` in common.
///
/// # Errors
///
/// `EBUSY` the second time, `EEXIST` if another module has registered the class, `ENOMEM`.
pub(crate) fn register<T: ClientTransport>(
    module: &'static ThisModule,
    shared: Arc<T::Shared>,
) -> Result<ClientRegistration<T>> {
    let attempts = OwnedQueue::new(c"rpcrdma_connect")?;
    let common = Arc::new(Common { shared, attempts }, GFP_KERNEL)?;
    let (class, pointer) = (&T::class().0, Arc::as_ptr(&common).cast());
    // SAFETY: The class is that of `T`, and so are its transports. Its registration is dropped
    // before what the pointer refers to.
    let class = unsafe { class.register(setup::<T>, module, c"rpcrdma", pointer)? };
    // INVARIANT: The class was registered with this pointer; fields are dropped in order.
    Ok(ClientRegistration {
        _class: class,
        _common: common,
    })
}

/// `setup`: creates a transport for a mount. Process context, may sleep.
///
/// # Safety
///
/// - `args` is valid, its namespace is referenced, and its address has as many bytes as it says.
unsafe extern "C" fn setup<T: ClientTransport>(
    args: *mut bindings::xprt_create,
) -> *mut bindings::rpc_xprt {
    // SAFETY: The arguments are valid during the callback.
    create::<T>(unsafe { &*args }).unwrap_or_else(|error| error.to_ptr())
}

fn create<T: ClientTransport>(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
    let owned = allocate::<T>(args)?;
    let raw = owned.as_raw();
    // SAFETY: A `ClientClass<T>` is only registered by `register::<T>`, with a pointer to this type
    // that stays valid as long as the class has users (invariant of `ClientRegistration`); `owned`
    // is one.
    let common = unsafe { &*owned.user().shared().cast::<Common<T>>() };
    // SAFETY: Only this function uses the field yet. The queue is destroyed after the class has no
    // users.
    unsafe { (*raw.cast::<XprtAllocation>()).attempts = common.attempts.as_raw() };
    let transport = T::setup(owned, common.shared.clone())?;
    // The allocation lives as long as the transport that owns it, but `setup` need not have kept
    // the one that it was given.
    if transport.xprt().as_raw() != raw {
        return Err(EINVAL);
    }
    // SAFETY: The transport keeps the allocation, as just checked, and only this function uses the
    // field yet.
    unsafe { (*raw.cast::<TypedAllocation<T>>()).transport = MaybeUninit::new(transport) };
    Ok(raw)
}

/// Allocates a transport, and initialises what sunrpc reads of it.
fn allocate<T: ClientTransport>(args: &bindings::xprt_create) -> Result<OwnedXprt> {
    // A referral below a mount by TLS tries RDMA first, which would carry its data in the clear.
    // The error makes NFS go on to TCP with TLS.
    if args.xprtsec.policy != bindings::xprtsec_policies_RPC_XPRTSEC_NONE {
        return Err(EACCES);
    }
    let user = T::class().0.enter().ok_or(EIO)?;
    let (requests, ops) = (T::max_requests(), &XprtOps::<T>::OPS);
    // SAFETY: A `TypedAllocation` begins with a `Base`. The arguments are valid during the
    // callback.
    let allocation =
        unsafe { rpc_xprt::allocate::<TypedAllocation<T>>(args, user, ops, requests)? };
    // SAFETY: The allocation is new, and only this function knows it.
    unsafe { (&raw mut (*allocation.as_ptr()).sender).write(None) };
    let allocation = allocation.cast::<XprtAllocation>();
    // SAFETY: It was just allocated, and what was not initialised is zeroed, which is valid.
    let owned = unsafe { OwnedXprt::new(allocation) };
    // SAFETY: The allocation is new, and only this function knows it.
    unsafe {
        let raw = allocation.as_ptr();
        (*raw).reserve = bindings::rpcrdma_rpc_reserve_create();
        if (*raw).reserve.is_null() {
            return Err(ENOMEM);
        }
        bindings::rpcrdma_init_delayed_work(&raw mut (*raw).base.work, Some(connect::work::<T>));
        bindings::rpcrdma_init_overdue(&raw mut (*raw).overdue, Some(credits::overdue::<T>));

        let xprt = owned.as_raw();
        (*xprt).connect_timeout = msecs_to_jiffies(60_000);
        // A server may be back for this long before its clients notice, in addition to the RPC
        // layer's own 3 s.
        (*xprt).max_reconnect_timeout = msecs_to_jiffies(15_000);
        (*xprt).bind_timeout = msecs_to_jiffies(60_000);
        (*xprt).idle_timeout = msecs_to_jiffies(300_000);
        // Side protocols that look at the transport should use TCP.
        (*xprt).prot = i32::try_from(bindings::IPPROTO_TCP)?;
        (*xprt).max_payload = T::MAX_PAYLOAD;
        if bindings::rpcrdma_rpc_get_port(args.dstaddr) != 0 {
            owned.set(bindings::XPRT_BOUND);
        }
    }
    Ok(owned)
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_class)]
mod tests {
    use super::{
        super::{backchannel::Backchannel, rqst::Rqst},
        *,
    };
    use crate::{
        bindings::SocketAddress,
        sunrpc::{registration::IDENT_RDMA, send_error::SendError, XdrBuf},
    };
    use kernel::seq_file::SeqFile;

    /// What NFS does with the netid of a pNFS data server, and with the value of a mount option.
    fn ident(netid: &CStr) -> i32 {
        // SAFETY: The text is terminated.
        unsafe { bindings::xprt_find_transport_ident(netid.as_char_ptr()) }
    }

    /// A transport that is never created.
    struct Unmade(OwnedXprt);

    #[cfg(MODULE)]
    extern "C" {
        static __this_module: u8;
    }

    // SAFETY: This is the address of this module's object.
    #[cfg(MODULE)]
    static MODULE: ThisModule =
        unsafe { ThisModule::from_ptr((&raw const __this_module).cast_mut().cast()) };

    // SAFETY: What is built into the kernel has no object.
    #[cfg(not(MODULE))]
    static MODULE: ThisModule = unsafe { ThisModule::from_ptr(core::ptr::null_mut()) };

    static UNMADE: ClientClass<Unmade> =
        ClientClass::new(c"rpcrdma-kunit", 0x7f00_0001, [c"", c""]);

    impl ClientTransport for Unmade {
        type Shared = ();
        type Sender = ();

        const MAX_PAYLOAD: usize = 0;
        const BACKWARD_SLOTS: u32 = 0;

        fn class() -> &'static ClientClass<Self> {
            &UNMADE
        }

        fn max_requests() -> u32 {
            1
        }

        fn setup(xprt: OwnedXprt, _shared: Arc<()>) -> Result<Arc<Self>> {
            if xprt.address().port() != CARELESS {
                return Err(ENODEV);
            }
            let (mut args, address) = arguments(bindings::AF_INET, 16, CARELESS);
            args.dstaddr = address.as_raw();
            let other = allocate::<Self>(&args)?;
            // Dropped only now: otherwise both could have the same address.
            drop(xprt);
            Ok(Arc::new(Self(other), GFP_KERNEL)?)
        }

        fn xprt(&self) -> &OwnedXprt {
            &self.0
        }

        fn connect(_this: kernel::sync::ArcBorrow<'_, Self>) -> Result {
            Ok(())
        }

        fn close(&self, _sender: ()) {}

        fn send(&self, _sender: &mut (), _rqst: &Rqst) -> Result<(), SendError> {
            Ok(())
        }

        fn send_backward(
            &self,
            _sender: &mut (),
            _xid: u32,
            _reply: &XdrBuf<'_>,
            _bc_cookie: u64,
        ) -> Result<(), SendError> {
            Ok(())
        }

        fn fence(&self, _rqst: &Rqst) {}

        fn check_peer(&self) -> bool {
            false
        }

        fn timed_out(&self, _is_due: impl FnOnce() -> bool) {}

        fn disconnect(&self) {}

        fn print_stats(&self, _seq: &SeqFile) {}

        fn source(&self) -> Option<SocketAddress> {
            None
        }

        fn backward_payload(&self) -> usize {
            0
        }

        fn backchannel(&self) -> &Backchannel {
            unreachable!()
        }
    }

    fn register_unmade() -> Result<ClientRegistration<Unmade>> {
        register::<Unmade>(&MODULE, Arc::new((), GFP_KERNEL)?)
    }

    /// The port of a server whose transport drops its allocation, and has another one.
    const CARELESS: u16 = 9;

    /// What a transport is created from, and its address, to which the caller sets the pointer.
    fn arguments(family: u32, addrlen: usize, port: u16) -> (bindings::xprt_create, SocketAddress) {
        let mut args = bindings::xprt_create::default();
        let mut address = bindings::__kernel_sockaddr_storage::default();
        let family = u16::try_from(family).unwrap();
        // SAFETY: An address begins with its family.
        unsafe { (&raw mut address).cast::<u16>().write(family) };
        // SAFETY: The address has a family, and room for a port.
        unsafe { bindings::rpcrdma_rpc_set_port((&raw mut address).cast(), port) };
        args.net = &raw mut bindings::init_net;
        args.addrlen = addrlen;
        (args, SocketAddress(address))
    }

    /// Makes the class create a transport for an address of this family and length.
    fn make(family: u32, addrlen: usize, port: u16) -> Error {
        let (mut args, address) = arguments(family, addrlen, port);
        args.dstaddr = address.as_raw();
        create::<Unmade>(&args).unwrap_err()
    }

    #[test]
    fn a_class_is_registered_once_and_makes_transports_meanwhile() {
        let in_family = || make(bindings::AF_INET, 16, 0);
        assert_eq!(in_family(), EIO);
        let registration = register_unmade().unwrap();
        assert!(matches!(register_unmade(), Err(EBUSY)));

        assert_eq!(in_family(), ENODEV);
        assert_eq!(make(bindings::AF_INET, 16, CARELESS), EINVAL);
        for policy in [
            bindings::xprtsec_policies_RPC_XPRTSEC_TLS_ANON,
            bindings::xprtsec_policies_RPC_XPRTSEC_TLS_X509,
        ] {
            let (mut args, address) = arguments(bindings::AF_INET, 16, 0);
            args.dstaddr = address.as_raw();
            args.xprtsec.policy = policy;
            assert_eq!(create::<Unmade>(&args).unwrap_err(), EACCES);
        }
        let len = size_of::<bindings::__kernel_sockaddr_storage>() + 1;
        assert_eq!(make(bindings::AF_INET, len, 0), EBADF);
        let refused = -i32::try_from(bindings::EAFNOSUPPORT).unwrap();
        assert_eq!(make(bindings::AF_UNIX, 16, 0).to_errno(), refused);

        // Waits for the users of the class that are left.
        drop(registration);
        assert_eq!(in_family(), EIO);
        assert!(matches!(register_unmade(), Err(EBUSY)));
    }

    #[test]
    fn either_netid_of_a_data_server_finds_the_class() {
        assert_eq!(ident(c"rdma"), IDENT_RDMA);
        assert_eq!(ident(c"rdma6"), IDENT_RDMA);
    }

    #[test]
    fn the_list_of_netids_has_an_end() {
        assert!(ident(c"rdma7") < 0);
    }
}
