//! Applications on clients of the gateways, which take and release locks all the time, and what was granted.
//!
//! A lock is held from the answer on until its release is sent. While it is held, a number in the file that
//! was written before is read, and the next one written stably. Each application also writes to its own file
//! all the time, unstably, and commits that now and then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{
    ByteRange, File, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Options, Session, Stability,
    Status, Version,
};

use crate::gateways::{CONDITION, Gateway, Gateways};

/// The files that all applications lock. Each application has one more, whose lock it keeps.
const SHARED_FILES: usize = 3;
const OWNER: LockOwner = LockOwner(1);
/// The blocks of an application's own file, which are written in turn.
const BLOCKS: usize = 64;
const BLOCK: usize = 4096;
/// How many blocks are written before a commit.
const COMMIT_AFTER: usize = 50;
const RANGE: ByteRange = ByteRange { first: 0, last: 99 };

/// A lock that was granted.
#[derive(Debug, Clone, Copy)]
struct Held {
    application: usize,
    file: usize,
    from: Instant,
    until: Option<Instant>,
    /// The application was told meanwhile that it has lost it.
    is_lost: bool,
}

/// What all applications have seen.
#[derive(Default)]
struct Record {
    held: Mutex<Vec<Held>>,
    /// The last number that was stably written to each file.
    numbers: Mutex<BTreeMap<usize, u64>>,
    /// Applications that were told that they have lost locks.
    lost: Mutex<Vec<usize>>,
    stops: AtomicBool,
}

impl Record {
    fn begin(&self, application: usize, file: usize) -> usize {
        let mut held = self.held.lock().unwrap();
        held.push(Held { application, file, from: Instant::now(), until: None, is_lost: false });
        held.len() - 1
    }

    fn end(&self, number: usize, is_lost: bool) {
        let held = &mut self.held.lock().unwrap()[number];
        (held.until, held.is_lost) = (Some(Instant::now()), is_lost);
    }
}

/// The running applications.
pub struct Applications {
    record: Arc<Record>,
    /// How often each has got a shared lock.
    granted: Vec<Arc<AtomicUsize>>,
    threads: Vec<JoinHandle<()>>,
}

impl Applications {
    /// An application for each gateway, with NFSv4.1 and NFSv4.2 in turn. Returns when each has its own lock.
    pub fn start(gateways: &mut Gateways<'_>) -> Self {
        let mut all = Self { record: Arc::default(), granted: Vec::new(), threads: Vec::new() };
        gateways.all.iter().for_each(|gateway| all.add(gateway));
        all.until_granted(gateways, "locks on all gateways", 1);
        all
    }

    /// One more, on a gateway.
    pub fn add(&mut self, gateway: &Gateway<'_>) {
        let (number, granted) = (self.threads.len(), Arc::<AtomicUsize>::default());
        self.granted.push(Arc::clone(&granted));
        let (record, url) = (Arc::clone(&self.record), gateway.url());
        self.threads.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(Application { number, record, granted }.run(&url));
        }));
    }

    /// Waits until all have got so many more shared locks.
    pub fn until_granted(&self, gateways: &mut Gateways<'_>, what: &str, more: usize) {
        let now = || self.granted.iter().map(|count| count.load(Ordering::Acquire)).collect::<Vec<_>>();
        let before = now();
        let said = || format!("{before:?} -> {:?}", now());
        gateways.wait(what, said, || {
            let failed = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!failed, "an application has failed");
            now().iter().zip(&before).all(|(now, before)| *now >= before + more)
        });
    }

    /// Ends them, and checks what was granted. `may_lose` are the applications that could lose their locks.
    pub fn check(mut self, may_lose: &[usize]) {
        self.record.stops.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let begun = Instant::now();
            while !thread.is_finished() {
                assert!(begun.elapsed() < CONDITION, "an application hangs");
                std::thread::sleep(Duration::from_millis(10));
            }
            thread.join().unwrap();
        }
        let lost = self.record.lost.lock().unwrap();
        assert!(lost.iter().all(|number| may_lose.contains(number)), "{lost:?} have lost locks");
        let mut held = self.record.held.lock().unwrap().clone();
        held.retain(|held| !held.is_lost);
        held.sort_by_key(|held| (held.file, held.from));
        for pair in held.windows(2).filter(|pair| pair[0].file == pair[1].file) {
            let [first, second] = [pair[0], pair[1]];
            let ended = first.until.is_some_and(|until| until <= second.from);
            let (one, other, file) = (first.application, second.application, first.file);
            assert!(ended, "applications {one} and {other} both had the lock of file {file}");
        }
    }
}

impl Drop for Applications {
    fn drop(&mut self) {
        self.record.stops.store(true, Ordering::Release);
    }
}

struct Application {
    number: usize,
    record: Arc<Record>,
    granted: Arc<AtomicUsize>,
}

/// Whether a client of the gateway gets the lock of the file `name`, which it releases at once.
pub fn try_lock(gateway: &Gateway<'_>, name: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options::new().version(Version::V4_2).lane(LaneMode::Off).retry(CONDITION);
        let session = Session::connect(&gateway.url().parse().unwrap(), options).await.unwrap();
        let how = OpenOptions::new().read(true).write(true);
        let file = session.open(name.as_bytes(), &how).await.unwrap();
        let is_locked = lock(&file).await.unwrap();
        if is_locked {
            file.unlock(OWNER, None).await.unwrap();
        }
        drop(file);
        session.close().await;
        is_locked
    })
}

/// A client that holds the lock of a file.
pub struct Holder {
    runtime: tokio::runtime::Runtime,
    file: File,
}

impl Holder {
    /// A client of the gateway, and the file `name`, which it creates.
    pub fn of(gateway: &Gateway<'_>, name: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let file = runtime.block_on(async {
            let options = Options::new().version(Version::V4_2).lane(LaneMode::Off).retry(CONDITION);
            let session = Session::connect(&gateway.url().parse().unwrap(), options).await.unwrap();
            let how = OpenOptions::new().read(true).write(true).create(true);
            let file = session.open(name.as_bytes(), &how).await.unwrap();
            assert!(lock(&file).await.unwrap());
            file
        });
        Self { runtime, file }
    }

    /// Writes to the file, which fails if the lock is lost. Waits as long as no server answers.
    pub fn write(&self) {
        let written = self.file.write_stable(b"again".as_slice().into(), 0, Stability::FileSync);
        let done = self.runtime.block_on(async { tokio::time::timeout(CONDITION, written).await });
        done.expect("the client to write again").unwrap();
    }

    /// Releases the lock.
    pub fn release(self) {
        self.runtime.block_on(self.file.unlock(OWNER, None)).unwrap();
    }
}

async fn lock(file: &File) -> client::Result<bool> {
    let request = LockRequest { owner: OWNER, range: RANGE, kind: LockKind::Write, waits: false };
    match file.lock(request).await {
        Ok(()) => Ok(true),
        Err(error) if error.status() == Some(Status::Locked) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Application {
    async fn run(&self, url: &str) {
        let version = if self.number.is_multiple_of(2) { Version::V4_1 } else { Version::V4_2 };
        let options = Options::new().version(version).lane(LaneMode::Off).retry(CONDITION);
        let session = Session::connect(&url.parse().unwrap(), options).await.unwrap();
        let how = OpenOptions::new().read(true).write(true).create(true);
        let mut files = Vec::new();
        for number in 0..SHARED_FILES {
            files.push(session.open(format!("shared-{number}").as_bytes(), &how).await.unwrap());
        }
        let own = session.open(format!("own-{}", self.number).as_bytes(), &how).await.unwrap();
        assert!(lock(&own).await.unwrap(), "it is its own");
        let own_lock = self.record.begin(self.number, SHARED_FILES + self.number);
        let mut blocks = [None; BLOCKS];
        for turn in self.number.. {
            if self.record.stops.load(Ordering::Acquire) {
                break;
            }
            self.stream(&own, turn, &mut blocks).await;
            let number = turn % SHARED_FILES;
            let file = &files[number];
            match lock(file).await {
                Ok(true) => self.hold(file, number).await,
                Ok(false) => {}
                Err(error) => self.lose(file, &error).await,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        own.commit().await.unwrap();
        for (number, expected) in blocks.iter().enumerate() {
            let mut found = vec![0; BLOCK];
            let length = own.read_at(&mut found, (number * BLOCK) as u64).await.unwrap();
            let is_written =
                |turn: usize| length == BLOCK && found.chunks(8).all(|part| part == turn.to_le_bytes());
            assert!(expected.is_none_or(is_written), "block {number} of application {} is lost", self.number);
        }
        self.record.end(own_lock, false);
        if let Err(error) = own.unlock(OWNER, Some(RANGE)).await {
            self.lose(&own, &error).await;
        }
        session.close().await;
    }

    /// Writes a block of the application's own file. `blocks` has the turns in which they were written.
    async fn stream(&self, own: &File, turn: usize, blocks: &mut [Option<usize>; BLOCKS]) {
        let number = turn % BLOCKS;
        let data = turn.to_le_bytes().repeat(BLOCK / 8);
        let written = own.write_stable(data.into(), (number * BLOCK) as u64, Stability::Unstable).await;
        blocks[number] = written.is_ok().then_some(turn);
        let committed = if turn.is_multiple_of(COMMIT_AFTER) { own.commit().await } else { Ok(()) };
        if let Err(error) = written.and(committed) {
            self.lose(own, &error).await;
        }
    }

    /// The application holds the lock of a file.
    async fn hold(&self, file: &File, number: usize) {
        let held = self.record.begin(self.number, number);
        let counted = self.count(file, number).await;
        self.record.end(held, counted.is_err());
        match counted {
            Ok(()) => {
                self.granted.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => return self.lose(file, &error).await,
        }
        if let Err(error) = file.unlock(OWNER, Some(RANGE)).await {
            self.lose(file, &error).await;
        }
    }

    /// Reads the number that was written last, and writes the next one.
    async fn count(&self, file: &File, number: usize) -> client::Result<()> {
        let mut bytes = [0; 8];
        let read = file.read_at(&mut bytes, 0).await?;
        let found = if read == 8 { u64::from_le_bytes(bytes) } else { 0 };
        let expected = self.record.numbers.lock().unwrap().get(&number).copied().unwrap_or(found);
        assert!(found >= expected, "file {number} has {found}, and {expected} was written stably");
        let next = found + 1;
        file.write_stable(next.to_le_bytes().to_vec().into(), 0, Stability::FileSync).await?;
        self.record.numbers.lock().unwrap().insert(number, next);
        Ok(())
    }

    /// It is told that it has lost locks of a file.
    async fn lose(&self, file: &File, error: &client::Error) {
        assert_eq!(error.status(), Some(Status::Io), "{error}");
        self.record.lost.lock().unwrap().push(self.number);
        let _ = file.unlock(OWNER, None).await;
    }
}
