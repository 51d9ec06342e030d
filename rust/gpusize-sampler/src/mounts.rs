//! Where the cgroup hierarchies are mounted: `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The part of the hierarchy that is mounted: `/`, or a group.
    pub root: String,
    /// Where.
    pub point: PathBuf,
    /// The controllers of a v1 hierarchy; `None` is cgroup v2.
    pub v1: Option<Vec<String>>,
}

/// The cgroup mounts in a `mountinfo`.
pub fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

/// Where files in memory are mounted, each such file system once, and each place: a mount hides those before it there.
pub fn tmpfs(mountinfo: &str) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(2);
            let (device, _, point) = (left.next()?, left.next()?, left.next()?);
            let is_new = right.starts_with("tmpfs ") && !seen.iter().any(|(d, p)| *d == device || *p == point);
            is_new.then(|| seen.push((device, point))).map(|()| PathBuf::from(unescaped(point)))
        })
        .collect()
}

/// Fields: id, parent, device, root, mount point, options, any number of optional fields, `-`, type, source, super options.
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (unescaped(left.next()?), PathBuf::from(unescaped(left.next()?)));
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1).unwrap_or_default();
    let v1 = match kind {
        "cgroup2" => None,
        "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
        _ => return None,
    };
    Some(Mount { root, point, v1 })
}

/// Blanks and backslashes stand as octal numbers.
fn unescaped(field: &str) -> String {
    let bytes = field.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        text.push(octal.unwrap_or(bytes[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&text).into_owned()
}

impl Mount {
    /// Whether this is the hierarchy of a controller of v1.
    pub fn has(&self, controller: &str) -> bool {
        self.v1.as_ref().is_some_and(|names| names.iter().any(|name| name == controller))
    }

    /// The directory of a group, below an injected root directory; `None` when the mount does not show that part.
    pub fn dir(&self, root: &Path, group: &str) -> Option<PathBuf> {
        let below = if self.root == "/" { group } else { group.strip_prefix(self.root.as_str())? };
        if !(below.is_empty() || below.starts_with('/')) {
            return None;
        }
        let mut dir = root.join(self.point.strip_prefix("/").unwrap_or(&self.point));
        dir.extend(below.split('/').filter(|part| !part.is_empty()));
        Some(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
42 31 0:39 /docker/ab /mnt/my\\040groups rw - cgroup cgroup rw,memory
";

    #[test]
    fn each_file_system_in_memory_is_found_once() {
        let text = "30 1 0:25 / /dev/shm rw - tmpfs tmpfs rw\n31 1 8:1 / / rw - ext4 /dev/sda rw\n\
                    32 1 0:25 / /again rw - tmpfs tmpfs rw\n34 1 0:27 / /dev/shm rw - tmpfs tmpfs rw\n33 1 0:26 / /a\\040b rw shared:2 - tmpfs none rw,size=1k\n";
        assert_eq!(tmpfs(text), [PathBuf::from("/dev/shm"), PathBuf::from("/a b")]);
    }

    #[test]
    fn mounts_of_both_versions_are_told_apart() {
        let mounts = parse(HYBRID);
        assert_eq!(mounts.len(), 4);
        assert!(mounts[0].has("cpuacct") && mounts[0].has("cpu") && !mounts[0].has("memory"));
        assert_eq!((mounts[2].v1.as_ref(), mounts[2].point.to_str()), (None, Some("/sys/fs/cgroup/unified")));
        assert_eq!(mounts[3].point.to_str(), Some("/mnt/my groups"));
    }

    #[test]
    fn a_group_is_found_below_what_is_mounted() {
        let mounts = parse(HYBRID);
        let dir = |mount: &Mount, group: &str| mount.dir(Path::new("/"), group).map(|dir| dir.display().to_string());
        assert_eq!(dir(&mounts[0], "/a/b").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/a/b"));
        assert_eq!(dir(&mounts[0], "/").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(dir(&mounts[3], "/docker/ab/c").as_deref(), Some("/mnt/my groups/c"));
        assert_eq!(dir(&mounts[3], "/docker/abc"), None);
        assert_eq!(dir(&mounts[3], "/docker"), None);
        let below = mounts[2].dir(Path::new("/tmp/tree"), "/x").expect("a directory");
        assert_eq!(below.to_str(), Some("/tmp/tree/sys/fs/cgroup/unified/x"));
    }
}
