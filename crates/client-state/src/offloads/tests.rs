//! Tests of the asynchronous copies, without a server.

use super::*;

const FILE: u8 = 1;
const SESSION: u64 = 1;

const fn id(copy: u8) -> StateId {
    StateId { seqid: 1, other: [copy; 12] }
}

/// Copies whose ends are texts. The clock stands still unless a test says otherwise.
struct CopyClient {
    offloads: Offloads<u8, &'static str>,
    now: Instant,
}

impl CopyClient {
    fn new() -> Self {
        let mut client = Self { offloads: Offloads::new(None), now: Instant::now() };
        client.offloads.recover(SESSION, client.now);
        client
    }

    fn started(&mut self, copy: u8) -> OffloadRef<u8> {
        let starting = self.offloads.starting(FILE);
        self.offloads.started(starting, id(copy), SESSION, self.now).expect("another id")
    }

    fn step(&self, copy: &OffloadRef<u8>) -> OffloadStep<&'static str> {
        self.offloads.step(copy, self.now)
    }

    /// Lets time pass until the server is asked. Returns how long that was.
    fn wait_to_ask(&mut self, copy: &OffloadRef<u8>) -> Duration {
        let OffloadStep::Wait(until) = self.step(copy) else { panic!("{:?}", self.step(copy)) };
        let pause = until - self.now;
        self.now = until;
        assert_eq!(self.step(copy), OffloadStep::Ask);
        pause
    }

    fn asked(&mut self, copy: &OffloadRef<u8>, answer: OffloadAnswer<&'static str>) {
        self.offloads.asked(copy, self.now, answer);
    }
}

#[test]
fn a_callback_ends_a_copy_once() {
    let mut client = CopyClient::new();
    let (one, two) = (client.started(1), client.started(2));
    assert_eq!(client.offloads.ended(FILE, id(1), "first"), EndAnswer::Taken);
    assert_eq!(client.offloads.ended(FILE, id(1), "second"), EndAnswer::Taken, "it is repeated");
    assert_eq!(client.step(&one), OffloadStep::Ended("first"));
    assert!(matches!(client.step(&two), OffloadStep::Wait(_)));
    assert!(!client.offloads.finish(&one), "the server knows");
    assert_eq!(client.offloads.ended(FILE, id(1), "late"), EndAnswer::Unknown);
    assert!(client.offloads.finish(&two), "it goes on");
}

#[test]
fn callbacks_for_nobody_are_refused() {
    let mut client = CopyClient::new();
    assert_eq!(client.offloads.ended(FILE, id(1), "end"), EndAnswer::Unknown);
    let copy = client.started(1);
    let other_seqid = StateId { seqid: 2, ..id(1) };
    for (file, id) in [(FILE, id(2)), (FILE, other_seqid), (FILE + 1, id(1))] {
        assert_eq!(client.offloads.ended(file, id, "end"), EndAnswer::Unknown);
    }
    let starting = client.offloads.starting(FILE + 1);
    assert_eq!(client.offloads.ended(FILE, id(3), "end"), EndAnswer::Unknown, "no COPY to that file");
    client.offloads.not_started(starting);
    assert!(matches!(client.step(&copy), OffloadStep::Wait(_)));
}

#[test]
fn an_end_may_come_before_the_reply() {
    let mut client = CopyClient::new();
    let (first, second) = (client.offloads.starting(FILE), client.offloads.starting(FILE));
    assert_eq!(client.offloads.ended(FILE, id(2), "early"), EndAnswer::Taken);
    assert_eq!(client.offloads.ended(FILE, id(2), "repeated"), EndAnswer::Taken);
    let first = client.offloads.started(first, id(1), SESSION, client.now).expect("another id");
    let second = client.offloads.started(second, id(2), SESSION, client.now).expect("another id");
    assert!(matches!(client.step(&first), OffloadStep::Wait(_)));
    assert_eq!(client.step(&second), OffloadStep::Ended("early"));
    assert!(!client.offloads.finish(&second), "the server knows");
}

#[test]
fn early_ends_are_bounded_and_end_with_the_copies_on_their_way() {
    let mut client = CopyClient::new();
    let (old, new) = (client.offloads.starting(FILE), client.offloads.starting(FILE));
    for copy in 0..MAX_EARLY_ENDS {
        assert_eq!(client.offloads.ended(FILE, id(copy as u8), "end"), EndAnswer::Taken);
    }
    assert_eq!(client.offloads.ended(FILE, id(200), "end"), EndAnswer::Later);
    // There are always some on their way; but none that were when the ends came.
    let newer = client.offloads.starting(FILE);
    client.offloads.not_started(old);
    assert_eq!(client.offloads.early.len(), MAX_EARLY_ENDS);
    client.offloads.not_started(new);
    assert_eq!(client.offloads.early.len(), 0);
    let newer = client.offloads.started(newer, id(3), SESSION, client.now).expect("another id");
    assert!(matches!(client.step(&newer), OffloadStep::Wait(_)), "an end of another copy");
}

#[test]
fn the_server_is_asked_with_pauses_that_double() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    let mut pauses = Vec::new();
    for count in 0..8 {
        pauses.push(client.wait_to_ask(&copy).as_millis());
        client.asked(&copy, OffloadAnswer::Running(count));
    }
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    client.asked(&copy, OffloadAnswer::Ended("asked"));
    assert_eq!(client.step(&copy), OffloadStep::Ended("asked"));
    assert!(client.offloads.finish(&copy), "the server keeps it until it is told");
}

#[test]
fn a_callback_after_the_question_is_an_answer_too() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    client.wait_to_ask(&copy);
    client.asked(&copy, OffloadAnswer::Ended("asked"));
    assert_eq!(client.offloads.ended(FILE, id(1), "reported"), EndAnswer::Taken);
    assert_eq!(client.step(&copy), OffloadStep::Ended("asked"));
    assert!(!client.offloads.finish(&copy), "the server knows");
}

#[test]
fn a_copy_that_the_server_does_not_know_is_lost_and_not_cancelled() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    client.wait_to_ask(&copy);
    client.asked(&copy, OffloadAnswer::Running(100));
    client.wait_to_ask(&copy);
    client.asked(&copy, OffloadAnswer::Unknown);
    assert_eq!(client.step(&copy), OffloadStep::Lost { copied: 100 });
    assert_eq!(client.offloads.ended(FILE, id(1), "end"), EndAnswer::Unknown);
    assert!(!client.offloads.finish(&copy));
}

#[test]
fn answers_that_say_nothing_end_the_wait() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    client.wait_to_ask(&copy);
    client.asked(&copy, OffloadAnswer::Inconclusive);
    client.wait_to_ask(&copy);
    client.asked(&copy, OffloadAnswer::Running(7));
    for _ in 0..MAX_INCONCLUSIVE {
        client.wait_to_ask(&copy);
        client.asked(&copy, OffloadAnswer::Inconclusive);
    }
    assert_eq!(client.step(&copy), OffloadStep::Inconclusive { copied: 7 });
    assert!(client.offloads.finish(&copy), "it goes on");
}

#[test]
fn a_lost_connection_makes_the_client_ask_at_once_but_not_all_the_time() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    client.offloads.doubt(client.now);
    assert_eq!(client.step(&copy), OffloadStep::Ask);
    client.asked(&copy, OffloadAnswer::Running(0));
    client.offloads.doubt(client.now);
    assert_eq!(client.wait_to_ask(&copy), MIN_PAUSE);
    client.asked(&copy, OffloadAnswer::Running(0));
    // No question comes later than without a loss.
    client.now += Duration::from_secs(60);
    client.offloads.doubt(client.now);
    assert_eq!(client.step(&copy), OffloadStep::Ask);
}

#[test]
fn a_copy_stalls_that_makes_no_progress_for_too_long() {
    let mut client = CopyClient::new();
    let limit = Duration::from_secs(3);
    client.offloads = Offloads::new(Some(limit));
    let copy = client.started(1);
    for count in 1..20 {
        assert!(matches!(client.step(&copy), OffloadStep::Wait(_) | OffloadStep::Ask));
        client.now += limit / 2;
        client.asked(&copy, OffloadAnswer::Running(count));
    }
    let stalled = client.now + limit;
    while client.now < stalled {
        client.asked(&copy, OffloadAnswer::Running(19));
        let OffloadStep::Wait(until) = client.step(&copy) else { panic!("{:?}", client.step(&copy)) };
        assert!(until <= stalled);
        client.now = until;
    }
    assert_eq!(client.step(&copy), OffloadStep::Stalled);
    assert!(client.offloads.finish(&copy), "it goes on");
}

#[test]
fn copies_end_with_the_client_id() {
    let mut client = CopyClient::new();
    let (before, on_its_way) = (client.started(1), client.offloads.starting(FILE));
    assert_eq!(client.offloads.ended(FILE, id(9), "early"), EndAnswer::Taken);
    client.offloads.recover(2, client.now);
    assert_eq!(client.step(&before), OffloadStep::Lost { copied: 0 });
    // The reply came before, and is looked at now.
    let late = client.offloads.started(on_its_way, id(9), SESSION, client.now).expect("another id");
    assert_eq!(client.step(&late), OffloadStep::Lost { copied: 0 });
    // The restarted server uses the id again.
    let starting = client.offloads.starting(FILE);
    let after = client.offloads.started(starting, id(1), 2, client.now).expect("another id");
    assert!(!client.offloads.finish(&before) && !client.offloads.finish(&late), "it isn't theirs");
    assert_eq!(client.offloads.ended(FILE, id(1), "end"), EndAnswer::Taken);
    assert_eq!(client.step(&after), OffloadStep::Ended("end"));
}

#[test]
fn a_copy_survives_a_new_session_of_the_same_client_id() {
    let mut client = CopyClient::new();
    let copy = client.started(1);
    client.offloads.doubt(client.now);
    client.asked(&copy, OffloadAnswer::Running(5));
    let starting = client.offloads.starting(FILE);
    let other = client.offloads.started(starting, id(2), 2, client.now).expect("another id");
    client.offloads.recover(1, client.now);
    assert!(matches!(client.step(&copy), OffloadStep::Ask | OffloadStep::Wait(_)), "of this client id");
    assert!(matches!(client.step(&other), OffloadStep::Ask | OffloadStep::Wait(_)));
}

#[test]
fn an_id_is_one_copys_until_that_has_ended() {
    let mut client = CopyClient::new();
    let first = client.started(1);
    let starting = client.offloads.starting(FILE);
    let refused = client.offloads.started(starting, id(1), SESSION, client.now);
    assert_eq!(refused, Err(DuplicateOffload));
    assert_eq!(client.offloads.ended(FILE, id(1), "first"), EndAnswer::Taken);
    let second = client.started(1);
    assert_eq!(client.offloads.ended(FILE, id(1), "second"), EndAnswer::Taken);
    assert_eq!(client.step(&first), OffloadStep::Ended("first"));
    assert_eq!(client.step(&second), OffloadStep::Ended("second"));
}
