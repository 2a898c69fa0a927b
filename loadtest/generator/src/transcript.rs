//! What users were told, one JSON line each, for an oracle that trusts nobody
//! else.
//!
//! Each driving thread fills a buffer and hands it on when it is full; one
//! thread writes. The queue between them is bounded: a slow disk slows the
//! drivers down (and shows as lag) rather than filling the memory.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde::Serialize;
use tokio::sync::mpsc;

/// A buffer is handed on when it has grown beyond this, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Buffers that may wait for the writer.
const CHUNKS_MAX: usize = 64;

/// One answer as told.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// The sale's id.
    pub sale: &'a str,
    /// The user, as in the token's `sub`.
    pub user: &'a str,
    /// The idempotency key that was sent.
    pub key: Option<&'a str>,
    /// 0 for the user's first click, 1 for the repeat.
    pub click: u8,
    /// How many claims this click had sent by then.
    pub attempt_no: u32,
    /// `won`, `again`, `sold_out`, `refused`, `void` (and tried again), or at
    /// the end of the budget `pending` or `error`.
    pub status: &'a str,
    /// The HTTP status of the answer; null when there was none.
    pub http: Option<u16>,
    /// A problem's code, or the kind of an error.
    pub code: Option<&'a str>,
    /// The claim's id.
    pub claim: Option<&'a str>,
    /// The unit.
    pub unit: Option<u64>,
    /// When the click was meant to be made, in Unix milliseconds.
    pub intended_ms: u64,
    /// When the answer had come, in Unix milliseconds.
    pub done_ms: u64,
    /// The base URL of the gateway that answered.
    pub gateway: &'a str,
}

/// Owns the file and the thread that writes it.
#[derive(Debug)]
pub struct Writer {
    chunks: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Writer {
    /// Creates the file and starts the thread.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let mut file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let (chunks, mut full) = mpsc::channel::<Vec<u8>>(CHUNKS_MAX);
        let thread = std::thread::Builder::new()
            .name("transcript".to_owned())
            .spawn(move || {
                while let Some(chunk) = full.blocking_recv() {
                    file.write_all(&chunk)?;
                }
                file.sync_all()
            })?;
        Ok(Self { chunks, thread })
    }

    /// A pen for one driving thread.
    #[must_use]
    pub fn pen(&self) -> Pen {
        Pen {
            buffer: Vec::with_capacity(CHUNK_BYTES + 1024),
            chunks: self.chunks.clone(),
        }
    }

    /// Waits until all lines of all pens (which must be gone) are on disk.
    ///
    /// # Errors
    /// When a write failed; then lines are missing.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.chunks);
        match self.thread.join() {
            Ok(written) => written.context("the transcript could not be written"),
            Err(_panicked) => anyhow::bail!("the transcript's writer panicked"),
        }
    }
}

/// Collects the lines of one thread.
#[derive(Debug)]
pub struct Pen {
    buffer: Vec<u8>,
    chunks: mpsc::Sender<Vec<u8>>,
}

/// A full buffer on its way to the writer.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    chunks: mpsc::Sender<Vec<u8>>,
}

impl Pen {
    /// Adds a line; a returned chunk must be sent.
    #[must_use]
    pub fn add(&mut self, line: &Line<'_>) -> Option<Chunk> {
        // Writing plain structs to memory does not fail.
        let _ = serde_json::to_writer(&mut self.buffer, line);
        self.buffer.push(b'\n');
        (self.buffer.len() >= CHUNK_BYTES).then(|| self.rest())
    }

    /// What has not been handed on yet.
    #[must_use]
    pub fn rest(&mut self) -> Chunk {
        let empty = Vec::with_capacity(CHUNK_BYTES + 1024);
        Chunk {
            bytes: std::mem::replace(&mut self.buffer, empty),
            chunks: self.chunks.clone(),
        }
    }
}

impl Chunk {
    /// Hands the chunk to the writer, waiting while the queue is full.
    /// Cancelled, its lines are lost.
    pub async fn send(self) {
        // The writer is only gone when a write failed: `finish` tells.
        let _ = self.chunks.send(self.bytes).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str) -> Line<'_> {
        Line {
            sale: "s1",
            user,
            key: Some("k"),
            click: 0,
            attempt_no: 1,
            status: "won",
            http: Some(201),
            code: None,
            claim: Some("1-1-ab"),
            unit: Some(1),
            intended_ms: 1,
            done_ms: 2,
            gateway: "http://127.0.0.1:1",
        }
    }

    #[test]
    fn every_line_of_every_pen_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told.jsonl");
        let writer = Writer::create(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            for pen in 0..2 {
                let mut pen_of = writer.pen();
                for n in 0..2000 {
                    if let Some(chunk) = pen_of.add(&line(&format!("u{pen}-{n}"))) {
                        chunk.send().await;
                    }
                }
                pen_of.rest().send().await;
            }
        });
        writer.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let users: std::collections::HashSet<_> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["user"].to_string()
            })
            .collect();
        assert_eq!(users.len(), 4000);
    }

    #[test]
    fn a_disk_that_is_full_is_told() {
        let writer = Writer::create(Path::new("/dev/full")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut pen = writer.pen();
        runtime.block_on(async {
            assert!(pen.add(&line("u")).is_none());
            pen.rest().send().await;
        });
        drop(pen);
        assert!(writer.finish().is_err());
    }
}
