//! One process of the floor: `braidlog-chain PORT FILE [PORT]...`
//!
//! What comes in is sent on to the backups, written and synced; then each sender is told how many of
//! its bytes are safe everywhere. Bytes are not looked at: nobody takes over, and nothing can be read
//! again. What arrives during a sync is one group for the next.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};

const FILE_BYTES: usize = 64 << 20;
const READ_BYTES: usize = 1 << 20;
const COUNT_BYTES: usize = 8;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, path, backups @ ..] = arguments.as_slice() else {
        return Err(io::Error::other(
            "usage: braidlog-chain PORT FILE [PORT]...",
        ));
    };
    let disk = Disk::new(Path::new(path))?;
    let backups = backups
        .iter()
        .map(|port| TcpStream::connect(format!("127.0.0.1:{port}")).and_then(Backup::new))
        .collect::<io::Result<Vec<_>>>()?;
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    listener.set_nonblocking(true)?;
    Server {
        listener,
        disk,
        backups,
        senders: Vec::new(),
        stored: 0,
        buffer: vec![0; READ_BYTES],
    }
    .serve()
}

/// A zero-filled file that is written in a circle: a sync changes no metadata.
struct Disk {
    file: File,
    at: usize,
}

impl Disk {
    fn new(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.write_all_at(&vec![0; FILE_BYTES], 0)?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn store(&mut self, data: &[u8]) -> io::Result<()> {
        for piece in data.chunks(FILE_BYTES) {
            if self.at + piece.len() > FILE_BYTES {
                self.at = 0;
            }
            self.file.write_all_at(piece, self.at as u64)?;
            self.at += piece.len();
        }
        self.file.sync_data()
    }
}

/// The connection to a backup, which says how many bytes are safe there.
struct Backup {
    socket: TcpStream,
    safe: u64,
    rest: Vec<u8>,
}

impl Backup {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            safe: 0,
            rest: Vec::new(),
        })
    }

    /// Takes the newest count.
    fn hear(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let got = self.socket.read(buffer)?;
        if got == 0 {
            return Err(io::Error::other("a backup ended"));
        }
        self.rest.extend_from_slice(&buffer[..got]);
        let whole = self.rest.len() / COUNT_BYTES * COUNT_BYTES;
        if whole > 0 {
            let mut count = [0; COUNT_BYTES];
            count.copy_from_slice(&self.rest[whole - COUNT_BYTES..whole]);
            self.safe = u64::from_le_bytes(count);
            self.rest.drain(..whole);
        }
        Ok(())
    }
}

/// The connection of whoever sends.
struct Sender {
    socket: TcpStream,
    sent: u64,
    /// Where each of its groups ends: in all that was stored, and in what this one sent.
    groups: VecDeque<(u64, u64)>,
    ended: bool,
}

struct Server {
    listener: TcpListener,
    disk: Disk,
    backups: Vec<Backup>,
    senders: Vec<Sender>,
    /// How many bytes are on the disk of this process.
    stored: u64,
    buffer: Vec<u8>,
}

impl Server {
    fn serve(&mut self) -> io::Result<()> {
        let mut group = Vec::new();
        loop {
            let ready = self.wait()?;
            let (backups, senders) = ready[1..].split_at(self.backups.len());
            for (at, _) in backups.iter().enumerate().filter(|each| *each.1) {
                self.backups[at].hear(&mut self.buffer)?;
            }
            group.clear();
            for (at, _) in senders.iter().enumerate().filter(|each| *each.1) {
                self.take(at, &mut group)?;
            }
            if !group.is_empty() {
                for backup in &mut self.backups {
                    backup.socket.write_all(&group)?;
                }
                self.disk.store(&group)?;
                self.stored += group.len() as u64;
            }
            self.answer();
            self.senders.retain(|sender| !sender.ended);
            if ready[0] {
                self.accept()?;
            }
        }
    }

    /// Waits until something can be read; tells of the listener, backups and senders, in this order.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(
            self.backups
                .iter()
                .map(|each| PollFd::new(&each.socket, PollFlags::IN)),
        );
        watched.extend(
            self.senders
                .iter()
                .map(|each| PollFd::new(&each.socket, PollFlags::IN)),
        );
        poll(&mut watched, None)?;
        Ok(watched
            .iter()
            .map(|each| !each.revents().is_empty())
            .collect())
    }

    /// Adds what a sender has sent to the group.
    fn take(&mut self, at: usize, group: &mut Vec<u8>) -> io::Result<()> {
        let sender = &mut self.senders[at];
        let got = match sender.socket.read(&mut self.buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        sender.ended = got == 0;
        group.extend_from_slice(&self.buffer[..got]);
        sender.sent += got as u64;
        sender
            .groups
            .push_back((self.stored + group.len() as u64, sender.sent));
        Ok(())
    }

    /// Tells each sender how many of its bytes are safe everywhere, if there are more.
    fn answer(&mut self) {
        let safe = self
            .backups
            .iter()
            .map(|each| each.safe)
            .fold(self.stored, u64::min);
        for sender in &mut self.senders {
            let mut own = None;
            while sender.groups.front().is_some_and(|group| group.0 <= safe) {
                own = sender.groups.pop_front().map(|group| group.1);
            }
            if let Some(own) = own {
                sender.ended |= sender.socket.write_all(&own.to_le_bytes()).is_err();
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        match self.listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                self.senders.push(Sender {
                    socket,
                    sent: 0,
                    groups: VecDeque::new(),
                    ended: false,
                });
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}
