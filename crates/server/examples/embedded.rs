//! Serves a store of this process to Redis clients, until a client sends `SHUTDOWN`.
//!
//! `cargo run --release -p lodestore-server --example embedded -- STORE ADDRESS [POWER]`

use std::error::Error;

use lodestore::{Db, Durability};
use lodestore_server::{Config, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("give a store and an address, such as /dev/shm/example 127.0.0.1:6380".into());
    };
    let mut builder = Db::builder(&store).capacity(4 << 30);
    if arguments.next().is_some() {
        builder = builder.durability(Durability::Power);
    }
    let db = builder.open()?;
    let mut config = Config::default();
    if address.starts_with('/') {
        config.listen.clear();
        config.unix = Some(address.into());
    } else {
        config.listen = vec![address.parse()?];
    }
    let server = Server::start(db.clone(), config)?;
    println!("{} at {:?}: serving", db.engine(), db.durability());
    server.wait()?;
    Ok(db.close()?)
}
