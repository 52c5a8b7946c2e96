// SPDX-License-Identifier: GPL-2.0

//! The messages of a request (`rq_snd_buf` and `rq_rcv_buf`), whose memory can be exposed to the
//! peer.

use super::buffer;
use crate::{
    bindings::{self, Exposable, Exposure, Location},
    sunrpc::XdrBuf,
};
use core::{ops::Deref, ptr::NonNull};
use kernel::{page::PAGE_SIZE, prelude::*};

/// A request's Call, or the buffer for its Reply, with no page missing.
///
/// # Invariants
///
/// `rqst` is a valid forward request between `buf_alloc` and `buf_free` for all of `'a`, and `buf`
/// is its `rq_snd_buf` or `rq_rcv_buf`. The memory of the message stays until the request's
/// exposure is over, but pages and tail only as long as their pages are referenced if the message
/// `is_counted`.
#[derive(Clone, Copy)]
pub(crate) struct RqstBuf<'a> {
    buf: XdrBuf<'a>,
    rqst: NonNull<bindings::rpc_rqst>,
    /// With RPCSEC_GSS privacy the Call is in pages of its own, which sunrpc releases when it
    /// encodes the Call again.
    is_counted: bool,
}

impl<'a> RqstBuf<'a> {
    /// The Call of a request.
    ///
    /// # Safety
    ///
    /// The type's invariants hold, and the caller has exclusive access to the message. Only the
    /// buffer for a Reply can lack pages.
    pub(super) unsafe fn call(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // SAFETY: The request is valid, and the message belongs to the caller.
        let (buf, is_counted) = unsafe {
            let raw = rqst.as_ptr();
            let buf = XdrBuf::from_raw(NonNull::new_unchecked(&raw mut (*raw).rq_snd_buf));
            (buf, (*raw).rq_release_snd_buf.is_some())
        };
        // INVARIANT: `rqst` is a forward request between `buf_alloc` and `buf_free` for all of
        // `'a`, and its Call lacks no page (this function's contract).
        Self {
            buf,
            rqst,
            is_counted,
        }
    }

    /// The buffer for the Reply to a request. The upper layer may leave it to the transport to
    /// allocate pages (`XDRBUF_SPARSE_PAGES`): those that are missing are allocated, without
    /// waiting.
    ///
    /// # Safety
    ///
    /// The type's invariants hold, except that missing pages are null, and the caller has exclusive
    /// access to the message.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, though another try may succeed.
    pub(super) unsafe fn reply(rqst: NonNull<bindings::rpc_rqst>) -> Result<Self> {
        // SAFETY: The request is valid, and so is its `rq_rcv_buf` (this function's contract).
        let (buf, flags, pages, base, length) = unsafe {
            let buf = &raw mut (*rqst.as_ptr()).rq_rcv_buf;
            // CAST: An unsigned int always fits the kernel's usize.
            let (base, length) = ((*buf).page_base as usize, (*buf).page_len as usize);
            (buf, (*buf).flags, (*buf).pages, base, length)
        };
        if flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
            for index in base / PAGE_SIZE..base.saturating_add(length).div_ceil(PAGE_SIZE) {
                // SAFETY: The array has an element for every page of the data, and has no other
                // user (this function's contract).
                let page = unsafe { &mut *pages.add(index) };
                if page.is_null() {
                    let flags = bindings::GFP_NOWAIT | bindings::__GFP_NOWARN;
                    // SAFETY: `alloc_pages()` may be called in any context with these flags.
                    *page = unsafe { bindings::alloc_pages(flags, 0) };
                    if page.is_null() {
                        return Err(ENOMEM);
                    }
                }
            }
        }
        // SAFETY: The request's `rq_rcv_buf` is valid for all of `'a` (this function's contract),
        // and no page is missing. The address of a field is not null.
        let buf = unsafe { XdrBuf::from_raw(NonNull::new_unchecked(buf)) };
        // INVARIANT: `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`
        // (this function's contract), and no page is missing, as just ensured.
        Ok(Self {
            buf,
            rqst,
            is_counted: false,
        })
    }

    /// The head.
    pub(crate) fn head(&self) -> Option<Exposable<'a>> {
        self.linear(&self.buf.raw().head[0], false)
    }

    /// The page data, if there is any.
    pub(crate) fn pages(&self) -> Option<Exposable<'a>> {
        let raw = self.buf.raw();
        // CAST: An unsigned int always fits the kernel's usize.
        let location = Location::Pages(NonNull::new(raw.pages)?, raw.page_base as usize);
        self.part(location, self.page_len(), self.is_counted)
    }

    /// The tail, if there is one.
    pub(crate) fn tail(&self) -> Option<Exposable<'a>> {
        self.linear(&self.buf.raw().tail[0], self.is_counted)
    }

    /// All parts in order.
    pub(crate) fn parts(&self) -> [Option<Exposable<'a>>; 3] {
        [self.head(), self.pages(), self.tail()]
    }

    fn linear(&self, vec: &bindings::kvec, is_counted: bool) -> Option<Exposable<'a>> {
        let location = Location::Linear(NonNull::new(vec.iov_base.cast())?);
        self.part(location, vec.iov_len, is_counted)
    }

    fn part(&self, location: Location, length: usize, is_counted: bool) -> Option<Exposable<'a>> {
        // SAFETY: By the invariants of both types the memory has that length, and stays allocated.
        unsafe { Exposable::new(location, length, self.exposure(), is_counted) }
    }

    /// The counter of the regions over the message's memory.
    fn exposure(&self) -> &'a Exposure {
        // SAFETY: `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`
        // (type invariant).
        &unsafe { buffer::prefix(self.rqst.as_ptr()) }.exposure
    }
}

impl<'a> Deref for RqstBuf<'a> {
    type Target = XdrBuf<'a>;

    fn deref(&self) -> &XdrBuf<'a> {
        &self.buf
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_rqst_buf)]
mod tests {
    use super::*;

    #[test]
    fn missing_pages_are_found_and_filled() {
        let mut rqst = KBox::new(bindings::rpc_rqst::default(), GFP_KERNEL).unwrap();
        let mut pages = [core::ptr::null_mut(); 4];
        let message = &mut rqst.rq_rcv_buf;
        // The data begins in the second page and ends in the third.
        message.pages = pages.as_mut_ptr();
        message.page_base = u32::try_from(PAGE_SIZE + 8).unwrap();
        message.page_len = u32::try_from(PAGE_SIZE).unwrap();
        message.buflen = message.page_len;
        message.flags = bindings::XDRBUF_SPARSE_PAGES;
        // SAFETY: The request lives as long as its only `RqstBuf`, of which nothing is exposed.
        let message = unsafe { RqstBuf::reply(NonNull::from(&mut *rqst)) }.unwrap();
        // A page can be larger than the stack.
        let data = KVec::from_elem(7, PAGE_SIZE, GFP_KERNEL).unwrap();
        let mut read = [0; 16];
        assert_eq!(message.copy_in(0, &data), Ok(PAGE_SIZE));
        assert!(message.copy_out(PAGE_SIZE - 16, &mut read).is_ok());
        assert_eq!(read, [7; 16]);

        assert_eq!(pages.map(|page| page.is_null()), [true, false, false, true]);
        for page in &pages[1..3] {
            // SAFETY: `reply` has allocated the page, and it is not used any longer.
            unsafe { bindings::__free_pages(*page, 0) };
        }
    }
}
