//! Why a value is refused.

use std::fmt;

/// Why a value is refused. The text names the value; the text for `CONFIG SET` is that of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    text: String,
    redis: Option<String>,
}

impl ValueError {
    /// Returns an error with a separate text for `CONFIG SET`.
    pub(super) fn with_redis(text: impl Into<String>, redis: impl Into<String>) -> Self {
        Self { text: text.into(), redis: Some(redis.into()) }
    }

    /// Returns the text for `CONFIG SET`.
    pub(crate) fn redis_text(&self) -> &str {
        self.redis.as_deref().unwrap_or(&self.text)
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ValueError {}

impl From<String> for ValueError {
    fn from(text: String) -> Self {
        Self { text, redis: None }
    }
}

impl From<&str> for ValueError {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
