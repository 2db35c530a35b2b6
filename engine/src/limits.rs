//! Every bound, named.
