//! A job queue in fjall that loses no job to a kill: each step is one transaction.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_job_queue -- DIR`
//!
//! Kill the program during its work, and run it again: the interrupted jobs are repeated. The work
//! of a job may therefore run twice, but its result is recorded once.
#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fjall::{KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace};

const WORKER_COUNT: u64 = 3;
const RUN_JOB_COUNT: u64 = 60;

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The queue. A job is in one of three keyspaces, under the same key.
struct Queue {
    db: SingleWriterTxDatabase,
    counters: SingleWriterTxKeyspace,
    waiting: SingleWriterTxKeyspace,
    running: SingleWriterTxKeyspace,
    done: SingleWriterTxKeyspace,
}

impl Queue {
    fn open(dir: &str) -> fjall::Result<Self> {
        let db = SingleWriterTxDatabase::builder(dir).open()?;
        let [counters, waiting, running, done] =
            ["counters", "waiting", "running", "done"].map(|name| db.keyspace(name, KeyspaceCreateOptions::default));
        let queue = Self { counters: counters?, waiting: waiting?, running: running?, done: done?, db };
        queue.requeue()?;
        Ok(queue)
    }

    /// Moves the jobs of an earlier process back to the waiting jobs. No worker may run yet.
    fn requeue(&self) -> fjall::Result<()> {
        let mut tx = self.db.write_tx();
        for job in self.db.read_tx().iter(&self.running) {
            let (key, work) = job.into_inner()?;
            println!("job {} was interrupted", number(&key));
            tx.remove(&self.running, key.clone());
            tx.insert(&self.waiting, key, work);
        }
        tx.commit()
    }

    fn add(&self, work: &str) -> fjall::Result<u64> {
        let mut tx = self.db.write_tx();
        let next = tx.get(&self.counters, "next job")?.map_or(0, |value| number(&value));
        tx.insert(&self.counters, "next job", (next + 1).to_be_bytes());
        tx.insert(&self.waiting, next.to_be_bytes(), work);
        tx.commit()?;
        Ok(next)
    }

    /// Claims the oldest waiting job.
    fn claim(&self) -> fjall::Result<Option<(u64, String)>> {
        let mut tx = self.db.write_tx();
        let Some(oldest) = tx.first_key_value(&self.waiting) else { return Ok(None) };
        let (key, work) = oldest.into_inner()?;
        tx.remove(&self.waiting, key.clone());
        tx.insert(&self.running, key.clone(), work.clone());
        tx.commit()?;
        Ok(Some((number(&key), String::from_utf8_lossy(&work).into_owned())))
    }

    fn finish(&self, job: u64, result: &str) -> AnyResult<()> {
        let mut tx = self.db.write_tx();
        if tx.take(&self.running, job.to_be_bytes())?.is_none() {
            return Err(format!("job {job} does not run").into());
        }
        tx.insert(&self.done, job.to_be_bytes(), result);
        Ok(tx.commit()?)
    }
}

fn number(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

fn work(queue: &Queue, worker: u64, finished: &AtomicU64) -> AnyResult<()> {
    while let Some((job, text)) = queue.claim()? {
        std::thread::sleep(Duration::from_millis(2));
        queue.finish(job, &format!("{} letters, counted by worker {worker}", text.len()))?;
        finished.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn main() -> AnyResult<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: fjall_job_queue DIR");
        std::process::exit(2);
    };
    let queue = Queue::open(&dir)?;
    let before = queue.db.read_tx().len(&queue.done)? as u64;
    for job in 0..RUN_JOB_COUNT {
        queue.add(&"x".repeat(job as usize))?;
    }
    let (queue, finished) = (&queue, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKER_COUNT).map(|worker| scope.spawn(move || work(queue, worker, finished))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let all = queue.counters.get("next job")?.map_or(0, |next| number(&next));
    let now = finished.load(Ordering::Relaxed);
    println!("{before} jobs were done before, {now} are done now, {all} were ever added");
    assert_eq!(queue.db.read_tx().len(&queue.done)? as u64, all, "each job has one result");
    assert_eq!(before + now, all);
    Ok(queue.db.persist(PersistMode::SyncAll)?)
}
