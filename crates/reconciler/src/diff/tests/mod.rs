//! A correct world has no differences, and every change of it is found by its kind.

mod sale;
mod wins;
mod world;
