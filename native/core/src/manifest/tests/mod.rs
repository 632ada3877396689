//! Tests of the manifest.

#![allow(clippy::unwrap_used)]

mod plain;
mod refusals;

use std::collections::BTreeMap;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Identity, Manifest, OpenReport, Options, WalFiles, WalOperation};
use crate::error::{Error, Result};
use crate::vfs::{Access, SyncMethod, Vfs, VfsFile, VfsLock};

const ID: Identity = Identity {
    object: 7 << 100,
    node: 9 << 64,
};
const DIR: &str = "/node";

#[derive(Default)]
struct Files(Mutex<BTreeMap<PathBuf, Arc<Mutex<Vec<u8>>>>>);

struct OpenFile(PathBuf, Arc<Mutex<Vec<u8>>>);

impl VfsFile for OpenFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let data = self.1.lock();
        let from = data.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(from.ok_or_else(|| not_found("read", &self.0))?);
        Ok(())
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut file = self.1.lock();
        let end = offset as usize + data.len();
        let len = file.len().max(end);
        file.resize(len, 0);
        file[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_all_at(data, offset)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.1.lock().len() as u64)
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

fn not_found(op: &'static str, path: &Path) -> Error {
    Error::io(op, path, IoError::from(ErrorKind::NotFound))
}

impl Vfs for Files {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn VfsFile>> {
        let mut files = self.0.lock();
        if access == Access::CreateNew {
            if files.contains_key(path) {
                return Err(Error::io(
                    "open",
                    path,
                    IoError::from(ErrorKind::AlreadyExists),
                ));
            }
            files.insert(path.into(), Arc::default());
        }
        let data = files.get(path).ok_or_else(|| not_found("open", path))?;
        Ok(Arc::new(OpenFile(path.into(), data.clone())))
    }
    fn open_durable(&self, path: &Path, _: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        self.open(path, Access::Write)
    }
    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()> {
        self.open(path, Access::CreateNew)?
            .write_all_at(&vec![0; len as usize], 0)
    }
    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        let files = self.0.lock();
        let data = files
            .get(path)
            .ok_or_else(|| not_found("read", path))?
            .lock()
            .clone();
        assert!(data.len() as u64 <= max);
        Ok(data)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let files = self.0.lock();
        let mut names: Vec<String> = files
            .keys()
            .filter_map(|path| path.strip_prefix(dir).ok()?.components().next())
            .map(|name| name.as_os_str().to_str().unwrap().to_owned())
            .collect();
        names.dedup();
        Ok(names)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.0.lock().keys().any(|name| name.starts_with(path)))
    }
    fn create_dir_all(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.0.lock();
        let data = files
            .remove(from)
            .ok_or_else(|| not_found("rename", from))?;
        files.insert(to.into(), data);
        Ok(())
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0
            .lock()
            .remove(path)
            .map(|_| ())
            .ok_or_else(|| not_found("remove", path))
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn lock(&self, _: &Path, _: &str) -> Result<Box<dyn VfsLock>> {
        unimplemented!()
    }
    fn is_locked(&self, _: &Path) -> Result<bool> {
        unimplemented!()
    }
}

fn memory() -> Arc<dyn Vfs> {
    Arc::new(Files::default())
}

fn create(vfs: &Arc<dyn Vfs>) -> Manifest<WalFiles> {
    Manifest::create(vfs.clone(), Path::new(DIR), ID, Options::default()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>) -> Result<(Manifest<WalFiles>, OpenReport)> {
    Manifest::open(vfs.clone(), Path::new(DIR), ID, Options::default())
}

fn read(vfs: &Arc<dyn Vfs>, name: &str) -> Vec<u8> {
    vfs.read(&Path::new(DIR).join(name), 1 << 30).unwrap()
}

/// Replace a file's bytes behind the manifest's back.
fn overwrite(vfs: &Arc<dyn Vfs>, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    if vfs.exists(&path).unwrap() {
        vfs.remove(&path).unwrap();
    }
    vfs.open(&path, Access::CreateNew)
        .unwrap()
        .write_all_at(bytes, 0)
        .unwrap();
}

fn add(slot: u32) -> WalOperation {
    WalOperation::AddSlot {
        slot,
        bytes: 1 << 20,
    }
}

fn segment(number: u64, slot: u32) -> WalOperation {
    WalOperation::OpenSegment {
        number,
        slot,
        salt: number ^ 0xdead,
    }
}

fn seal(number: u64) -> WalOperation {
    WalOperation::SealSegment {
        number,
        sealed_bytes: number,
        side_bytes: 0,
        side_crc: 0,
    }
}
