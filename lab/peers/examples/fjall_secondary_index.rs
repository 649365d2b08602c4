//! Users in fjall by number and by address: a secondary index in its own keyspace.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_secondary_index -- DIR`
//!
//! Each change of a user changes both keyspaces or none, even if the program is killed. An address
//! belongs to one user.
#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use fjall::{KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace};

#[derive(Debug)]
enum Error {
    Taken(String),
    #[expect(dead_code, reason = "main shows the field by Debug")]
    Store(fjall::Error),
}

impl From<fjall::Error> for Error {
    fn from(error: fjall::Error) -> Self {
        Self::Store(error)
    }
}

struct Users {
    db: SingleWriterTxDatabase,
    /// Maps the number of a user to the address.
    users: SingleWriterTxKeyspace,
    /// Maps the address to the number of the user.
    by_address: SingleWriterTxKeyspace,
}

impl Users {
    fn open(dir: &str) -> Result<Self, Error> {
        let db = SingleWriterTxDatabase::builder(dir).open()?;
        let users = db.keyspace("users", KeyspaceCreateOptions::default)?;
        let by_address = db.keyspace("users by address", KeyspaceCreateOptions::default)?;
        Ok(Self { users, by_address, db })
    }

    /// Sets the address of a user, who may be new.
    ///
    /// # Errors
    /// [`Error::Taken`] if another user has the address.
    fn set_address(&self, user: u64, address: &str) -> Result<(), Error> {
        let key = user.to_be_bytes();
        let mut tx = self.db.write_tx();
        if tx.get(&self.by_address, address)?.is_some_and(|owner| *owner != key) {
            return Err(Error::Taken(address.to_owned()));
        }
        if let Some(old) = tx.fetch_update(&self.users, key, |_| Some(address.into()))? {
            tx.remove(&self.by_address, old);
        }
        tx.insert(&self.by_address, address, key);
        Ok(tx.commit()?)
    }

    fn user_of(&self, address: &str) -> Result<Option<u64>, Error> {
        let key = self.by_address.get(address)?;
        Ok(key.and_then(|key| key.as_ref().try_into().ok()).map(u64::from_be_bytes))
    }

    /// Checks that each keyspace is the reverse of the other, and returns the number of users.
    fn check(&self) -> Result<usize, Error> {
        let read = self.db.read_tx();
        for pair in read.iter(&self.users) {
            let (key, address) = pair.into_inner()?;
            assert_eq!(read.get(&self.by_address, &address)?, Some(key));
        }
        let (users, addresses) = (read.len(&self.users)?, read.len(&self.by_address)?);
        assert_eq!(users, addresses);
        Ok(users)
    }
}

fn main() -> Result<(), Error> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: fjall_secondary_index DIR");
        std::process::exit(2);
    };
    let users = Users::open(&dir)?;
    println!("{} users were here before", users.check()?);
    for user in 0..200 {
        users.set_address(user, &format!("user{user}@example.org"))?;
    }
    users.set_address(17, "ada@example.org")?;
    assert_eq!(users.user_of("ada@example.org")?, Some(17));
    assert_eq!(users.user_of("user17@example.org")?, None);
    match users.set_address(18, "ada@example.org") {
        Err(Error::Taken(address)) => println!("refused: {address} is taken"),
        other => panic!("an address of two users: {other:?}"),
    }
    // Writers wait for one another: this kind of database has one write transaction at a time.
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            let users = &users;
            scope.spawn(move || (0..50).try_for_each(|n| users.set_address(5, &format!("{thread}.{n}@example.org"))))
        };
        let threads: Vec<_> = (0..3).map(write).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    println!("{} users, each with one address", users.check()?);
    Ok(users.db.persist(PersistMode::SyncAll)?)
}
