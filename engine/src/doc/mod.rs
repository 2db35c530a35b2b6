//! Documents, revision trees, attachments, validation.
