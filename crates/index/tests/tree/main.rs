//! Tests of the tree through its public interface.

mod common;
mod damage;
mod model;
mod shape;
mod threads;
