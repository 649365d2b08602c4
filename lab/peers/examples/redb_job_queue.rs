//! A job queue in redb that loses no job to a kill: each step is one transaction.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_job_queue -- FILE`
//!
//! Kill the program during its work, and run it again: the interrupted jobs are repeated. The work
//! of a job may therefore run twice, but its result is recorded once.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

const WORKER_COUNT: u64 = 3;
const RUN_JOB_COUNT: u64 = 60;

const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const WAITING: TableDefinition<u64, &str> = TableDefinition::new("waiting");
const RUNNING: TableDefinition<u64, &str> = TableDefinition::new("running");
const DONE: TableDefinition<u64, &str> = TableDefinition::new("done");

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The queue. A job is in one of three tables, under the same key.
struct Queue {
    db: Database,
}

impl Queue {
    fn open(file: &str) -> AnyResult<Self> {
        let queue = Self { db: Database::create(file)? };
        queue.requeue()?;
        Ok(queue)
    }

    /// Moves the jobs of an earlier process back to the waiting jobs. No worker may run yet.
    fn requeue(&self) -> AnyResult<()> {
        let write = self.db.begin_write()?;
        {
            let (mut waiting, mut running) = (write.open_table(WAITING)?, write.open_table(RUNNING)?);
            while let Some((job, work)) = running.pop_first()? {
                waiting.insert(job.value(), work.value())?;
                println!("job {} was interrupted", job.value());
            }
            // Creates the tables, so that readers can open them.
            write.open_table(COUNTERS)?;
            write.open_table(DONE)?;
        }
        Ok(write.commit()?)
    }

    fn add(&self, work: &str) -> AnyResult<u64> {
        let write = self.db.begin_write()?;
        let next = {
            let mut counters = write.open_table(COUNTERS)?;
            let next = counters.get("next job")?.map_or(0, |next| next.value());
            counters.insert("next job", next + 1)?;
            write.open_table(WAITING)?.insert(next, work)?;
            next
        };
        write.commit()?;
        Ok(next)
    }

    /// Claims the oldest waiting job.
    fn claim(&self) -> AnyResult<Option<(u64, String)>> {
        let write = self.db.begin_write()?;
        let claimed = {
            let mut waiting = write.open_table(WAITING)?;
            let Some((job, work)) = waiting.pop_first()? else { return Ok(None) };
            write.open_table(RUNNING)?.insert(job.value(), work.value())?;
            (job.value(), work.value().to_owned())
        };
        write.commit()?;
        Ok(Some(claimed))
    }

    fn finish(&self, job: u64, result: &str) -> AnyResult<()> {
        let write = self.db.begin_write()?;
        if write.open_table(RUNNING)?.remove(job)?.is_none() {
            return Err(format!("job {job} does not run").into());
        }
        write.open_table(DONE)?.insert(job, result)?;
        Ok(write.commit()?)
    }

    /// Returns the number of jobs ever added, and the number of jobs done.
    fn counts(&self) -> AnyResult<(u64, u64)> {
        let read = self.db.begin_read()?;
        let added = read.open_table(COUNTERS)?.get("next job")?.map_or(0, |next| next.value());
        Ok((added, read.open_table(DONE)?.len()?))
    }
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
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: redb_job_queue FILE");
        std::process::exit(2);
    };
    let queue = Queue::open(&file)?;
    let (_, before) = queue.counts()?;
    for job in 0..RUN_JOB_COUNT {
        queue.add(&"x".repeat(job as usize))?;
    }
    let (shared, finished) = (&queue, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKER_COUNT).map(|worker| scope.spawn(move || work(shared, worker, finished))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let ((all, done), now) = (queue.counts()?, finished.load(Ordering::Relaxed));
    println!("{before} jobs were done before, {now} are done now, {all} were ever added");
    assert_eq!(done, all, "each job has one result");
    assert_eq!(before + now, all);
    Ok(queue.db.close()?)
}
