//! What only this back-end does.
