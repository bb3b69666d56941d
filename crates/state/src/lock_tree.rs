//! The byte-range locks on one file, of all owners. A conflicting lock is found without looking at every
//! owner: a file may have a hundred thousand.
//!
//! Two balanced trees (AVL), one of read locks and one of write locks, in the order of the locks' first
//! bytes. Invariant: each node knows the farthest end of all locks below it, and the farthest end of the
//! other owners' locks. So a lock that overlaps a range, and isn't the requester's own, is found on one way
//! down from the root, however many locks of the requester lie there.

use std::cmp::{Ordering, Reverse};

use lock_ranges::{ByteRange, LockKind, RangeChange};

/// The locks on one file, each of an owner that is named by a number.
#[derive(Debug, Default)]
pub(crate) struct LockTree {
    reads: Subtree,
    writes: Subtree,
}

/// A lock's first byte and its owner: unique among the locks of a kind.
type LockKey = (u64, u64);

/// A lock's last byte and its owner. The greater reaches farther; the owner only makes the order total.
type LockEnd = (u64, Reverse<u64>);

/// Less than the end of any lock.
const NO_LOCK: LockEnd = (0, Reverse(u64::MAX));

type Subtree = Option<Box<LockNode>>;

#[derive(Debug)]
struct LockNode {
    key: LockKey,
    last: u64,
    height: u8,
    /// Of this lock and all below it.
    ends: FarthestEnds,
    left: Subtree,
    right: Subtree,
}

/// The farthest end of many locks, and the farthest of those that belong to other owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FarthestEnds {
    farthest: LockEnd,
    other: LockEnd,
}

impl LockTree {
    /// Whether there are no locks.
    pub const fn is_empty(&self) -> bool {
        self.reads.is_none() && self.writes.is_none()
    }

    /// Applies a change of an owner's locks.
    pub fn apply(&mut self, owner: u64, change: &RangeChange) {
        for (range, kind) in &change.removed {
            let tree = self.tree(*kind);
            *tree = remove(tree.take(), (range.first, owner));
        }
        for (range, kind) in &change.added {
            let tree = self.tree(*kind);
            *tree = Some(insert(tree.take(), (range.first, owner), range.last));
        }
    }

    /// The owner, other than `own`, of a lock that conflicts with a lock of `range`. Of several it is one
    /// with a write lock if there is any, and of these the one whose lock reaches farthest.
    pub fn conflict(&self, own: Option<u64>, range: ByteRange, kind: LockKind) -> Option<u64> {
        let readers = if kind == LockKind::Write { &self.reads } else { &None };
        [&self.writes, readers].into_iter().find_map(|tree| {
            let FarthestEnds { farthest, other } = farthest_ends(tree, range.last);
            let (last, Reverse(owner)) = if own == Some(farthest.1.0) { other } else { farthest };
            (last >= range.first && owner != NO_LOCK.1.0).then_some(owner)
        })
    }

    const fn tree(&mut self, kind: LockKind) -> &mut Subtree {
        match kind {
            LockKind::Read => &mut self.reads,
            LockKind::Write => &mut self.writes,
        }
    }
}

impl FarthestEnds {
    const NONE: Self = Self { farthest: NO_LOCK, other: NO_LOCK };

    fn with(self, end: LockEnd) -> Self {
        let Self { farthest, other } = self;
        if end.1 == farthest.1 {
            Self { farthest: farthest.max(end), other }
        } else if end > farthest {
            Self { farthest: end, other: farthest }
        } else {
            Self { farthest, other: other.max(end) }
        }
    }

    fn and(self, of: Self) -> Self {
        self.with(of.farthest).with(of.other)
    }
}

impl LockNode {
    const fn end(&self) -> LockEnd {
        (self.last, Reverse(self.key.1))
    }

    /// Recomputes the height and the ends, after a change below.
    fn update(&mut self) {
        let [left, right] =
            [&self.left, &self.right].map(|tree| tree.as_deref().map(|node| (node.height, node.ends)));
        let [left, right] = [left, right].map(|below| below.unwrap_or((0, FarthestEnds::NONE)));
        self.height = left.0.max(right.0) + 1;
        self.ends = left.1.and(right.1).with(self.end());
    }

    /// The left subtree's height less the right one's.
    fn balance_factor(&self) -> i16 {
        height(&self.left) - height(&self.right)
    }
}

fn height(tree: &Subtree) -> i16 {
    tree.as_deref().map_or(0, |node| i16::from(node.height))
}

/// The farthest ends of the locks that begin at `to` or before.
fn farthest_ends(mut tree: &Subtree, to: u64) -> FarthestEnds {
    let mut all = FarthestEnds::NONE;
    while let Some(node) = tree {
        visit();
        tree = if node.key.0 > to {
            &node.left
        } else {
            all = all.with(node.end()).and(node.left.as_deref().map_or(FarthestEnds::NONE, |left| left.ends));
            &node.right
        };
    }
    all
}

fn insert(tree: Subtree, key: LockKey, last: u64) -> Box<LockNode> {
    visit();
    let Some(mut node) = tree else {
        let ends = FarthestEnds::NONE.with((last, Reverse(key.1)));
        return Box::new(LockNode { key, last, height: 1, ends, left: None, right: None });
    };
    let side = if key < node.key { &mut node.left } else { &mut node.right };
    *side = Some(insert(side.take(), key, last));
    balance(node)
}

fn remove(tree: Subtree, key: LockKey) -> Subtree {
    visit();
    let mut node = tree?;
    match key.cmp(&node.key) {
        Ordering::Less => node.left = remove(node.left.take(), key),
        Ordering::Greater => node.right = remove(node.right.take(), key),
        Ordering::Equal => match (node.left.take(), node.right.take()) {
            (left, Some(right)) => {
                let (next, rest) = take_first(right);
                node = next;
                (node.left, node.right) = (left, rest);
            }
            (left, None) => return left,
        },
    }
    Some(balance(node))
}

/// The first node of a tree, and the rest.
fn take_first(mut node: Box<LockNode>) -> (Box<LockNode>, Subtree) {
    visit();
    match node.left.take() {
        None => {
            let rest = node.right.take();
            (node, rest)
        }
        Some(left) => {
            let (first, rest) = take_first(left);
            node.left = rest;
            (first, Some(balance(node)))
        }
    }
}

/// Restores the balance of a node whose subtrees' heights differ by two at most.
fn balance(mut node: Box<LockNode>) -> Box<LockNode> {
    match node.balance_factor() {
        2.. => {
            node.left =
                node.left.take().map(|left| if left.balance_factor() < 0 { rotate_left(left) } else { left });
            rotate_right(node)
        }
        ..=-2 => {
            node.right = node
                .right
                .take()
                .map(|right| if right.balance_factor() > 0 { rotate_right(right) } else { right });
            rotate_left(node)
        }
        _ => {
            node.update();
            node
        }
    }
}

fn rotate_left(mut node: Box<LockNode>) -> Box<LockNode> {
    let Some(mut up) = node.right.take() else { return node };
    node.right = up.left.take();
    node.update();
    up.left = Some(node);
    up.update();
    up
}

fn rotate_right(mut node: Box<LockNode>) -> Box<LockNode> {
    let Some(mut up) = node.left.take() else { return node };
    node.left = up.right.take();
    node.update();
    up.right = Some(node);
    up.update();
    up
}

#[cfg(not(test))]
const fn visit() {}

/// Counts the visited nodes.
#[cfg(test)]
fn visit() {
    tests::VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(test)]
mod tests;
