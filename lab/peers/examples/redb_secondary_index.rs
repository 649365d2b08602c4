//! Users in redb by number and by address: a secondary index in its own table.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_secondary_index -- FILE`
//!
//! Each change of a user changes both tables or none, even if the program is killed. An address
//! belongs to one user.

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

/// Maps the number of a user to the address.
const USERS: TableDefinition<u64, &str> = TableDefinition::new("users");
/// Maps the address to the number of the user.
const BY_ADDRESS: TableDefinition<&str, u64> = TableDefinition::new("users by address");

#[derive(Debug)]
enum Error {
    Taken(String),
    #[expect(dead_code, reason = "main shows the field by Debug")]
    Store(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

struct Users {
    db: Database,
}

impl Users {
    fn open(file: &str) -> Result<Self, Error> {
        let db = Database::create(file)?;
        let write = db.begin_write()?;
        write.open_table(USERS)?;
        write.open_table(BY_ADDRESS)?;
        write.commit()?;
        Ok(Self { db })
    }

    /// Sets the address of a user, who may be new.
    ///
    /// # Errors
    /// [`Error::Taken`] if another user has the address.
    fn set_address(&self, user: u64, address: &str) -> Result<(), Error> {
        let write = self.db.begin_write()?;
        {
            let (mut users, mut by_address) = (write.open_table(USERS)?, write.open_table(BY_ADDRESS)?);
            if by_address.get(address)?.is_some_and(|owner| owner.value() != user) {
                return Err(Error::Taken(address.to_owned()));
            }
            if let Some(old) = users.insert(user, address)? {
                by_address.remove(old.value())?;
            }
            by_address.insert(address, user)?;
        }
        Ok(write.commit()?)
    }

    fn user_of(&self, address: &str) -> Result<Option<u64>, Error> {
        let by_address = self.db.begin_read()?.open_table(BY_ADDRESS)?;
        Ok(by_address.get(address)?.map(|user| user.value()))
    }

    /// Checks that each table is the reverse of the other, and returns the number of users.
    fn check(&self) -> Result<u64, Error> {
        let read = self.db.begin_read()?;
        let (users, by_address) = (read.open_table(USERS)?, read.open_table(BY_ADDRESS)?);
        for pair in users.iter()? {
            let (user, address) = pair?;
            assert_eq!(by_address.get(address.value())?.map(|owner| owner.value()), Some(user.value()));
        }
        assert_eq!(users.len()?, by_address.len()?);
        Ok(users.len()?)
    }
}

fn main() -> Result<(), Error> {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: redb_secondary_index FILE");
        std::process::exit(2);
    };
    let users = Users::open(&file)?;
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
    // Writers wait for one another: redb has one write transaction at a time.
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            let users = &users;
            scope.spawn(move || (0..50).try_for_each(|n| users.set_address(5, &format!("{thread}.{n}@example.org"))))
        };
        let threads: Vec<_> = (0..3).map(write).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    println!("{} users, each with one address", users.check()?);
    Ok(users.db.close()?)
}
