// SPDX-License-Identifier: GPL-2.0

//! An RDMA device, its users and its capabilities, and its protection domains.

use super::list::{List, Node};
use crate::bindings;
use core::{num::NonZeroU32, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    fmt, new_mutex,
    prelude::*,
    str::{BStr, CStrExt},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Completion, Mutex,
    },
};

/// A registered device. Its removal waits until the last reference is dropped.
///
/// # Invariants
///
/// `raw` is a registered device, and stays registered until `gone` is complete.
#[pin_data(PinnedDrop)]
pub(crate) struct Device {
    raw: NonNull<bindings::ib_device>,
    #[pin]
    users: Mutex<Users>,
    /// Completed when the last reference to the device is dropped.
    gone: Arc<Completion>,
}

/// Those to be notified of the removal; `None` once that has begun.
type Users = Option<List<Node<Arc<dyn Removal>>>>;

// SAFETY: The RDMA core allows a device to be used from any thread.
unsafe impl Send for Device {}
// SAFETY: The RDMA core allows several threads to use a device at a time, and the users are locked.
unsafe impl Sync for Device {}

/// Is notified that a device is being removed.
pub(crate) trait Removal: Send + Sync {
    /// The removal has begun, and waits for all users of the device. Process context; must not wait
    /// for the removal itself.
    fn removed(&self);
}

/// A request to be notified of a device's removal, in force until it is dropped.
///
/// # Invariants
///
/// `device.users` contains `user`, once for this object, until the notification was delivered.
pub(crate) struct RemovalNotice {
    device: Arc<Device>,
    user: Arc<dyn Removal>,
}

impl RemovalNotice {
    /// Notifies `user` when `device` is removed. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is already being removed, or `ENOMEM`.
    pub(crate) fn new(device: &Arc<Device>, user: Arc<dyn Removal>) -> Result<Self> {
        let node = Node::new(user.clone())?;
        let mut users = device.users.lock();
        (*users).as_mut().ok_or(ENODEV)?.push_back(node);
        drop(users);
        // INVARIANT: Just added.
        Ok(Self {
            device: device.clone(),
            user,
        })
    }
}

impl Drop for RemovalNotice {
    fn drop(&mut self) {
        let is_own = |node: &Node<Arc<dyn Removal>>| {
            core::ptr::addr_eq(&raw const *node.value, &raw const *self.user)
        };
        let mut users = self.device.users.lock();
        let node = (*users).as_mut().map(|users| users.remove_first(is_own));
        // Outside the lock: it may be the last reference.
        drop(users);
        drop(node);
    }
}

impl Device {
    /// Wraps a device that the RDMA core has added.
    ///
    /// # Safety
    ///
    /// `raw` is a registered device, and stays registered until [`Self::remove`] has returned.
    pub(super) unsafe fn new(raw: NonNull<bindings::ib_device>) -> Result<Arc<Self>> {
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        // INVARIANT: `raw` is registered until `remove` has returned (this function's contract),
        // and `remove` waits for `gone`.
        let device = pin_init!(Self {
            raw,
            users <- new_mutex!(Some(List::new()), "rpcrdma_device_users"),
            gone,
        });
        Arc::pin_init(device, GFP_KERNEL)
    }

    /// Notifies all that asked for it, and waits until the device has no users. May sleep.
    pub(super) fn remove(this: Arc<Self>) {
        let mut users = this.users.lock().take().unwrap_or(List::new());
        // The callbacks may drop their notices, which takes the lock.
        while let Some(user) = users.pop_front() {
            user.value.removed();
        }
        let gone = this.gone.clone();
        drop(this);
        gone.wait_for_completion();
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.raw.as_ptr()
    }

    /// Whether each page is mapped as a bounce buffer that does not keep its offset.
    pub(crate) fn is_bounced(&self) -> bool {
        // SAFETY: By the type's invariant the device is registered.
        unsafe { bindings::rpcrdma_ib_is_bounced(self.as_raw()) }
    }

    /// Reads the attributes, which do not change while the device is registered.
    pub(crate) fn attributes(&self) -> Attributes {
        // SAFETY: By the type's invariant the device is registered; its attributes are constant.
        let attrs = unsafe { &(*self.as_raw()).attrs };
        Attributes {
            memory_management: attrs.device_cap_flags & MEMORY_MANAGEMENT != 0,
            gaps: attrs.kernel_cap_flags & SG_GAPS != 0,
            max_fast_reg_pages: attrs.max_fast_reg_page_list_len,
            max_send_sge: limit(attrs.max_send_sge),
            max_qp_wr: limit(attrs.max_qp_wr),
            max_cqe: limit(attrs.max_cqe),
            max_responder_resources: depth(attrs.max_qp_rd_atom),
            max_initiator_depth: depth(attrs.max_qp_init_rd_atom),
            max_transfer_sge: limit(attrs.max_sge_rd).min(limit(attrs.max_send_sge)),
        }
    }
}

impl Attributes {
    /// The most pages in one RDMA Read or Write of an accepted connection: those of the regions
    /// that the RDMA core makes (`rdma_rw_fr_page_list_len()`). It fills a region by elements and
    /// not by pages, and an element may have several pages: a range of more pages would not fit.
    pub(crate) fn region_pages(&self) -> NonZeroU32 {
        const MOST: u32 = 256;
        let pages = self.max_fast_reg_pages.min(MOST);
        NonZeroU32::new(pages).unwrap_or(NonZeroU32::MIN.saturating_add(MOST - 1))
    }
}

#[pinned_drop]
impl PinnedDrop for Device {
    fn drop(self: Pin<&mut Self>) {
        self.gone.complete_all();
    }
}

// CAST: Small bit masks, in wider words.
const MEMORY_MANAGEMENT: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
const SG_GAPS: u64 = bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG as u64;

/// A limit, which is an `int` in kernel 7.2 and a `u32` from 7.3 on. A negative one counts as 0.
fn limit(limit: impl Into<i64>) -> u32 {
    u32::try_from(limit.into()).unwrap_or(0)
}

/// A limit, capped at what the CM's messages have room for.
fn depth(reported: impl Into<i64>) -> u8 {
    u8::try_from(limit(reported)).unwrap_or(u8::MAX)
}

/// The attributes that decide whether and how a connection can be set up.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    /// Whether work requests can register memory (FRWR).
    pub(crate) memory_management: bool,
    /// Whether memory regions can map discontiguous memory ([`super::MrType::SgGaps`]).
    pub(crate) gaps: bool,
    /// Pages that one memory region can hold.
    pub(crate) max_fast_reg_pages: u32,
    /// Elements in the gather list of a Send.
    pub(crate) max_send_sge: u32,
    /// Work requests that one queue can hold.
    pub(crate) max_qp_wr: u32,
    /// Completions that one completion queue can hold.
    pub(crate) max_cqe: u32,
    /// RDMA Reads that the peer may have outstanding.
    pub(crate) max_responder_resources: u8,
    /// RDMA Reads that this end may have outstanding.
    pub(crate) max_initiator_depth: u8,
    /// Elements in the scatter/gather list of an RDMA Read or Write.
    pub(crate) max_transfer_sge: u32,
}

/// A copy of a device's name, followed by at least one 0 byte.
pub(crate) struct DeviceName([u8; 64]);

impl DeviceName {
    /// Copies the name that `rdma link` shows at this moment: devices can be renamed.
    ///
    /// # Safety
    ///
    /// `device` is registered.
    pub(super) unsafe fn of(device: NonNull<bindings::ib_device>) -> Self {
        // SAFETY: `device` is registered (this function's contract). A rename that is in progress
        // may be copied half done; the last byte is always 0.
        Self(unsafe { (&raw const (*device.as_ptr()).name).read_volatile() })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|&byte| byte == 0).next();
        BStr::from_bytes(name.unwrap_or(&[])).fmt(f)
    }
}

/// A protection domain.
///
/// # Invariants
///
/// `ptr` is a protection domain of `device` that this object owns.
pub(crate) struct Pd {
    ptr: NonNull<bindings::ib_pd>,
    device: Arc<Device>,
    /// Whether the device has refused to stop the domain's queue pair.
    is_unstoppable: Atomic<bool>,
    /// Whether [`Self::log_lost`] was called.
    is_logged: Atomic<bool>,
}

// SAFETY: The RDMA core allows a protection domain to be used from any thread.
unsafe impl Send for Pd {}
// SAFETY: The RDMA core allows several threads to use a protection domain at a time, and no method
// changes the domain.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, usually `ENOMEM`.
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        // SAFETY: The device is registered, and `CALLER` is static.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, super::CALLER.as_char_ptr())
        })?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // INVARIANT: The domain was just allocated on the device.
        Ok(Self {
            ptr,
            device,
            is_unstoppable: Atomic::new(false),
            is_logged: Atomic::new(false),
        })
    }

    /// Records that the device has refused to stop the domain's queue pair, of which there is only
    /// one: bnxt_re says so when the firmware does not answer (`bnxt_qplib_modify_qp()`). Providers
    /// report that they have destroyed an object even then: memory that the device could reach is
    /// not freed from now on.
    pub(super) fn set_unstoppable(&self, error: Error) {
        self.is_unstoppable.store(true, Relaxed);
        self.log_lost("does not stop a queue pair", error);
    }

    /// Whether memory that the device could reach must not be freed.
    pub(super) fn is_unstoppable(&self) -> bool {
        self.is_unstoppable.load(Relaxed)
    }

    /// Logs, once, that memory is not freed, and why.
    pub(super) fn log_lost(&self, what: &str, error: Error) {
        if !self.is_logged.xchg(true, Relaxed) {
            // SAFETY: The device is registered as long as this object refers to it.
            let name = unsafe { DeviceName::of(NonNull::new_unchecked(self.device.as_raw())) };
            pr_warn!("device {name} {what} ({error:?}): reset it. Memory it may reach is lost\n");
        }
    }

    /// The device of this domain.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The key for local access to any DMA-mapped memory.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: The domain is valid, and the key never changes.
        unsafe { (*self.ptr.as_ptr()).local_dma_lkey }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.ptr.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: This object owns the domain. Memory regions and queue pairs hold a counted
        // reference to it, so none is left, unless the provider has failed to destroy it.
        let rc = unsafe { bindings::ib_dealloc_pd_user(self.ptr.as_ptr(), core::ptr::null_mut()) };
        // As ib_dealloc_pd() does: providers must not refuse this to a kernel user.
        kernel::warn_on!(rc != 0 && !self.is_unstoppable());
    }
}
