//! A live sale as every service needs it: follow, publish, tip, open.
