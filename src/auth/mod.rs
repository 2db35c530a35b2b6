//! Who a request comes from, and what it may do: plain functions and values, with no network in them.
