// SPDX-License-Identifier: GPL-2.0

//! Receives: buffers that belong to the device until a message fills one.

use super::{
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    dma::DmaBuffer,
    Pd,
};
use crate::{bindings, trace};
use core::{marker::PhantomData, mem::offset_of, mem::ManuallyDrop, ptr::NonNull};
use kernel::{dma::DataDirection, error::to_result, prelude::*, sync::Arc, types::Opaque};

/// What has a queue pair, and gets the messages that arrive there.
pub(crate) trait ReceiveOwner: Sized {
    /// A Receive has completed, with `message` in it if that was a success.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion, `wc`.
    unsafe fn received(&self, message: Received<Self>, wc: &bindings::ib_wc);
}

/// A buffer for one message to `owner`, with the work request that posts it. Who posts it gives it away;
/// its completion gives it back.
///
/// # Invariants
///
/// The first `length` bytes of `buffer` are a message, which the device has handed to the CPU. Of a
/// Receive that is posted, `owner` is valid: it waits for its Receives before it goes.
pub(super) struct Receive<O: ReceiveOwner> {
    cqe: Cqe<Self>,
    request: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buffer: DmaBuffer,
    length: usize,
    /// Tells it from others of the owner, in trace events.
    index: u32,
    owner: NonNull<O>,
}

impl_has_cqe! {
    impl{O: ReceiveOwner} HasCqe<0> for Receive<O> { self.cqe }
}

impl<O: ReceiveOwner> Receive<O> {
    /// Allocates a buffer of `size` bytes for messages to `owner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        pd: &Arc<Pd>,
        size: usize,
        index: u32,
        owner: NonNull<O>,
    ) -> Result<KBox<Self>> {
        let buffer = DmaBuffer::new(pd, size, DataDirection::FromDevice, GFP_KERNEL)?;
        let sge = buffer.sge(0, size).ok_or(EINVAL)?;
        // INVARIANT: There is no message.
        let mut receive = KBox::new(
            Self {
                cqe: Cqe::new(),
                request: bindings::ib_recv_wr::default(),
                sge,
                buffer,
                length: 0,
                index,
                owner,
            },
            GFP_KERNEL,
        )?;
        // From here on it stays where it is.
        let this: *mut Self = &mut *receive;
        receive.request = bindings::ib_recv_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(Self::wr_cqe(this)),
            },
            // SAFETY: Only takes the address of a field.
            sg_list: unsafe { &raw mut (*this).sge },
            num_sge: 1,
        };
        Ok(receive)
    }

    /// What tells it from others of the owner.
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

impl<O: ReceiveOwner> Complete for Receive<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        // SAFETY: `Receives::post` gave the Receive away, which has come back by its completion.
        let mut receive = unsafe { KBox::from_raw(this.as_ptr()) };
        trace::xprtrdma_wc_receive(cq, receive.index, wc);
        // SAFETY: By the type's invariant the owner is valid, as the Receive was posted until now.
        let owner = unsafe { receive.owner.as_ref() };
        let length = usize::try_from(wc.byte_len).ok();
        // A failed completion says nothing of the length.
        receive.length = match length.filter(|_| wc.status == bindings::ib_wc_status_IB_WC_SUCCESS)
        {
            Some(length) if length <= receive.buffer.len() => {
                receive.buffer.sync_for_cpu(length);
                // INVARIANT: The device has written so many bytes.
                length
            }
            _ => 0,
        };
        // SAFETY: This is the handler of the completion.
        unsafe { owner.received(Received(receive), wc) };
    }
}

/// A message that arrived, in its buffer.
pub(crate) struct Received<O: ReceiveOwner>(KBox<Receive<O>>);

// SAFETY: The message may be read from any thread, and the buffer freed; the owner is only used by
// completions.
unsafe impl<O: ReceiveOwner> Send for Received<O> {}

impl<O: ReceiveOwner> Received<O> {
    /// The bytes of the message.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.buffer.first(self.0.length)
    }

    /// The Receive, to be posted again, if it is one of `owner`.
    pub(super) fn into_receive(self, owner: &O) -> Option<KBox<Receive<O>>> {
        core::ptr::eq(self.0.owner.as_ptr(), owner).then_some(self.0)
    }
}

/// Receives of one owner that are posted together.
///
/// # Invariants
///
/// `first` is null or the request of a Receive from `KBox::into_raw`, whose `next` leads to another
/// such one; there are `count` of them, and the object owns them all.
pub(super) struct Receives<O: ReceiveOwner> {
    first: *mut bindings::ib_recv_wr,
    count: usize,
    receive: PhantomData<KBox<Receive<O>>>,
}

// SAFETY: A Receive that is not posted may be owned by any thread.
unsafe impl<O: ReceiveOwner> Send for Receives<O> {}

impl<O: ReceiveOwner> Receives<O> {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            first: core::ptr::null_mut(),
            count: 0,
            receive: PhantomData,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds one.
    #[inline(always)]
    pub(super) fn push(&mut self, mut receive: KBox<Receive<O>>) {
        receive.request.next = self.first;
        receive.length = 0;
        let receive = KBox::into_raw(receive);
        // INVARIANT: The object owns what it has just taken over.
        // SAFETY: The Receive is valid; only takes the address of a field.
        self.first = unsafe { &raw mut (*receive).request };
        self.count = self.count.wrapping_add(1);
    }

    /// Takes one out.
    fn pop(&mut self) -> Option<KBox<Receive<O>>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: By the type's invariant this is the request of a Receive, which this object owns.
        unsafe {
            let receive = self.first.byte_sub(offset_of!(Receive<O>, request)).cast();
            self.first = (*self.first).next;
            self.count = self.count.wrapping_sub(1);
            Some(KBox::from_raw(receive))
        }
    }

    /// Gives all of them to the device.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of their owner, which waits for what is posted there before it goes.
    ///
    /// # Errors
    ///
    /// What the provider answers, and those that it has not taken.
    pub(super) unsafe fn post(self, qp: *mut bindings::ib_qp) -> Result<(), (Error, Self)> {
        let this = ManuallyDrop::new(self);
        if this.first.is_null() {
            return Ok(());
        }
        let mut rest: *const bindings::ib_recv_wr = core::ptr::null();
        // SAFETY: The requests and their buffers are owned by nobody else until they complete. The CPU
        // has not written to the buffers, so that there is nothing to sync.
        let status = unsafe { bindings::rpcrdma_ib_post_recv(qp, this.first, &mut rest) };
        to_result(status).map_err(|error| {
            // INVARIANT: The provider has taken those before the one that it names. Of the others only
            // the drop is used, which counts nothing.
            let rest = Self {
                first: rest.cast_mut(),
                count: 0,
                receive: PhantomData,
            };
            (error, rest)
        })
    }
}

impl<O: ReceiveOwner> Drop for Receives<O> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
