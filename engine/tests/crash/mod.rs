//! The crash model: a disk that keeps what a crash may leave of it, and a database that says what has to be there.

pub mod choices;
pub mod database;
pub mod disk;
pub mod vfs;
