//! The interlock under a model checker: no interleaving of a client's I/O and a server's drain goes wrong.

use samehost_lane::interlock::{ClientSide, Control, ServerSide, State, Word, Words};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use shuttle::thread;

struct Atomic(AtomicU64);

impl Word for Atomic {
    fn load(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn store(&self, value: u64) {
        self.0.store(value, SeqCst);
    }
    fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, SeqCst)
    }
    fn sub(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, SeqCst)
    }
}

struct Shared([Atomic; 3]);

#[derive(Clone)]
struct Both(Arc<Shared>);

impl Words for Both {
    type Word = Atomic;
    fn control(&self) -> &Atomic {
        &self.0.0[0]
    }
    fn in_flight(&self) -> &Atomic {
        &self.0.0[1]
    }
    fn received(&self) -> &Atomic {
        &self.0.0[2]
    }
}

fn words() -> Both {
    Both(Arc::new(Shared([0; 3].map(|zero| Atomic(AtomicU64::new(zero))))))
}

const INTERLEAVINGS: usize = 20_000;

/// Two threads of a client do I/O while the server drains. When the server has seen draining and then no I/O under
/// way, it takes the ground away; nobody may stand on it then or come back later.
#[test]
fn no_io_after_the_drain_has_seen_none() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone());
            let client = Arc::new(ClientSide::new(words));
            let ground_is_gone = Arc::new(AtomicBool::new(false));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (client, ground_is_gone) = (client.clone(), ground_is_gone.clone());
                    thread::spawn(move || {
                        for _ in 0..2 {
                            if client.try_get(Control::FIRST.word()) {
                                assert!(!ground_is_gone.load(SeqCst), "I/O began on nothing");
                                thread::yield_now();
                                assert!(!ground_is_gone.load(SeqCst), "the ground went away under I/O");
                                client.put();
                            }
                        }
                    })
                })
                .collect();
            server.publish(Control { state: State::Draining, ..Control::FIRST });
            while server.in_flight() != 0 {
                thread::yield_now();
            }
            ground_is_gone.store(true, SeqCst);
            server.publish(Control { state: State::Gone, ..Control::FIRST });
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(server.in_flight(), 0);
            assert!(!client.try_get(Control::FIRST.word()));
        },
        INTERLEAVINGS,
    );
}

/// A recall ends the grants of one generation and leaves those of the next alone.
#[test]
fn a_recall_is_for_one_generation() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone());
            let client = Arc::new(ClientSide::new(words));
            let recalled = Arc::new(AtomicBool::new(false));
            let old = {
                let (client, recalled) = (client.clone(), recalled.clone());
                thread::spawn(move || {
                    let was_recalled = recalled.load(SeqCst);
                    let began = client.try_get(Control::FIRST.word());
                    assert!(!(was_recalled && began), "I/O began after the recall");
                    if began {
                        client.put();
                    }
                })
            };
            let next = Control { generation: 2, ..Control::FIRST };
            server.publish(next);
            recalled.store(true, SeqCst);
            assert!(client.try_get(next.word()));
            client.put();
            old.join().unwrap();
            assert_eq!(server.in_flight(), 0);
        },
        INTERLEAVINGS,
    );
}

/// Receipts are counted, whoever else writes what.
#[test]
fn receipts_add_up() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone());
            let client = Arc::new(ClientSide::new(words));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let client = client.clone();
                    thread::spawn(move || client.receive())
                })
                .collect();
            assert!(server.received() <= 3);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(server.received(), 3);
        },
        1_000,
    );
}
