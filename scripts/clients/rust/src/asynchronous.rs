//! The multiplexed connection of redis-rs: concurrent commands, and the cache of the client.
use std::time::Duration;

use redis::caching::CacheConfig;
use redis::{AsyncConnectionConfig, AsyncTypedCommands as _, Client};
use tokio::runtime;

use crate::{Result, expect};

const COUNTER: &str = "rs:async:counter";
const CACHED: &str = "rs:async:cached";

/// Runs the asynchronous part of a phase.
pub fn run(client: &Client, writes: bool) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if writes {
            count(client).await?;
            use_client_side_cache(client).await
        } else {
            let mut connection = client.get_multiplexed_async_connection().await?;
            expect("GET of a counter", connection.get(COUNTER).await?, Some("800".to_owned()))
        }
    })
}

/// Increments one counter from tasks that share a connection.
async fn count(client: &Client) -> Result<()> {
    let connection = client.get_multiplexed_async_connection().await?;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    connection.incr(COUNTER, 1).await?;
                }
                redis::RedisResult::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Reads a key from the client's cache until another connection changes the key.
async fn use_client_side_cache(client: &Client) -> Result<()> {
    let config = AsyncConnectionConfig::new().set_cache_config(CacheConfig::default());
    let mut cached = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut other = client.get_multiplexed_async_connection().await?;
    other.set(CACHED, "old").await?;
    for _ in 0..2 {
        expect("GET", cached.get(CACHED).await?, Some("old".to_owned()))?;
    }
    let hits = cached.get_cache_statistics().map(|statistics| (statistics.hit, statistics.miss));
    expect("hits and misses of the cache", hits, Some((1, 1)))?;
    other.set(CACHED, "new").await?;
    for _ in 0..500 {
        if cached.get(CACHED).await?.as_deref() == Some("new") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the invalidation does not arrive".into())
}
