//! Users by their number, and by their address: a secondary index in a keyspace of its own.
//!
//! `cargo run --release -p lodestore --example secondary_index -- DIR`
//!
//! Each change of a user changes both keyspaces or none, also if the program is killed. An address
//! belongs to one user.
#![expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]

use lodestore::{Db, Error, Keyspace, Result};

struct Users {
    db: Db,
    /// The number of a user to the address.
    users: Keyspace,
    /// The address to the number of the user.
    by_address: Keyspace,
}

impl Users {
    fn open(dir: &str) -> Result<Self> {
        let db = Db::builder(dir).capacity(256 << 20).open()?;
        Ok(Self { users: db.keyspace("users")?, by_address: db.keyspace("users by address")?, db })
    }

    /// Gives a user an address. The user may be new.
    ///
    /// # Errors
    /// [`Error::Aborted`] if another user has the address.
    fn set_address(&self, user: u64, address: &str) -> Result<()> {
        let key = user.to_be_bytes();
        self.db.transaction(|tx| {
            if let Some(owner) = tx.get(&self.by_address, address)?
                && *owner != key
            {
                return Err(tx.abort(format!("{address} is taken")));
            }
            if let Some(old) = tx.get(&self.users, key)? {
                tx.delete(&self.by_address, old)?;
            }
            tx.put(&self.users, key, address)?;
            tx.put(&self.by_address, address, key)
        })
    }

    fn user_of(&self, address: &str) -> Result<Option<u64>> {
        let key = self.by_address.get(address)?;
        Ok(key.and_then(|key| key.as_ref().try_into().ok()).map(u64::from_be_bytes))
    }

    /// Checks that each keyspace is the reverse of the other, and returns how many users there are.
    fn check(&self) -> Result<u64> {
        for pair in self.users.iter()? {
            let (key, address) = pair?;
            assert_eq!(self.by_address.get(&address)?, Some(key));
        }
        let (users, addresses) = (self.users.count()?, self.by_address.count()?);
        assert_eq!(users, addresses);
        Ok(users)
    }
}

fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: secondary_index DIR");
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
        Err(Error::Aborted { reason }) => println!("refused: {reason}"),
        other => panic!("an address of two users: {other:?}"),
    }
    // Writers of one user are serialized by the check at the commit.
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            let users = &users;
            scope.spawn(move || (0..50).try_for_each(|n| users.set_address(5, &format!("{thread}.{n}@example.org"))))
        };
        let threads: Vec<_> = (0..3).map(write).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    println!("{} users, each with one address", users.check()?);
    users.db.close()
}
