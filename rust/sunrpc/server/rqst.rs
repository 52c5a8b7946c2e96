// SPDX-License-Identifier: GPL-2.0

//! The requests of service threads (`struct svc_rqst`): a Call that is received, and its Reply.

use super::{moment::Moment, xprt::SvcXprt};
use crate::{
    bindings::{self, OwnedMessage, PageRange, PageVec},
    sunrpc::XdrBuf,
};
use core::{marker::PhantomData, ops::Range, ptr::NonNull};
use kernel::{ffi::c_int, page::PAGE_SIZE, prelude::*};

/// A complete Call.
pub(crate) struct SvcCall<M: OwnedMessage> {
    /// The message, which is kept until the Reply was sent, or until it is clear that there will be
    /// none.
    pub(crate) message: M,
    /// The bytes of the message that begin the RPC message. Empty if it begins in the pages.
    pub(crate) head: Range<usize>,
    /// Pages with what follows, and the number of bytes in them.
    pub(crate) pages: Option<(PageVec, usize)>,
    /// The bytes of the message with the rest.
    pub(crate) tail: Range<usize>,
}

/// The message of a Call that sunrpc works on, whose buffers refer to its memory: what is kept with
/// it may change, but it cannot be exchanged for another one.
pub(crate) struct KeptCall<'a, M: OwnedMessage>(&'a mut M);

impl<'a, M: OwnedMessage> KeptCall<'a, M> {
    /// Lends a message out.
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

/// A thread that looks for a Call.
///
/// # Invariants
///
/// `rqst` belongs to the calling thread, and `xprt` is its transport. The transport is marked as
/// busy by this thread, unless `is_released`.
pub(crate) struct Receiving<'a> {
    rqst: NonNull<bindings::svc_rqst>,
    xprt: &'a SvcXprt,
    is_released: bool,
}

impl<'a> Receiving<'a> {
    /// Declares that this thread looks for a Call.
    ///
    /// # Safety
    ///
    /// The type's invariants hold; the thread has marked the transport as busy, and `xpo_recvfrom`
    /// was just called.
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
            is_released: false,
        }
    }

    /// Lets other threads look for Calls on the transport, once this one has taken the next Call or
    /// there is none.
    pub(crate) fn let_others_in(&mut self) {
        if !core::mem::replace(&mut self.is_released, true) {
            // SAFETY: By the type's invariant this thread has marked the transport as busy until
            // now.
            unsafe { bindings::svc_xprt_received(self.xprt.as_raw()) };
        }
    }

    /// Passes `call`, if there is one, to sunrpc as that of the request. Returns what `recvfrom` is
    /// to return, and the pages that the thread has given in exchange for those of the Call.
    pub(super) fn finish<M: OwnedMessage>(
        mut self,
        call: Option<SvcCall<M>>,
    ) -> (c_int, Option<PageVec>) {
        self.let_others_in();
        let Some(call) = call else {
            return (0, None);
        };
        match self.accept(call) {
            Ok((length, pages)) => (length, pages),
            Err(error) => {
                self.xprt.close();
                (error.to_errno(), None)
            }
        }
    }

    /// Passes `call` to sunrpc as that of the request.
    fn accept<M: OwnedMessage>(&mut self, call: SvcCall<M>) -> Result<(c_int, Option<PageVec>)> {
        let SvcCall {
            mut message,
            head,
            pages,
            tail,
        } = call;
        let memory = message.memory();
        let mut head_vec = kvec(memory, head).ok_or(EINVAL)?;
        let mut tail_vec = kvec(memory, tail).ok_or(EINVAL)?;
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread (type invariant), and so do its pages, all of
        // which are present before a thread looks for work. There are no references to the whole
        // request: other threads change its flags.
        let (array, arg) = unsafe {
            let array = core::slice::from_raw_parts_mut((*rqst).rq_pages, (*rqst).rq_maxpages);
            (array, &mut (*rqst).rq_arg)
        };
        let (mut page_len, mut first_page, mut given) = (0, 0, None);
        if let Some((mut pages, length)) = pages {
            if length > pages.byte_len() {
                return Err(EINVAL);
            }
            let used = array.get_mut(..pages.len()).ok_or(EMSGSIZE)?;
            // SAFETY: The thread owns references to its pages.
            unsafe { pages.exchange(used)? };
            page_len = length;
            if head_vec.iov_len == 0 {
                // An RPC message must begin in the head.
                // SAFETY: The first page is present.
                head_vec.iov_base = unsafe { bindings::rpcrdma_page_address(*array.as_ptr()) };
                head_vec.iov_len = length.min(PAGE_SIZE);
                page_len = length.saturating_sub(head_vec.iov_len);
                first_page = 1;
            } else if tail_vec.iov_len != 0 {
                page_len = append(array, length, &mut tail_vec)?;
            }
            given = Some(pages);
        } else if head_vec.iov_len > PAGE_SIZE {
            page_len = spill(array, &mut head_vec)?;
        }
        let total = head_vec
            .iov_len
            .saturating_add(page_len)
            .saturating_add(tail_vec.iov_len);
        let length = c_int::try_from(total)?;
        arg.head[0] = head_vec;
        arg.tail[0] = tail_vec;
        arg.pages = array.as_mut_ptr().wrapping_add(first_page);
        arg.page_base = 0;
        arg.page_len = u32::try_from(page_len)?;
        arg.len = u32::try_from(total)?;
        arg.buflen = arg.len;
        // SAFETY: The request belongs to this thread (type invariant), and its transport is valid.
        unsafe {
            bindings::svc_xprt_copy_addrs(rqst, self.xprt.as_raw());
            set_flags(&raw mut (*rqst).rq_flags, self.xprt.is_local());
            // What nfsd expects of a transport that is neither UDP nor TCP.
            (*rqst).rq_prot = bindings::IPPROTO_MAX;
            // The bytes stay where they are until the context is released.
            (*rqst).rq_xprt_ctxt = message.into_raw().as_ptr();
        }
        Ok((length, given))
    }
}

/// Sets the flags of a request. Most threads serve one kind of transport, for whose Calls they do
/// not change.
///
/// # Safety
///
/// `flags` are those of a valid request.
unsafe fn set_flags(flags: *mut usize, is_local: bool) {
    let (secure, local) = (1 << bindings::RQ_SECURE, 1 << bindings::RQ_LOCAL);
    let wanted = secure | if is_local { local } else { 0 };
    // SAFETY: `flags` are those of a valid request (this function's contract). They are read by one
    // access, as test_bit() does, and all threads change them by atomic operations.
    unsafe {
        if flags.read_volatile() & (secure | local) != wanted {
            set_flag(flags, bindings::RQ_SECURE, true);
            // For such a Call nfsd does not wait for pages that the client has dirtied: those wait
            // for nfsd.
            set_flag(flags, bindings::RQ_LOCAL, is_local);
        }
    }
}

/// Sets or clears a flag of a request.
///
/// # Safety
///
/// As for [`set_flags`].
unsafe fn set_flag(flags: *mut usize, number: u32, value: bool) {
    // SAFETY: `flags` are those of a valid request (this function's contract). They are read by one
    // access, as test_bit() does, and all threads change them by atomic operations.
    unsafe {
        let is_set = flags.read_volatile() >> number & 1 != 0;
        match value {
            true if !is_set => bindings::set_bit(number as usize, flags),
            false if is_set => bindings::clear_bit(number as usize, flags),
            _ => {}
        }
    }
}

/// The vector of these bytes of a message, if the message has them.
fn kvec((start, length): (NonNull<u8>, usize), bytes: Range<usize>) -> Option<bindings::kvec> {
    let iov_len = bytes.end.checked_sub(bytes.start)?;
    (bytes.end <= length).then(|| bindings::kvec {
        iov_base: start.as_ptr().wrapping_add(bytes.start).cast(),
        iov_len,
    })
}

/// Moves the tail to the thread's pages, behind the `page_len` bytes that these have; returns how
/// many they have now. Other transports have no tail, and not all of nfsd looks for one: in its
/// stead its reply cache hashes what a page held before, and nfsd4_vbuf_from_vector() of 7.2 copies
/// that.
///
/// # Errors
///
/// `EMSGSIZE` if the thread has too few pages.
fn append(
    array: &[*mut bindings::page],
    page_len: usize,
    tail: &mut bindings::kvec,
) -> Result<usize> {
    // SAFETY: The tail has this many bytes, and nobody writes to them.
    let bytes = unsafe { core::slice::from_raw_parts(tail.iov_base.cast(), tail.iov_len) };
    copy_to_pages(array, page_len, bytes)?;
    tail.iov_len = 0;
    Ok(page_len.saturating_add(bytes.len()))
}

/// Moves what `head` has beyond a page to the thread's pages; returns how many bytes that is. Other
/// transports leave no more in the head, and not all of sunrpc expects more: gss_read_proxy_verf()
/// of 7.2 copies a token from the head to one page.
///
/// # Errors
///
/// `EMSGSIZE` if the thread has fewer pages.
fn spill(array: &[*mut bindings::page], head: &mut bindings::kvec) -> Result<usize> {
    // SAFETY: The head has this many bytes, and nobody writes to them.
    let bytes = unsafe { core::slice::from_raw_parts(head.iov_base.cast(), head.iov_len) };
    let rest = bytes.get(PAGE_SIZE..).unwrap_or_default();
    copy_to_pages(array, 0, rest)?;
    head.iov_len = PAGE_SIZE;
    Ok(rest.len())
}

/// Copies `bytes` to the thread's pages, from byte `at` of these on.
///
/// # Errors
///
/// `EMSGSIZE` if the thread has too few pages.
fn copy_to_pages(array: &[*mut bindings::page], at: usize, bytes: &[u8]) -> Result {
    let (mut index, mut offset) = (at / PAGE_SIZE, at % PAGE_SIZE);
    let mut rest = bytes;
    while !rest.is_empty() {
        let page = *array.get(index).ok_or(EMSGSIZE)?;
        let room = PAGE_SIZE.saturating_sub(offset);
        let (part, others) = rest.split_at(rest.len().min(room));
        // SAFETY: All pages of the thread are present, and nobody else uses them. `part` fits
        // behind `offset`.
        unsafe {
            let page = bindings::rpcrdma_page_address(page).cast::<u8>();
            core::ptr::copy_nonoverlapping(part.as_ptr(), page.add(offset), part.len());
        }
        (index, offset, rest) = (index.saturating_add(1), 0, others);
    }
    Ok(())
}

/// A thread that has encoded a Reply.
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
    fn message(&self) -> XdrBuf<'_> {
        // SAFETY: By the type's invariant the message is complete, and belongs to this thread.
        unsafe {
            XdrBuf::from_raw(NonNull::new_unchecked(
                &raw mut (*self.rqst.as_ptr()).rq_res,
            ))
        }
    }

    /// When the thread began to execute the Call, which it had just taken.
    pub(crate) fn began(&self) -> Moment {
        // SAFETY: `rqst` belongs to the calling thread (type invariant), which alone sets the time.
        Moment::from_ktime(unsafe { (*self.rqst.as_ptr()).rq_stime })
    }

    /// Length of the RPC message in bytes.
    pub(crate) fn len(&self) -> usize {
        self.message().len()
    }

    /// Copies the bytes from `at` on to `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message does not have that many bytes.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) -> Result {
        self.message().copy_out(at, to)
    }

    /// Whether the `length` bytes from `at` on are in the pages of the message, not in its head or
    /// tail.
    pub(crate) fn is_in_pages(&self, at: u32, length: u32) -> bool {
        let message = self.message();
        // CAST: A u32 always fits the kernel's usize.
        let (at, length) = (at as usize, length as usize);
        let start = at.checked_sub(message.head_len());
        start.is_some_and(|start| start.saturating_add(length) <= message.page_len())
    }

    /// Moves pages of the Reply to `pages`, those of its head and tail as well if `is_whole`, and
    /// returns where in them the bytes of the message are. The message is no longer complete, and
    /// sunrpc supplies other pages for the thread's next Reply.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO` if the message is not in these pages. Then none has moved.
    pub(crate) fn move_pages(self, pages: &mut PageVec, is_whole: bool) -> Result<ResultLayout> {
        let message = self.message();
        let (head_len, tail_len) = (message.head_len(), message.tail_len());
        let data = self.data_pages()?;
        let mut count = self.used_pages().max(data.end);
        let (mut linear, mut moved) = (None, data.clone());
        if is_whole {
            let [head, tail] = self.linear_pages()?;
            for (index, _) in [head, tail].into_iter().flatten() {
                count = count.max(index.saturating_add(1));
            }
            linear = Some([head, tail].map(Option::unwrap_or_default));
            moved = 0..count;
        }
        let length = moved.end.saturating_sub(moved.start);
        if count > self.pages().len() {
            return Err(EIO);
        }
        pages.reserve(length, GFP_KERNEL)?;
        let first = data.start.saturating_sub(moved.start);
        let rqst = self.rqst.as_ptr();
        // SAFETY: The request belongs to this thread (type invariant), and the array of its pages
        // has `count` elements, each of them a page with a reference for the thread, which passes
        // to `pages`, and one element more.
        let (page_base, page_len) = unsafe {
            // sunrpc replaces the thread's pages up to here. RPCSEC_GSS may have continued beyond
            // what the service has encoded, without recording it.
            (*rqst).rq_next_page = (*rqst).rq_respages.add(count);
            let start = (*rqst).rq_respages.add(moved.start);
            pages.take_array(core::slice::from_raw_parts_mut(start, length))?;
            ((*rqst).rq_res.page_base, (*rqst).rq_res.page_len)
        };
        // CAST: Unsigned ints always fit the kernel's usize.
        let (page_base, page_len) = (page_base as usize, page_len as usize);
        Ok(ResultLayout {
            head_len,
            pages: (first, page_base, page_len),
            tail_len,
            linear,
        })
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
            // SAFETY: It has pages.
            None if end <= PAGE_SIZE => self.position(unsafe { *res.pages }).ok_or(EIO)?,
            None => return Err(EIO),
        };
        Ok(first..first.saturating_add(end.div_ceil(PAGE_SIZE)))
    }

    /// Where a page is among those of the thread.
    fn position(&self, page: *mut bindings::page) -> Option<usize> {
        self.pages().iter().position(|other| *other == page)
    }

    /// Where head and tail are among the thread's pages: page and offset, if they have bytes.
    fn linear_pages(&self) -> Result<[Option<(usize, usize)>; 2]> {
        let res = self.res();
        Ok([self.linear(&res.head[0])?, self.linear(&res.tail[0])?])
    }

    /// Where the bytes of a vector start: page and offset.
    fn linear(&self, vec: &bindings::kvec) -> Result<Option<(usize, usize)>> {
        if vec.iov_len == 0 {
            return Ok(None);
        }
        let offset = vec.iov_base.addr() % PAGE_SIZE;
        // SAFETY: Head and tail are in the linear map.
        let page = unsafe { bindings::rpcrdma_virt_to_page(vec.iov_base) };
        match self.position(page) {
            Some(index) if offset.saturating_add(vec.iov_len) <= PAGE_SIZE => {
                Ok(Some((index, offset)))
            }
            _ => Err(EIO),
        }
    }
}

/// Where the bytes of a Reply are among pages that were moved.
#[derive(Clone, Copy)]
pub(crate) struct ResultLayout {
    head_len: usize,
    /// The first page, the offset from its start, and the length, across as many pages as needed.
    pages: (usize, usize, usize),
    tail_len: usize,
    /// Page and offset of the head and of the tail, if these were moved.
    linear: Option<[(usize, usize); 2]>,
}

impl ResultLayout {
    /// The most parts that a range can have in addition to its pages.
    const EXTRA_PARTS: usize = 3;

    /// Passes to `each` where the `length` bytes from `at` on are: in the head, the pages, and the
    /// tail.
    ///
    /// # Errors
    ///
    /// `EIO` if not all of them are in pages that were moved, or that of `each`.
    pub(crate) fn for_each_range(
        &self,
        at: usize,
        length: usize,
        mut each: impl FnMut(PageRange) -> Result,
    ) -> Result {
        let (first, base, page_len) = self.pages;
        let parts = [
            (self.linear.map(|[head, _]| head), self.head_len),
            (Some((first, base)), page_len),
            (self.linear.map(|[_, tail]| tail), self.tail_len),
        ];
        let (mut skip, mut left) = (at, length);
        for (place, available) in parts {
            let from = skip.min(available);
            skip = skip.saturating_sub(from);
            let length = left.min(available.saturating_sub(from));
            left = left.saturating_sub(length);
            if length != 0 {
                let (page, offset) = place.ok_or(EIO)?;
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

    /// The number of parts that the Reply has at most, for an estimate.
    pub(crate) fn part_count(&self) -> usize {
        let (_, base, length) = self.pages;
        base.saturating_add(length)
            .div_ceil(PAGE_SIZE)
            .saturating_add(Self::EXTRA_PARTS)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_server)]
mod tests {
    use super::*;

    fn layout(linear: Option<[(usize, usize); 2]>) -> ResultLayout {
        ResultLayout {
            head_len: 40,
            pages: (1, 10, 2 * PAGE_SIZE),
            tail_len: 8,
            linear,
        }
    }

    fn ranges(
        layout: &ResultLayout,
        at: usize,
        length: usize,
    ) -> Option<KVec<(usize, usize, usize)>> {
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
        let layout = layout(Some([(0, 100), (0, 140)]));
        let found = |at, length| ranges(&layout, at, length).unwrap();
        assert!(found(0, 40)[..] == [(0, 100, 40)]);
        assert!(found(40, 6)[..] == [(1, 10, 6)]);
        let all = [(0, 130, 10), (1, 10, 2 * PAGE_SIZE), (0, 140, 8)];
        assert!(found(30, 2 * PAGE_SIZE + 18)[..] == all);
        assert!(found(40 + PAGE_SIZE, 4)[..] == [(2, 10, 4)]);
        assert!(found(0, 0).is_empty());
        let end = 48 + 2 * PAGE_SIZE;
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
            // SAFETY: Nobody else uses the request, of which only the pages are looked at.
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
    fn what_was_not_moved_is_not_found() {
        let layout = layout(None);
        let all = 2 * PAGE_SIZE;
        assert!(ranges(&layout, 40, all).unwrap()[..] == [(1, 10, all)]);
        assert!(ranges(&layout, 40 + PAGE_SIZE, 4).unwrap()[..] == [(2, 10, 4)]);
        assert!(ranges(&layout, 39, 4).is_none());
        assert!(ranges(&layout, 40, all + 1).is_none());
    }
}
