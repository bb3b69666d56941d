//! Mistakes, each against one of the rules. The model must notice them.
//!
//! They are made outside of the client's machine: what it is told, or what is done with what it says, differs
//! from the truth, as if the machine had made the mistake.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// After a lost connection a request is sent again in another slot.
    RepeatInAnotherSlot,
    /// The slot of an abandoned request is used again at once.
    ReuseAbandonedSlot,
    /// The sequence id of a slot whose reply is lost isn't used up.
    KeepSequence,
    /// Replies of a session that was replaced count.
    BelieveLateReplies,
    /// CREATE_SESSION is sent again with the next sequence id.
    AdvanceCreateSession,
    /// The session is destroyed while replies are outstanding.
    DestroyInUse,
    /// A session that is of no use is replaced without being destroyed.
    KeepBadSession,
    /// The client's end destroys its client id first, and not its session.
    KeepSessionAtEnd,
    /// Each EXCHANGE_ID has another verifier.
    ChangeVerifier,
    /// The client has the verifier of its former run.
    KeepVerifier,
    /// A new client id is taken for the former one, with its state.
    BelieveNewClientId,
    /// Opens aren't reclaimed.
    SkipOpenReclaims,
    /// Locks aren't reclaimed.
    SkipLockReclaims,
    /// One of the reclaims is taken for done.
    SkipOneReclaim,
    /// RECLAIM_COMPLETE doesn't wait for the reclaims.
    CompleteEarly,
    /// RECLAIM_COMPLETE isn't sent.
    SkipReclaimComplete,
    /// The flags about revoked state are ignored.
    IgnoreRevocations,
    /// State that was tested and is bad is kept.
    KeepTested,
    /// Nothing renews an idle client's lease.
    NeverRenew,
    /// The lease is counted from the reply.
    RenewByReply,
    /// State is relied on after its lease has expired.
    BelieveExpired,
    /// State is relied on before it is reclaimed.
    BelieveUnclaimed,
    /// CB_RECALL is answered, and the delegation kept.
    IgnoreRecall,
    /// A CLOSE is taken for done.
    SkipClose,
    /// A LOCKU is taken for done.
    SkipUnlock,
    /// The lock that an interrupted application gets after all is taken for denied.
    ForgetInterruptedLock,
    /// Locks that the server denies are taken for granted.
    BelieveDeniedLock,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::RepeatInAnotherSlot,
        Self::ReuseAbandonedSlot,
        Self::KeepSequence,
        Self::BelieveLateReplies,
        Self::AdvanceCreateSession,
        Self::DestroyInUse,
        Self::KeepBadSession,
        Self::KeepSessionAtEnd,
        Self::ChangeVerifier,
        Self::KeepVerifier,
        Self::BelieveNewClientId,
        Self::SkipOpenReclaims,
        Self::SkipLockReclaims,
        Self::SkipOneReclaim,
        Self::CompleteEarly,
        Self::SkipReclaimComplete,
        Self::IgnoreRevocations,
        Self::KeepTested,
        Self::NeverRenew,
        Self::RenewByReply,
        Self::BelieveExpired,
        Self::BelieveUnclaimed,
        Self::IgnoreRecall,
        Self::SkipClose,
        Self::SkipUnlock,
        Self::ForgetInterruptedLock,
        Self::BelieveDeniedLock,
    ];
}
