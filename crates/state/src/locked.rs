//! What is locked of one file, whoever holds it: which lock is in the way of another is found without looking
//! at every owner, of which a file may have a hundred thousand.
//!
//! Two balanced trees (AVL), one of the locks for reading and one of those for writing, in the order of their
//! first bytes. Each node knows who reaches farthest of all below it, and who does of the others: so what
//! overlaps a range, and isn't the asker's own, is found on one way down from the root, however many locks of
//! the asker's lie there.

use std::cmp::{Ordering, Reverse};

use crate::ranges::{LockKind, Range, Replaced};

/// The locks on one file, by whose they are: a lock owner's state.
#[derive(Debug, Default)]
pub(crate) struct Locked {
    reads: Tree,
    writes: Tree,
}

/// A lock's first byte and whose it is: no two locks have both.
type Place = (u64, u64);

/// A lock's last byte and whose it is. The greater reaches farther; the rest only makes an order.
type End = (u64, Reverse<u64>);

/// Less than any lock's.
const NOBODY: End = (0, Reverse(u64::MAX));

type Tree = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    place: Place,
    last: u64,
    height: u8,
    /// Of this lock and all below.
    reach: Reach,
    left: Tree,
    right: Tree,
}

/// Who reaches farthest of many, and who of all but him.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reach {
    farthest: End,
    other: End,
}

impl Locked {
    /// An owner's locks have changed.
    pub fn replace(&mut self, whose: u64, replaced: &Replaced) {
        for (range, kind) in &replaced.gone {
            let tree = self.tree(*kind);
            *tree = remove(tree.take(), (range.first, whose));
        }
        for (range, kind) in &replaced.new {
            let tree = self.tree(*kind);
            *tree = Some(insert(tree.take(), (range.first, whose), range.last));
        }
    }

    /// Whose lock is in the way of `range`, but for `own`: of writers, and else of readers, who reaches
    /// farthest; of those always the same one.
    pub fn against(&self, own: Option<u64>, range: Range, kind: LockKind) -> Option<u64> {
        let readers = if kind == LockKind::Write { &self.reads } else { &None };
        [&self.writes, readers].into_iter().find_map(|tree| {
            let Reach { farthest, other } = reach(tree, range.last);
            let (last, Reverse(whose)) = if own == Some(farthest.1.0) { other } else { farthest };
            (last >= range.first && whose != NOBODY.1.0).then_some(whose)
        })
    }

    const fn tree(&mut self, kind: LockKind) -> &mut Tree {
        match kind {
            LockKind::Read => &mut self.reads,
            LockKind::Write => &mut self.writes,
        }
    }
}

impl Reach {
    const NONE: Self = Self { farthest: NOBODY, other: NOBODY };

    fn with(self, end: End) -> Self {
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

impl Node {
    const fn end(&self) -> End {
        (self.last, Reverse(self.place.1))
    }

    /// To be called when what is below has changed.
    fn update(&mut self) {
        let [left, right] =
            [&self.left, &self.right].map(|tree| tree.as_deref().map(|node| (node.height, node.reach)));
        let [left, right] = [left, right].map(|below| below.unwrap_or((0, Reach::NONE)));
        self.height = left.0.max(right.0) + 1;
        self.reach = left.1.and(right.1).with(self.end());
    }

    /// How much higher the left side is than the right one.
    fn lean(&self) -> i16 {
        height(&self.left) - height(&self.right)
    }
}

fn height(tree: &Tree) -> i16 {
    tree.as_deref().map_or(0, |node| i16::from(node.height))
}

/// Who reaches farthest of those that begin at `to` or before.
fn reach(mut tree: &Tree, to: u64) -> Reach {
    let mut all = Reach::NONE;
    while let Some(node) = tree {
        visit();
        tree = if node.place.0 > to {
            &node.left
        } else {
            all = all.with(node.end()).and(node.left.as_deref().map_or(Reach::NONE, |left| left.reach));
            &node.right
        };
    }
    all
}

fn insert(tree: Tree, place: Place, last: u64) -> Box<Node> {
    visit();
    let Some(mut node) = tree else {
        let reach = Reach::NONE.with((last, Reverse(place.1)));
        return Box::new(Node { place, last, height: 1, reach, left: None, right: None });
    };
    let side = if place < node.place { &mut node.left } else { &mut node.right };
    *side = Some(insert(side.take(), place, last));
    balance(node)
}

fn remove(tree: Tree, place: Place) -> Tree {
    visit();
    let mut node = tree?;
    match place.cmp(&node.place) {
        Ordering::Less => node.left = remove(node.left.take(), place),
        Ordering::Greater => node.right = remove(node.right.take(), place),
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

/// The first of a tree, and what is left.
fn take_first(mut node: Box<Node>) -> (Box<Node>, Tree) {
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

/// Neither side of a node is more than one higher than the other, if it wasn't more than two before.
fn balance(mut node: Box<Node>) -> Box<Node> {
    match node.lean() {
        2.. => {
            node.left = node.left.take().map(|left| if left.lean() < 0 { rotate_left(left) } else { left });
            rotate_right(node)
        }
        ..=-2 => {
            node.right =
                node.right.take().map(|right| if right.lean() > 0 { rotate_right(right) } else { right });
            rotate_left(node)
        }
        _ => {
            node.update();
            node
        }
    }
}

fn rotate_left(mut node: Box<Node>) -> Box<Node> {
    let Some(mut up) = node.right.take() else { return node };
    node.right = up.left.take();
    node.update();
    up.left = Some(node);
    up.update();
    up
}

fn rotate_right(mut node: Box<Node>) -> Box<Node> {
    let Some(mut up) = node.left.take() else { return node };
    node.left = up.right.take();
    node.update();
    up.right = Some(node);
    up.update();
    up
}

#[cfg(not(test))]
const fn visit() {}

/// Counts the nodes that were looked at.
#[cfg(test)]
fn visit() {
    tests::VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(test)]
mod tests;
