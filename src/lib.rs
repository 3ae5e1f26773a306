//! Lazuli
