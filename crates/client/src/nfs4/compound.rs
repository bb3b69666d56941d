//! COMPOUND (RFC 8881 section 16.2): building a request operation by operation, and reading the results in
//! the same order.

use bytes::Bytes;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    self, Bitmap4, Getattr4Args, MAX_TAG, MinorVersion, Name4Args, Nfsstat4, Operation, Putfh4Args,
    Sequence4Args,
};
use xdr::{Decode, Decoder, Encode, Encoder, Opaque};

use super::convert;
use crate::error::{Error, Result};
use crate::types::Handle;

/// The operations of a request behind its SEQUENCE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compound {
    operations: Encoder,
    count: u32,
    /// The server keeps the reply, because executing the request twice would have another result.
    keeps_reply: bool,
    payload: Bytes,
    trailer: Bytes,
    /// An operation may have large arguments or results, or take long.
    has_large: bool,
}

impl Compound {
    /// A request that can be executed twice.
    pub(super) fn new() -> Self {
        Self {
            operations: Encoder::from_vec(Vec::with_capacity(192)),
            count: 0,
            keeps_reply: false,
            payload: Bytes::new(),
            trailer: Bytes::new(),
            has_large: false,
        }
    }

    /// A request that is executed once: the server repeats its reply instead.
    pub(super) fn once() -> Self {
        Self { keeps_reply: true, ..Self::new() }
    }

    pub(super) const fn keeps_reply(&self) -> bool {
        self.keeps_reply
    }

    /// Whether arguments and results are small and the request seldom takes long. A request without
    /// operations isn't: it shows whether the server replies over TCP.
    pub(super) const fn is_small(&self) -> bool {
        self.count > 0 && !self.has_large
    }

    /// The operation whose result is the last of `results`, and a request of the operations that lead to its
    /// file. `None` if the request has done something else before.
    pub(super) fn failed(&self, results: u32) -> Option<(Operation, Self)> {
        use Operation as O;
        let mut from = Decoder::new(self.operations.as_slice());
        let mut way = Self::new();
        for _ in 0..results.checked_sub(1)? {
            let all = from.rest();
            let leads = match Operation::from_number(from.u32().ok()?)? {
                O::Putfh | O::Lookup => from.opaque(nfs4::OPAQUE_LIMIT).is_ok(),
                O::Putrootfh | O::Lookupp | O::Savefh | O::Restorefh => true,
                O::Getfh => false,
                O::Access => from.u32().is_err(),
                O::Getattr => from.get::<Bitmap4>().is_err(),
                O::Verify | O::Nverify => from.get::<nfs4::Fattr4<'_>>().is_err(),
                _ => return None,
            };
            if leads {
                way.operations.raw(&all[..all.len() - from.rest().len()]);
                way.count += 1;
            }
        }
        Some((Operation::from_number(from.u32().ok()?)?, way))
    }

    /// Appends an operation.
    pub(super) fn then(mut self, operation: Operation, args: &impl Encode) -> Self {
        self.has_large |= !is_small(operation);
        self.operations.u32(operation.number());
        self.operations.put(args);
        self.count += 1;
        self
    }

    /// PUTFH.
    pub(super) fn put_fh(self, file: &Handle) -> Self {
        self.then(Operation::Putfh, &Putfh4Args { object: Opaque(file.as_bytes()) })
    }

    /// LOOKUP, or LOOKUPP for the parent directory; nothing for the directory itself.
    pub(super) fn lookup(self, name: &[u8]) -> Self {
        match name {
            b"." => self,
            b".." => self.then(Operation::Lookupp, &()),
            name => self.then(Operation::Lookup, &Name4Args { name: Opaque(name) }),
        }
    }

    /// GETFH and GETATTR of a file that is found or made.
    pub(super) fn get_file(self) -> Self {
        self.then(Operation::Getfh, &()).get_attributes(&convert::FOUND)
    }

    /// GETATTR.
    pub(super) fn get_attributes(mut self, attributes: &Bitmap4) -> Self {
        self.has_large |= attributes.contains(number::ACL);
        self.then(Operation::Getattr, &Getattr4Args { attr_request: *attributes })
    }

    /// Appends an operation whose arguments end with `payload` and, behind it, the encoded operations of a
    /// `trailer`, which are the last ones.
    pub(super) fn then_payload(
        mut self,
        operation: Operation,
        args: &impl Encode,
        payload: Bytes,
        trailer: Trailer,
    ) -> Self {
        self = self.then(operation, args);
        self.operations.length(payload.len());
        self.count += trailer.count;
        (self.payload, self.trailer) = (payload, trailer.operations);
        self
    }

    /// The bulk data, and the encoded operations behind it.
    pub(super) fn payload(&self) -> (Bytes, Bytes) {
        (self.payload.clone(), self.trailer.clone())
    }

    /// Appends the arguments of COMPOUND up to the payload. An operation outside of a session has no
    /// `sequence`.
    pub(super) fn encode(&self, minor: MinorVersion, sequence: Option<&Sequence4Args>, to: &mut Encoder) {
        to.opaque(b"");
        to.u32(minor as u32);
        to.u32(self.count + u32::from(sequence.is_some()));
        if let Some(sequence) = sequence {
            to.u32(Operation::Sequence.number());
            to.put(sequence);
        }
        to.raw(self.operations.as_slice());
    }
}

/// Whether an operation's arguments and results are small and it seldom takes long. An access control list is
/// an attribute that isn't.
const fn is_small(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Access
            | O::Close
            | O::Create
            | O::Getattr
            | O::Getfh
            | O::Link
            | O::Lock
            | O::Locku
            | O::Lockt
            | O::Lookup
            | O::Lookupp
            | O::Nverify
            | O::Open
            | O::OpenDowngrade
            | O::Putfh
            | O::Putrootfh
            | O::Readlink
            | O::Remove
            | O::Rename
            | O::Restorefh
            | O::Savefh
            | O::Setattr
            | O::Verify
    )
}

/// The last operations of a request, encoded.
#[derive(Debug, Clone)]
pub(super) struct Trailer {
    operations: Bytes,
    count: u32,
}

impl Trailer {
    /// One operation.
    pub(super) fn new(operation: Operation, args: &impl Encode) -> Self {
        let mut to = Encoder::new();
        to.u32(operation.number());
        to.put(args);
        Self { operations: to.into_vec().into(), count: 1 }
    }

    /// These operations, and one before them.
    pub(super) fn behind(&self, operation: Operation, args: &impl Encode) -> Self {
        let mut to = Encoder::new();
        to.u32(operation.number());
        to.put(args);
        to.raw(&self.operations);
        Self { operations: to.into_vec().into(), count: self.count + 1 }
    }
}

/// The results of a COMPOUND, read operation by operation.
#[derive(Debug, Clone)]
pub(super) struct Results<'a> {
    from: Decoder<'a>,
    left: u32,
    /// The status of the last operation.
    pub(super) status: Nfsstat4,
}

impl<'a> Results<'a> {
    /// The results in an RPC reply.
    pub(super) fn new(results: &'a [u8]) -> Result<Self> {
        let mut from = Decoder::new(results);
        let head = |from: &mut Decoder<'a>| -> Result<_, xdr::Error> {
            let status = from.get()?;
            let _tag: Opaque<'_, MAX_TAG> = from.get()?;
            Ok((status, from.u32()?))
        };
        let (status, left) = head(&mut from).map_err(|_| malformed("COMPOUND"))?;
        Ok(Self { from, left, status })
    }

    /// The status of the next operation, which must be `operation`.
    pub(super) fn status(&mut self, operation: Operation) -> Result<Nfsstat4> {
        let object = operation.name();
        if self.left == 0 {
            // Without any result the status is the whole COMPOUND's.
            return if self.status == Nfsstat4::Ok { Err(malformed(object)) } else { Ok(self.status) };
        }
        self.left -= 1;
        let number = self.from.u32().map_err(|_| malformed(object))?;
        let status = self.from.get().map_err(|_| malformed(object))?;
        // The server doesn't know the operation.
        if number == nfs4::ILLEGAL {
            return Ok(Nfsstat4::Notsupp);
        }
        if number != operation.number() {
            return Err(Error::Protocol { object: object.to_owned(), what: "it answers another operation" });
        }
        Ok(status)
    }

    /// The next operation, which must be `operation`, has succeeded, and nothing in its result matters, or
    /// is read with [`Results::value`].
    pub(super) fn succeeded(&mut self, operation: Operation) -> Result<()> {
        match self.status(operation)? {
            Nfsstat4::Ok => Ok(()),
            status => Err(refused(operation, status)),
        }
    }

    /// A part of the current operation's result.
    pub(super) fn value<T: Decode<'a>>(&mut self, operation: Operation) -> Result<T> {
        self.from.get().map_err(|_| malformed(operation.name()))
    }

    /// The result of the next operation, which must be `operation`.
    pub(super) fn get<T: Decode<'a>>(&mut self, operation: Operation) -> Result<T> {
        self.succeeded(operation)?;
        self.value(operation)
    }

    /// Reads results without values up to the one of `operation`, whose value comes next.
    pub(super) fn skip_to(&mut self, operation: Operation) -> Result<()> {
        while self.left > 0 {
            self.left -= 1;
            let next = self.from.u32().and_then(|number| Ok((number, self.from.get::<Nfsstat4>()?)));
            let (number, _) = next.map_err(|_| malformed(operation.name()))?;
            if number == operation.number() {
                return Ok(());
            }
        }
        Err(malformed(operation.name()))
    }

    /// The number of results that aren't read yet.
    pub(super) const fn count(&self) -> u32 {
        self.left
    }

    /// Whether there are results of further operations.
    pub(super) const fn has_more(&self) -> bool {
        self.left > 0
    }

    /// The bytes that aren't read yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.from.rest()
    }
}

/// The error of an operation that the server refused.
pub(super) fn refused(operation: Operation, status: Nfsstat4) -> Error {
    Error::Status { object: operation.name().to_owned(), status: convert::status(status) }
}

/// The status of an operation's results as a result.
pub(super) fn check(operation: Operation, status: Nfsstat4) -> Result<()> {
    if status == Nfsstat4::Ok { Ok(()) } else { Err(refused(operation, status)) }
}

/// The error for results that can't be decoded.
pub(super) fn malformed(object: &str) -> Error {
    Error::Protocol { object: object.to_owned(), what: "its results can't be decoded" }
}
