//! The directory tree of a session: how it is requested, recalled and requested again, and opens in it.
//!
//! A session that has a lane asks for the tree of its root, once for each lane and once after each recall.
//! The server may refuse; the session then uses the lane for files only. A refusal because of another
//! client's opens, of the server's grace period or of a withdrawn export is temporary, and the session asks
//! again. A server whose user is trusted only by name isn't asked ([`OpenError::FilesOnly`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use lane::{OpenError, OpenRequest, OpenStatus, Target};

use super::OpenedFile;
use super::lane_manager::{EstablishedLane, LaneManager};
use crate::counters::bump;
use crate::error::{Error, Result};
use crate::operations::FileTarget;
use crate::options::LaneMode;
use crate::protocol::Protocol;
use crate::tree::{Tree, TreeFile, TreeOpen};
use crate::types::FileKind;
use crate::user::User;

/// The pause after the first temporary refusal of a tree. It doubles with each further one: a grace period
/// may end with the reclaims of this client, and another client's open may last for days.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The tree of a session, with the number of the lane that it came over.
#[derive(Debug)]
pub(crate) struct GrantedTree {
    tree: Protocol,
    lane: u64,
}

/// The requests for a tree.
#[derive(Debug, Default)]
pub(super) struct TreeRequests {
    /// The lane and its generation for which the tree was last requested.
    last: Option<(u64, u64)>,
    /// When to request it again nevertheless.
    again: Option<Instant>,
    /// The temporary refusals since the last other answer.
    refusals: u32,
    /// The reason if the server gave none.
    refusal: Option<String>,
}

impl TreeRequests {
    /// Whether the tree is to be requested now from the lane with this number and generation.
    fn begin(&mut self, lane: (u64, u64), now: Instant) -> bool {
        if self.last == Some(lane) && self.again.is_none_or(|again| now < again) {
            return false;
        }
        (self.last, self.again) = (Some(lane), None);
        true
    }

    /// Notes the result of a request.
    fn end(&mut self, refusal: Option<String>, is_temporary: bool, now: Instant) {
        let pause = MIN_RETRY_PAUSE.saturating_mul(1 << self.refusals.min(16)).min(MAX_RETRY_PAUSE);
        self.again = is_temporary.then(|| now + pause);
        self.refusals = if is_temporary { self.refusals.saturating_add(1) } else { 0 };
        self.refusal = refusal;
    }

    /// Ends the pause after a temporary refusal.
    fn end_pause(&mut self, now: Instant) {
        self.again = self.again.map(|_| now);
    }
}

/// A file that was opened in a tree.
pub(crate) enum OpenedInTree {
    File(Box<OpenedFile>),
    /// Only regular files are opened.
    Other(FileKind),
}

impl GrantedTree {
    /// The tree's operations.
    pub(crate) const fn operations(&self) -> &Protocol {
        &self.tree
    }

    fn is_live(&self) -> bool {
        self.tree.as_tree().is_some_and(Tree::is_live)
    }
}

impl LaneManager {
    /// The tree, if the session has one. If the server has recalled it, or could give one since it refused,
    /// another one is requested in the background.
    pub(crate) fn tree(self: &Arc<Self>) -> Option<Arc<GrantedTree>> {
        if let Some(tree) = self.tree.load_full().filter(|tree| tree.is_live()) {
            return Some(tree);
        }
        if let Some(established) = self.live()
            && self.begin_request(&established)
        {
            let manager = self.clone();
            self.runtime.spawn(async move {
                manager.request_tree(&established).await;
                manager.report_change();
            });
        }
        None
    }

    /// Whether the session has a tree, and the reason if the server refused one.
    pub(super) fn report_tree(&self) -> (bool, Option<String>) {
        let has_tree = self.tree.load().as_ref().is_some_and(|tree| tree.is_live());
        (has_tree, self.tree_requests.lock().refusal.clone())
    }

    /// As [`LaneManager::await_tree`], also if the server has refused temporarily just now.
    pub(crate) async fn await_tree_now(self: &Arc<Self>) {
        self.tree_requests.lock().end_pause(Instant::now());
        self.await_tree().await;
    }

    /// Requests a tree if a request is due, and waits for the reply.
    pub(super) async fn await_tree(self: &Arc<Self>) {
        if let Some(established) = self.live()
            && self.begin_request(&established)
        {
            // In a task, because nobody else makes this request should the caller stop to wait for it.
            let manager = self.clone();
            let request = self.runtime.spawn(async move { manager.request_tree(&established).await });
            let _ = request.await;
        }
    }

    /// Whether a tree is to be requested now from this lane. Returns true once for each of its generations,
    /// and again after a temporary refusal.
    fn begin_request(&self, established: &EstablishedLane) -> bool {
        let lane = (established.number, established.lane.generation());
        let mut requests = self.tree_requests.lock();
        if self.mode() == LaneMode::Off || !requests.begin(lane, Instant::now()) {
            return false;
        }
        // The former tree has ended, and its directory mustn't stay open.
        drop(self.tree.swap(None));
        true
    }

    async fn request_tree(self: &Arc<Self>, established: &EstablishedLane) {
        let (Some(credential), Some(root)) = (&self.owner.lane, self.root.get()) else { return };
        let target = Target::Tree(root.as_bytes());
        let request = OpenRequest { target, access: lane::Access::ReadWrite, credential };
        bump(&self.counters.lane.round_trips);
        let answer = tokio::time::timeout(self.open_timeout(), established.lane.open(request)).await;
        // A stale root is that of an export which was withdrawn, and may come back.
        let is_temporary = matches!(
            answer,
            Ok(Err(OpenError::Refused(OpenStatus::TryWire | OpenStatus::TooMany | OpenStatus::Stale)))
        );
        let refusal = match answer {
            Ok(Ok(opened)) => {
                let (sink, seals) = (self.attribute_sink.clone(), self.seals.clone());
                Tree::new(opened, root, sink, seals, self.max_blocking).map(|tree| {
                    let tree = GrantedTree { tree: Protocol::Tree(tree), lane: established.number };
                    // An answer that comes late must not take the place of a later request's.
                    if tree.is_live() {
                        self.tree.store(Some(Arc::new(tree)));
                    }
                    // It may have been recalled, or the lane may have ended, meanwhile.
                    self.end_recalled_tree();
                })
            }
            Ok(Err(OpenError::TooOld)) => Err("the server's version gives no trees".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the server did not answer the request for a tree in time".to_owned()),
        }
        .err();
        if let Some(reason) = &refusal {
            tracing::debug!(reason, "no tree");
        }
        self.tree_requests.lock().end(refusal, is_temporary, Instant::now());
    }

    /// Ends the use of the tree.
    pub(super) fn end_tree(&self) {
        drop(self.tree.swap(None));
    }

    /// Ends the use of the tree if the server has recalled it.
    pub(super) fn end_recalled_tree(&self) {
        if let Some(tree) = self.tree.load_full().filter(|tree| !tree.is_live()) {
            // Another one may have come meanwhile.
            self.tree.compare_and_swap(&tree, None);
        }
    }

    /// Opens a file in the tree. After `None` the server must be asked, and nothing was changed, except that
    /// a file may have been created if `how` allows an existing one.
    ///
    /// # Errors
    /// As the server's for the same open.
    pub(crate) async fn open_in_tree(
        self: &Arc<Self>,
        user: &User,
        target: FileTarget<'_>,
        access: (bool, bool),
    ) -> Result<Option<OpenedInTree>> {
        let Some(granted) = self.tree() else { return Ok(None) };
        let Some(tree) = granted.tree.as_tree() else { return Ok(None) };
        let opened = match target {
            FileTarget::File(file) => tree.open_handle(user, file, access).await,
            FileTarget::Entry { directory, name, listed } => {
                tree.open(user, directory, name, listed, access).await
            }
            FileTarget::New { directory, name, how } => {
                tree.open_new(user, directory, name, how, access).await
            }
        };
        bump(&self.counters.tree_operations);
        match opened {
            Ok(TreeOpen::File(file)) => {
                Ok(Some(OpenedInTree::File(Box::new(self.opened_in_tree(&granted, *file)))))
            }
            Ok(TreeOpen::Other(kind)) => Ok(Some(OpenedInTree::Other(kind))),
            Err(Error::NotLocal) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`LaneManager::open_in_tree`], if nothing has to wait and the file is regular.
    ///
    /// # Errors
    /// As the server's for the same open.
    pub(crate) fn open_in_tree_now(
        self: &Arc<Self>,
        user: &User,
        target: FileTarget<'_>,
        access: (bool, bool),
    ) -> Result<Option<OpenedFile>> {
        let Some(granted) = self.tree() else { return Ok(None) };
        let opened = granted.tree.as_tree().and_then(|tree| tree.open_now(user, target, access));
        let Some(opened) = opened else { return Ok(None) };
        bump(&self.counters.tree_operations);
        match opened? {
            TreeOpen::File(file) => Ok(Some(self.opened_in_tree(&granted, *file))),
            TreeOpen::Other(_) => Ok(None),
        }
    }

    fn opened_in_tree(&self, granted: &GrantedTree, file: TreeFile) -> OpenedFile {
        if file.grant.is_some() {
            bump(&self.counters.lane.opens);
        }
        let verifier = granted.tree.as_tree().map(Tree::verifier).unwrap_or_default();
        let granted = file.grant.map(|grant| (grant, granted.lane, verifier));
        OpenedFile { granted, is_new: file.is_new, ..OpenedFile::new(file.handle, file.attributes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_requested_once_for_each_generation_and_again_after_a_temporary_refusal() {
        let (mut requests, start) = (TreeRequests::default(), Instant::now());
        assert!(requests.begin((1, 1), start));
        assert!(!requests.begin((1, 1), start), "a request is under way");
        requests.end(Some("squashed".into()), false, start);
        assert!(!requests.begin((1, 1), start + 100 * MAX_RETRY_PAUSE));
        assert!(requests.begin((1, 2), start));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            requests.end(Some("another client's open".into()), true, start);
            let at = requests.again.unwrap();
            assert!(!requests.begin((1, 2), at - Duration::from_millis(1)));
            assert!(requests.begin((1, 2), at));
            assert!(!requests.begin((1, 2), at), "a request is under way");
            pauses.push((at - start).as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        requests.end(Some("another client's open".into()), true, start);
        requests.end_pause(start);
        assert!(requests.begin((1, 2), start));
        requests.end(None, false, start);
        requests.end_pause(start);
        assert!(!requests.begin((1, 2), start + 100 * MAX_RETRY_PAUSE));
        requests.end(Some("the grace period".into()), true, start);
        assert!(requests.begin((1, 2), start + MIN_RETRY_PAUSE), "pauses begin anew");
        assert!(requests.begin((2, 2), start));
    }
}
