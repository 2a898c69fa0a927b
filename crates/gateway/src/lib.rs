//! The HTTP face of a sale: claims and the admin API.
