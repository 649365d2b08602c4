//! A job queue that loses no job to a kill: each step is one atomic batch or transaction.
//!
//! `cargo run --release -p lodestore --example job_queue -- DIR`
//!
//! Kill the program while it works, and run it again: the interrupted jobs are repeated. So the
//! work of a job may run twice, and its result is recorded once.
#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestore::{Db, Error, Keyspace, Result};

const THREADS: u64 = 3;
const JOB_COUNT: u64 = 60;

/// The queue: a job is in one of three keyspaces, under the same key.
struct Queue {
    db: Db,
    waiting: Keyspace,
    running: Keyspace,
    done: Keyspace,
}

impl Queue {
    fn open(dir: &str) -> Result<Self> {
        let db = Db::builder(dir).capacity(256 << 20).open()?;
        let [waiting, running, done] = ["waiting", "running", "done"].map(|name| db.keyspace(name));
        let queue = Self { waiting: waiting?, running: running?, done: done?, db };
        queue.requeue()?;
        Ok(queue)
    }

    /// Lets the jobs of an earlier process wait again. No worker may run yet.
    fn requeue(&self) -> Result<()> {
        for job in self.running.iter()? {
            let (key, work) = job?;
            self.db.batch().delete(&self.running, &key).put(&self.waiting, &key, &work).commit()?;
            println!("job {} was interrupted", number(&key));
        }
        Ok(())
    }

    fn add(&self, work: &str) -> Result<u64> {
        self.db.transaction(|tx| {
            let next = tx.get(&self.db, "next job")?.map_or(0, |value| number(&value));
            tx.put(&self.db, "next job", (next + 1).to_be_bytes())?;
            tx.put(&self.waiting, next.to_be_bytes(), work)?;
            Ok(next)
        })
    }

    /// Takes the oldest job that waits.
    fn claim(&self) -> Result<Option<(u64, String)>> {
        while let Some(job) = self.waiting.iter()?.next() {
            let (key, work) = job?;
            let mut claim = self.db.batch();
            claim.require_present(&self.waiting, &key);
            // Another worker may have been faster: then the next one is the oldest.
            match claim.delete(&self.waiting, &key).put(&self.running, &key, &work).commit() {
                Err(Error::Conflict { .. }) => {}
                committed => {
                    committed?;
                    return Ok(Some((number(&key), String::from_utf8_lossy(&work).into_owned())));
                }
            }
        }
        Ok(None)
    }

    fn finish(&self, job: u64, result: &str) -> Result<()> {
        let key = job.to_be_bytes();
        self.db.transaction(|tx| {
            if !tx.contains(&self.running, key)? {
                return Err(tx.abort(format!("job {job} does not run")));
            }
            tx.delete(&self.running, key)?;
            tx.put(&self.done, key, result)
        })
    }
}

fn number(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

fn work(queue: &Queue, worker: u64, finished: &AtomicU64) -> Result<()> {
    while let Some((job, text)) = queue.claim()? {
        std::thread::sleep(Duration::from_millis(2));
        queue.finish(job, &format!("{} letters, counted by worker {worker}", text.len()))?;
        finished.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: job_queue DIR");
        std::process::exit(2);
    };
    let queue = Queue::open(&dir)?;
    let before = queue.done.count()?;
    for job in 0..JOB_COUNT {
        queue.add(&"x".repeat(job as usize))?;
    }
    let (queue, finished) = (&queue, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|worker| scope.spawn(move || work(queue, worker, finished))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let (all, now) = (queue.db.get("next job")?.map_or(0, |next| number(&next)), finished.load(Ordering::Relaxed));
    println!("{before} jobs were done before, {now} are done now, {all} were ever added");
    assert_eq!(queue.done.count()?, all, "each job has one result");
    assert_eq!(before + now, all);
    queue.db.close()
}
