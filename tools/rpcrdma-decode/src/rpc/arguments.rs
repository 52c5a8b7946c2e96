// SPDX-License-Identifier: GPL-2.0

//! A walk over what a Call has behind its procedure (RFC 4506), past what is in Read chunks.

use crate::proto::wire::chunk::ReadList;
use crate::proto::wire::xdr::Reader;

/// What was not looked at yet.
pub(super) struct Arguments<'a> {
    reader: Reader<'a>,
    reads: &'a ReadList<'a>,
    /// Bytes before it that are in Read chunks, with their round-up.
    reduced: u64,
}

impl<'a> Arguments<'a> {
    /// Starts at the first word of the RPC message.
    pub(super) fn new(payload: &'a [u8], reads: &'a ReadList<'a>) -> Self {
        Self {
            reader: Reader::new(payload),
            reads,
            reduced: 0,
        }
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.reader.decode_u32().ok()
    }

    /// Skips what each letter of `layout` stands for: a word, two words ("d"), four ("s", the size
    /// of a stateid), a counted array of bytes ("o") or of words ("b", a bitmap), or an array that
    /// has to be empty ("e"). `None` if it is not there, or for another letter.
    pub(super) fn skip(&mut self, layout: &str) -> Option<()> {
        layout.chars().try_for_each(|letter| match letter {
            'w' => self.skip_words(1),
            'd' => self.skip_words(2),
            's' => self.skip_words(4),
            'o' => self.skip_bytes(),
            'b' => {
                let count = self.word()?;
                self.skip_words(count)
            }
            'e' => (self.word()? == 0).then_some(()),
            _ => None,
        })
    }

    fn skip_words(&mut self, count: u32) -> Option<()> {
        let length = usize::try_from(u64::from(count) * 4).ok()?;
        self.reader.decode_bytes(length).ok().map(|_| ())
    }

    /// Skips a counted array, which a Read chunk may hold (RFC 8166 section 3.4.5).
    fn skip_bytes(&mut self) -> Option<()> {
        let words = self.word()?.div_ceil(4);
        let position = u64::try_from(self.reader.position()).ok()? + self.reduced;
        let chunk = self.reads.chunk(u32::try_from(position).ok()?);
        if chunk.length() == 0 {
            return self.skip_words(words);
        }
        self.reduced += u64::from(words) * 4;
        Some(())
    }

    /// Skips credential and verifier (RFC 5531 section 8.2). `None` if RPCSEC_GSS protects what
    /// follows, or has its own there: all but RPCSEC_GSS_DATA with rpc_gss_svc_none (RFC 2203
    /// section 5).
    pub(super) fn skip_authentication(&mut self) -> Option<()> {
        const RPCSEC_GSS: u32 = 6;
        let flavor = self.word()?;
        if flavor == RPCSEC_GSS {
            let [_, _, procedure, _, service] = self.reader.clone().decode_words().ok()?;
            if (procedure, service) != (0, 1) {
                return None;
            }
        }
        self.skip("owo")
    }

    /// Skips the arguments of an operation of NFS version 4: what `layout` says, and what it cannot.
    pub(super) fn skip_operation(&mut self, name: &str, layout: &str) -> Option<()> {
        self.skip(layout)?;
        match name {
            "CREATE" => self.skip_create(),
            "OPEN" => self.skip_open(),
            _ => Some(()),
        }
    }

    /// The arguments of CREATE, by the type of the object (RFC 8881 section 18.4.1).
    fn skip_create(&mut self) -> Option<()> {
        match self.word()? {
            3 | 4 => self.skip("ww")?,
            5 => self.skip("o")?,
            _ => {}
        }
        self.skip("obo")
    }

    /// Those of OPEN behind the owner, by what is created how, and by the claim (section 18.16.1).
    fn skip_open(&mut self) -> Option<()> {
        if self.word()? == 1 {
            let how = match self.word()? {
                0 | 1 => "bo",
                2 => "d",
                3 => "dbo",
                _ => return None,
            };
            self.skip(how)?;
        }
        let claim = match self.word()? {
            0 | 3 => "o",
            1 => "w",
            2 => "so",
            4 | 6 => "",
            5 => "s",
            _ => return None,
        };
        self.skip(claim)
    }
}
