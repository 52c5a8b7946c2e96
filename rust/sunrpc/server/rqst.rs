// SPDX-License-Identifier: GPL-2.0

//! The requests of service threads (`struct svc_rqst`): a Call that is received, and its Reply.

use super::xprt::SvcXprt;
use crate::{
    bindings::{self, OwnedMessage, PageRange, PageVec, PAGE_BYTES},
    sunrpc::XdrBuf,
};
use core::{marker::PhantomData, ops::Range, ptr::NonNull};
use kernel::{
    ffi::c_int,
    page::PAGE_SIZE,
    prelude::*,
    time::{Instant, Monotonic},
};

/// A complete Call.
pub(crate) struct SvcCall<M: OwnedMessage> {
    /// The message, which is kept until the Reply was sent, or until it is clear that there will be
    /// none.
    pub(crate) message: M,
    /// The bytes of the message that begin the RPC message. Empty if it begins in the pages.
    pub(crate) head: Range<usize>,
    /// Pages with what follows, and the number of bytes in them.
    pub(crate) pages: Option<(PageVec, usize)>,
    /// The bytes of the message with the rest, right after those of the head.
    pub(crate) tail: Range<usize>,
}

/// The message of a Call that sunrpc works on, whose buffers refer to its memory: what is kept with
/// it may change, but it cannot be exchanged for another one.
pub(crate) struct KeptCall<'a, M: OwnedMessage>(&'a mut M);

impl<'a, M: OwnedMessage> KeptCall<'a, M> {
    /// Passes on a message that stays here.
    pub(super) fn new(message: &'a mut M) -> Self {
        Self(message)
    }

    /// The message.
    pub(crate) fn message(&self) -> &M {
        self.0
    }

    /// The bytes of the message, and what is kept with it.
    pub(crate) fn with_data(&mut self) -> (&[u8], &mut M::Data) {
        self.0.with_data()
    }
}

/// The `svc_rqst` of a thread that looks for a Call.
///
/// # Invariants
///
/// `rqst` belongs to the calling thread, and `xprt` is its transport.
pub(crate) struct Receiving<'a> {
    rqst: NonNull<bindings::svc_rqst>,
    xprt: &'a SvcXprt,
}

impl<'a> Receiving<'a> {
    /// Declares that this thread looks for a Call.
    ///
    /// # Safety
    ///
    /// The type's invariants hold, and `xpo_recvfrom` was just called.
    pub(super) unsafe fn new(rqst: *mut bindings::svc_rqst, xprt: &'a SvcXprt) -> Self {
        // SAFETY: `rqst` belongs to the calling thread (this function's contract). No page of the
        // Reply is in use yet.
        unsafe {
            (*rqst).rq_next_page = (*rqst).rq_respages;
            (*rqst).rq_xprt_ctxt = core::ptr::null_mut();
        }
        Self {
            // SAFETY: `rqst` is a request of the calling thread, so it is not null (this function's
            // contract).
            rqst: unsafe { NonNull::new_unchecked(rqst) },
            xprt,
        }
    }

    /// Takes the first `count` of the thread's pages. sunrpc replaces them before the thread looks
    /// for a Call again.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` if the thread has fewer, `EIO` if it has given some before.
    pub(crate) fn take_pages(&mut self, count: usize) -> Result<PageVec> {
        let mut pages = PageVec::default();
        pages.reserve(count, GFP_KERNEL)?;
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread (type invariant), and so do its pages.
        unsafe {
            let array = core::slice::from_raw_parts_mut((*rqst).rq_pages, (*rqst).rq_maxpages);
            pages.take_array(array.get_mut(..count).ok_or(EINVAL)?)?;
            (*rqst).rq_pages_nfree = count;
        }
        Ok(pages)
    }

    /// Passes `call`, if there is one, to sunrpc as that of the request. Returns what `recvfrom` is
    /// to return.
    pub(super) fn finish<M: OwnedMessage>(mut self, call: Option<SvcCall<M>>) -> c_int {
        let accepted = call.map_or(Ok(0), |call| self.accept(call));
        accepted.unwrap_or_else(|error| {
            self.xprt.deferred_close();
            error.to_errno()
        })
    }

    /// Passes `call` to sunrpc as that of the request.
    ///
    /// There is no tail: nfsd assumes none, as other transports have none. Its reply cache and
    /// nfsd4_vbuf_from_vector() would take what a page held before for the bytes after `page_len`.
    /// Without Read chunks the head has a page at most: gss_read_proxy_verf() of Linux 7.2
    /// copies a token from the head to one page. A Call with such a token has no Read chunk.
    fn accept<M: OwnedMessage>(&mut self, call: SvcCall<M>) -> Result<c_int> {
        let SvcCall {
            mut message,
            mut head,
            pages,
            tail: mut rest,
        } = call;
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread (type invariant), and so do its pages. There
        // are no references to the whole request: other threads change its flags.
        let (array, arg, given) = unsafe {
            let array = core::slice::from_raw_parts_mut((*rqst).rq_pages, (*rqst).rq_maxpages);
            (array, &mut (*rqst).rq_arg, (*rqst).rq_pages_nfree)
        };
        // All pages are present before a thread looks for work, unless it has given some.
        if given != 0 {
            return Err(EINVAL);
        }
        let (mut page_len, mut first_page) = (0, 0);
        if let Some((mut pages, length)) = pages {
            if length.div_ceil(PAGE_SIZE) > pages.len() {
                return Err(EINVAL);
            }
            let used = array.get_mut(..pages.len()).ok_or(EMSGSIZE)?;
            // SAFETY: The thread owns references to its pages.
            unsafe { pages.exchange(used)? };
            page_len = length;
        } else {
            head.end = rest.start.min(head.start.saturating_add(PAGE_SIZE));
            rest.start = head.end;
        }
        let memory = message.memory();
        let (mut head, rest) = (kvec(memory, head)?, kvec(memory, rest)?);
        if head.iov_len == 0 {
            // An RPC message must begin in the head.
            // SAFETY: The first page is present.
            head.iov_base = unsafe { bindings::rpcrdma_page_address(*array.as_ptr()) };
            head.iov_len = page_len.min(PAGE_SIZE);
            page_len = page_len.saturating_sub(head.iov_len);
            first_page = 1;
        }
        let before = head.iov_len.saturating_add(page_len);
        let total = before.saturating_add(rest.iov_len);
        page_len = page_len.saturating_add(rest.iov_len);
        if page_len.div_ceil(PAGE_SIZE) > array.len().saturating_sub(first_page) {
            return Err(EMSGSIZE);
        }
        arg.head[0] = head;
        arg.tail[0].iov_len = 0;
        arg.pages = array.as_mut_ptr().wrapping_add(first_page);
        arg.page_base = 0;
        arg.page_len = u32::try_from(page_len)?;
        arg.len = u32::try_from(total)?;
        arg.buflen = arg.len;
        // SAFETY: The message has these bytes, to which nothing writes. The buffer is complete, and
        // belongs to this thread.
        unsafe {
            let rest = core::slice::from_raw_parts(rest.iov_base.cast(), rest.iov_len);
            XdrBuf::from_raw(NonNull::from(arg)).copy_in(before, rest)?;
        }
        // SAFETY: The request belongs to this thread (type invariant), and its transport is valid.
        // Other threads change the flags by atomic operations, too.
        unsafe {
            bindings::svc_xprt_copy_addrs(rqst, self.xprt.as_raw());
            let flags = &raw mut (*rqst).rq_flags;
            // CAST: Bit numbers.
            bindings::set_bit(bindings::RQ_SECURE as usize, flags);
            // For a Call from this machine nfsd does not wait for pages that the client has
            // dirtied: those wait for nfsd.
            if self.xprt.has(bindings::XPT_LOCAL) {
                bindings::set_bit(bindings::RQ_LOCAL as usize, flags);
            } else {
                bindings::clear_bit(bindings::RQ_LOCAL as usize, flags);
            }
            // What nfsd expects of a transport that is neither UDP nor TCP.
            (*rqst).rq_prot = bindings::IPPROTO_MAX;
            // The bytes stay where they are until the context is released.
            (*rqst).rq_xprt_ctxt = message.into_raw().as_ptr();
        }
        Ok(c_int::try_from(total)?)
    }
}

/// The vector of these bytes of a message.
///
/// # Errors
///
/// `EINVAL` if the message does not have them.
fn kvec((start, length): (NonNull<u8>, usize), bytes: Range<usize>) -> Result<bindings::kvec> {
    let iov_len = bytes.end.checked_sub(bytes.start).ok_or(EINVAL)?;
    if bytes.end > length {
        return Err(EINVAL);
    }
    Ok(bindings::kvec {
        iov_base: start.as_ptr().wrapping_add(bytes.start).cast(),
        iov_len,
    })
}

/// The `svc_rqst` of a thread that has encoded a Reply.
///
/// # Invariants
///
/// `rqst` belongs to the calling thread, and its `rq_res` is a complete RPC message, in the pages
/// from `rq_respages` on. There are `rq_maxpages` of these, none of them null.
pub(crate) struct Replying<'a> {
    rqst: NonNull<bindings::svc_rqst>,
    thread: PhantomData<&'a mut bindings::svc_rqst>,
}

impl Replying<'_> {
    /// Declares that this thread has encoded a Reply.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(rqst: *mut bindings::svc_rqst) -> Self {
        Self {
            // SAFETY: `rqst` is a request of the calling thread, so it is not null (this function's
            // contract).
            rqst: unsafe { NonNull::new_unchecked(rqst) },
            thread: PhantomData,
        }
    }

    /// The RPC message.
    pub(crate) fn message(&self) -> XdrBuf<'_> {
        // SAFETY: By the type's invariant the message is complete, and belongs to this thread.
        unsafe {
            XdrBuf::from_raw(NonNull::new_unchecked(
                &raw mut (*self.rqst.as_ptr()).rq_res,
            ))
        }
    }

    /// When the thread began to execute the Call, which it had just taken.
    pub(crate) fn began(&self) -> Instant<Monotonic> {
        // SAFETY: `rqst` belongs to the calling thread (type invariant), which alone sets the time,
        // with `ktime_get()`: a value of that is what `Instant` is transparent over.
        unsafe {
            (&raw const (*self.rqst.as_ptr()).rq_stime)
                .cast::<Instant<_>>()
                .read()
        }
    }

    /// Moves the pages of the Reply to `pages`, in which `reserve` makes room for so many, and
    /// returns where in them the bytes of the message are. The message is no longer complete, and
    /// sunrpc supplies other pages for the thread's next Reply.
    ///
    /// # Errors
    ///
    /// Those of `reserve`; `EIO` if the data is not in these pages. Then none has moved.
    pub(crate) fn move_pages(
        self,
        pages: &mut PageVec,
        reserve: impl FnOnce(&mut PageVec, usize) -> Result,
    ) -> Result<ResultLayout> {
        let res = self.res();
        let data = self.data_pages()?;
        let (head, tail) = (self.linear(&res.head[0]), self.linear(&res.tail[0]));
        // RPCSEC_GSS may have continued beyond what the service has encoded, without recording it.
        let mut count = self.used_pages().max(data.end);
        for (index, _) in [head, tail].into_iter().flatten() {
            count = count.max(index.saturating_add(1));
        }
        if count > self.pages().len() {
            return Err(EIO);
        }
        let layout = ResultLayout([
            (head, u32::try_from(res.head[0].iov_len)?),
            (Some((data.start, res.page_base)), res.page_len),
            (tail, u32::try_from(res.tail[0].iov_len)?),
        ]);
        reserve(pages, count)?;
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread (type invariant), and the array of its pages
        // has `count` elements, each of them a page with a reference for the thread, which passes
        // to `pages`, and one element more. sunrpc replaces the pages up to `rq_next_page`.
        unsafe {
            (*rqst).rq_next_page = (*rqst).rq_respages.add(count);
            pages.take_array(core::slice::from_raw_parts_mut((*rqst).rq_respages, count))?;
        }
        Ok(layout)
    }

    /// The result. There are no references to the whole request: other threads change its flags.
    fn res(&self) -> &bindings::xdr_buf {
        // SAFETY: The request belongs to this thread (type invariant).
        unsafe { &(*self.rqst.as_ptr()).rq_res }
    }

    /// The thread's pages for Replies.
    fn pages(&self) -> &[*mut bindings::page] {
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread, and the array has so many elements (type
        // invariants).
        unsafe { core::slice::from_raw_parts((*rqst).rq_respages, (*rqst).rq_maxpages) }
    }

    /// How many of the thread's pages the service has used for the Reply.
    fn used_pages(&self) -> usize {
        // SAFETY: The request belongs to this thread (type invariant).
        let next = unsafe { (*self.rqst.as_ptr()).rq_next_page };
        let used = next.addr().saturating_sub(self.pages().as_ptr().addr());
        (used / size_of::<*mut bindings::page>()).min(self.pages().len())
    }

    /// Which of the thread's pages are those of the message.
    fn data_pages(&self) -> Result<Range<usize>> {
        let res = self.res();
        if res.page_len == 0 {
            return Ok(0..0);
        }
        // CAST: Unsigned ints always fit the kernel's usize.
        let end = (res.page_base as usize).saturating_add(res.page_len as usize);
        let distance = res.pages.addr().checked_sub(self.pages().as_ptr().addr());
        let first = distance.map(|distance| distance / size_of::<*mut bindings::page>());
        let first = match first.filter(|first| *first < self.pages().len()) {
            Some(first) => first,
            // NFSv2's READLINK has a pointer to its only page elsewhere.
            // SAFETY: `page_len` is not 0, so `pages` points to a page pointer at least: `res` is a
            // complete message (type invariant).
            None if end <= PAGE_SIZE => self.position(unsafe { *res.pages }).ok_or(EIO)?,
            None => return Err(EIO),
        };
        Ok(first..first.saturating_add(end.div_ceil(PAGE_SIZE)))
    }

    /// Where a page is among those of the thread.
    fn position(&self, page: *mut bindings::page) -> Option<usize> {
        self.pages().iter().position(|other| *other == page)
    }

    /// Where the bytes of a vector start among the thread's pages: page and offset, if it has bytes
    /// and these are in one page.
    fn linear(&self, vec: &bindings::kvec) -> Option<(usize, u32)> {
        let offset = vec.iov_base.addr() % PAGE_SIZE;
        if vec.iov_len == 0 || offset.saturating_add(vec.iov_len) > PAGE_SIZE {
            return None;
        }
        // SAFETY: Head and tail are in the linear map.
        let page = unsafe { bindings::rpcrdma_virt_to_page(vec.iov_base) };
        Some((self.position(page)?, u32::try_from(offset).ok()?))
    }
}

/// Where the bytes of a Reply are among pages that were moved: those of the head, the pages and the
/// tail. For each the first page and the offset from its start, if they are in these pages, and the
/// length.
#[derive(Clone, Copy)]
pub(crate) struct ResultLayout([(Option<(usize, u32)>, u32); 3]);

impl ResultLayout {
    /// Passes to `each` where the `length` bytes from `at` on are: in the head, the pages, and the
    /// tail.
    ///
    /// # Errors
    ///
    /// `EIO` if not all of them are in pages that were moved, or that of `each`.
    pub(crate) fn for_each_range(
        &self,
        at: u32,
        length: u32,
        mut each: impl FnMut(PageRange) -> Result,
    ) -> Result {
        let (mut skip, mut left) = (at, length);
        for (start, available) in self.0 {
            let from = skip.min(available);
            skip = skip.saturating_sub(from);
            let length = left.min(available.saturating_sub(from));
            left = left.saturating_sub(length);
            if length != 0 {
                let (page, offset) = start.ok_or(EIO)?;
                let range = PageRange::at(offset.saturating_add(from), length);
                each(PageRange {
                    index: page.saturating_add(range.index),
                    ..range
                })?;
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(EIO),
        }
    }

    /// The number of parts that the Reply has at most, for an estimate: its pages, the head and
    /// the tail, which are within a page each.
    pub(crate) fn part_count(&self) -> usize {
        let [_, (start, length), _] = self.0;
        let end = start.map_or(0, |(_, offset)| offset.saturating_add(length));
        // CAST: A u32 always fits the kernel's usize.
        (end.div_ceil(PAGE_BYTES) as usize).saturating_add(2)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_server)]
mod tests {
    use super::*;

    fn layout(head: Option<(usize, u32)>, tail: Option<(usize, u32)>) -> ResultLayout {
        ResultLayout([(head, 40), (Some((1, 10)), 2 * PAGE_BYTES), (tail, 8)])
    }

    fn ranges(layout: &ResultLayout, at: u32, length: u32) -> Option<KVec<(usize, u32, u32)>> {
        let mut found = KVec::new();
        let each = |range: PageRange| {
            let range = (range.index, range.offset, range.length);
            Ok(found.push(range, GFP_KERNEL)?)
        };
        layout.for_each_range(at, length, each).ok()?;
        Some(found)
    }

    #[test]
    fn a_stretch_is_found() {
        let layout = layout(Some((0, 100)), Some((0, 140)));
        let found = |at, length| ranges(&layout, at, length).unwrap();
        assert!(found(0, 40)[..] == [(0, 100, 40)]);
        assert!(found(40, 6)[..] == [(1, 10, 6)]);
        let all = [(0, 130, 10), (1, 10, 2 * PAGE_BYTES), (0, 140, 8)];
        assert!(found(30, 2 * PAGE_BYTES + 18)[..] == all);
        assert!(found(40 + PAGE_BYTES, 4)[..] == [(2, 10, 4)]);
        assert!(found(0, 0).is_empty());
        let end = 48 + 2 * PAGE_BYTES;
        assert!(found(end - 4, 4)[..] == [(0, 144, 4)]);
        assert!(ranges(&layout, end - 4, 5).is_none());
    }

    #[test]
    fn a_page_is_found_wherever_the_pointer_to_it_is() {
        let mut pages = [8, 16, 24].map(core::ptr::without_provenance_mut::<bindings::page>);
        let mut elsewhere = pages[2];
        let mut rqst: KBox<bindings::svc_rqst> = KBox::new(Default::default(), GFP_KERNEL).unwrap();
        rqst.rq_respages = pages.as_mut_ptr();
        rqst.rq_maxpages = pages.len();
        rqst.rq_res.page_len = 10;
        let mut found = |pages: *mut *mut bindings::page, page_base| {
            rqst.rq_res.pages = pages;
            rqst.rq_res.page_base = page_base;
            // SAFETY: Only this test uses the request, of which only the pages are looked at.
            unsafe { Replying::new(&raw mut *rqst) }.data_pages().ok()
        };
        assert_eq!(found(&raw mut pages[1], 0), Some(1..2));
        assert_eq!(found(&raw mut elsewhere, 0), Some(2..3));
        // There is only one pointer.
        assert_eq!(found(&raw mut elsewhere, 4090), None);
        elsewhere = core::ptr::without_provenance_mut(32);
        assert_eq!(found(&raw mut elsewhere, 0), None);
    }

    #[test]
    fn what_is_in_no_page_is_not_found() {
        let layout = layout(None, None);
        let all = 2 * PAGE_BYTES;
        assert!(ranges(&layout, 40, all).unwrap()[..] == [(1, 10, all)]);
        assert!(ranges(&layout, 40 + PAGE_BYTES, 4).unwrap()[..] == [(2, 10, 4)]);
        assert!(ranges(&layout, 39, 4).is_none());
        assert!(ranges(&layout, 40, all + 1).is_none());
    }
}
