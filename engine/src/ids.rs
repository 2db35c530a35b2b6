//! Checked newtypes that the layers share.
