//! Which directory has which controller of a group: per controller, from the process and the mounts, never from names of drivers.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::mounts::{Mount, parse};
use gpusize_base::error::{Error, Result};

/// The controllers of v1 that are read.
pub const V1: [&str; 6] = ["cpuacct", "cpu", "memory", "pids", "blkio", "cpuset"];
/// The one hierarchy of v2.
pub const V2: &str = "unified";

/// Where one controller of a group is; of v2 there is one for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// One of [`V1`], or [`V2`].
    pub controller: &'static str,
    /// 1 or 2.
    pub version: u8,
    /// The group within its hierarchy.
    pub path: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The directory of the topmost group that can be seen.
    pub top: PathBuf,
}

/// Where a group is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// What this machine mounts: `v1`, `v2` or `hybrid`.
    pub mode: &'static str,
    /// One for each controller that can be read, those of v1 first.
    pub controllers: Vec<Group>,
    /// Controllers that cannot be read, and why.
    pub left_out: Vec<(String, String)>,
    /// What a reader should know: cgroup namespaces, groups that stand for a container.
    pub notes: Vec<String>,
}

/// What a source is watched by.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// The groups of a process; a container's when it is in one.
    Pid(u32),
    /// A group by its path in every hierarchy, or by its directory.
    Path(&'a str),
}

/// The hierarchies that this machine mounts, and what they are together: `v1`, `v2` or `hybrid`.
pub fn mounted(root: &Path) -> Result<(Vec<Mount>, &'static str)> {
    let mountinfo = root.join("proc/self/mountinfo");
    let text = fs::read_to_string(&mountinfo).map_err(|error| {
        Error::environment(format!("cannot be read: {error}"), mountinfo.display().to_string(), "mount /proc")
    })?;
    let mounts = parse(&text);
    let v1 = V1.iter().any(|name| mounts.iter().any(|mount| mount.has(name)));
    let v2 = mounts.iter().any(|mount| mount.v1.is_none());
    let mode = match (v1, v2) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => {
            let todo = "watch the process tree instead, or mount cgroup2 on /sys/fs/cgroup";
            return Err(Error::environment("no cgroup hierarchy is mounted", mountinfo.display().to_string(), todo));
        }
    };
    Ok((mounts, mode))
}

/// Find the groups; `root` is the directory that stands for `/`.
pub fn discover(root: &Path, asked: Asked<'_>) -> Result<Layout> {
    let (mounts, mode) = mounted(root)?;
    let mut layout = Layout { mode, ..Layout::default() };
    let member = match asked {
        Asked::Pid(pid) => of_process(root, pid, &mut layout.notes)?,
        Asked::Path(path) => vec![(None, in_hierarchy(&mounts, path))],
    };
    for name in V1.iter().copied().filter(|name| mounts.iter().any(|mount| mount.has(name))) {
        let candidates = mounts.iter().filter(|mount| mount.has(name));
        layout.add(root, name, group_of(&member, Some(name)), candidates);
    }
    let candidates = mounts.iter().filter(|mount| mount.v1.is_none());
    if candidates.clone().next().is_some() {
        layout.add(root, V2, group_of(&member, None), candidates);
    }
    layout.drop_shared();
    Ok(layout)
}

type Membership = (Option<Vec<String>>, String);

/// `/proc/PID/cgroup`: lines `4:memory:/path` of v1 and `0::/path` of v2.
fn of_process(root: &Path, pid: u32, notes: &mut Vec<String>) -> Result<Vec<Membership>> {
    let file = root.join(format!("proc/{pid}/cgroup"));
    let text = fs::read_to_string(&file).map_err(|error| {
        let what = format!("there is no process {pid} to be watched: {error}");
        Error::environment(what, file.display().to_string(), "name a process that runs; it may have ended already")
    })?;
    let mut all = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let of_container = container_group(path);
        if of_container != path {
            let note = format!("the process is in {path}; its container is {of_container}");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let names = (number != "0").then(|| names.split(',').map(str::to_owned).collect());
        all.push((names, of_container.to_owned()));
    }
    Ok(all)
}

/// The group of a container that a process is in: containers have groups of their own below (podman's `container`, systemd,
/// Docker in Docker), and what is in those counts for the container. A group is a container's when its name has the id.
pub fn container_group(path: &str) -> &str {
    let mut end = 0;
    let mut cut = path.len();
    for part in path.split('/') {
        end += part.len();
        if has_id(part) {
            cut = end;
        }
        end += 1;
    }
    &path[..cut]
}

fn has_id(name: &str) -> bool {
    let mut run = 0;
    name.bytes().any(|byte| {
        run = if byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) { run + 1 } else { 0 };
        run == 64
    })
}

/// A path in the hierarchies; a directory below one of the mounts is taken for the group that it is.
fn in_hierarchy(mounts: &[Mount], path: &str) -> String {
    let whole = format!("/{}", path.trim_matches('/'));
    // The longest mount point wins: /sys/fs/cgroup/memory before /sys/fs/cgroup.
    let below = mounts
        .iter()
        .filter_map(|mount| {
            let rest = Path::new(&whole).strip_prefix(&mount.point).ok()?;
            let inner = format!("{}/{}", mount.root.trim_end_matches('/'), rest.display());
            Some((mount.point.components().count(), inner))
        })
        .max_by_key(|(depth, _)| *depth);
    below.map_or(whole, |(_, inner)| format!("/{}", inner.trim_matches('/')))
}

fn group_of<'a>(member: &'a [Membership], controller: Option<&str>) -> Option<&'a str> {
    let fits = |names: &Option<Vec<String>>| match (controller, names) {
        (None, None) => true,
        (Some(name), Some(names)) => names.iter().any(|n| n == name),
        _ => false,
    };
    // A path that the user gave counts for every hierarchy.
    if let [(None, path)] = member
        && controller.is_some()
        && path != "/"
    {
        return Some(path);
    }
    member.iter().find(|(names, _)| fits(names)).map(|(_, path)| path.as_str())
}

impl Layout {
    fn add<'a>(
        &mut self,
        root: &Path,
        name: &'static str,
        path: Option<&str>,
        mounts: impl Iterator<Item = &'a Mount> + Clone,
    ) {
        match located(root, name, path, mounts) {
            Ok(group) => {
                let flat = fs::read_to_string(group.dir.join("memory.use_hierarchy"));
                if name == "memory" && flat.is_ok_and(|text| text.trim() == "0") {
                    self.notes.push("memory.use_hierarchy is 0: what groups below use is not in mem_bytes".to_owned());
                }
                self.controllers.push(group);
            }
            Err(why) => self.left_out.push((name.to_owned(), why)),
        }
    }

    /// The v2 side of a hybrid machine counts only when the group is the same as that of v1: a login session, say, has
    /// neighbours in it.
    fn drop_shared(&mut self) {
        let Some(at) = self.controllers.iter().position(|group| group.version == 2) else { return };
        let v1 = || self.controllers.iter().filter(|group| group.version == 1);
        let Some(own) = v1().next() else { return };
        let unified = &self.controllers[at];
        if !v1().any(|own| own.path == unified.path || is_within(&unified.dir, &own.dir)) {
            let why = format!("{} also has processes that are not in {} of {}", unified.path, own.path, own.controller);
            self.controllers.remove(at);
            self.left_out.push((V2.to_owned(), why));
        }
    }

    /// The directory whose end is the group's end.
    pub fn primary(&self) -> Option<&Group> {
        self.controllers.iter().find(|group| group.controller == "memory").or_else(|| self.controllers.first())
    }
}

fn located<'a>(
    root: &Path,
    name: &'static str,
    path: Option<&str>,
    mut mounts: impl Iterator<Item = &'a Mount> + Clone,
) -> std::result::Result<Group, String> {
    let version = if name == V2 { 2 } else { 1 };
    let path = path.ok_or("the process is in no group of it")?;
    if path.starts_with("/..") {
        return Err(format!("{path} is outside of this process's cgroup namespace (start with --cgroupns=host)"));
    }
    let found = mounts.clone().find_map(|mount| Some((mount, mount.dir(root, path).filter(|dir| dir.is_dir())?)));
    let Some((mount, dir)) = found else {
        let outer = mounts.any(|mount| mount.root.starts_with("/.."));
        let why = if outer { " (mounted from outside of this process's cgroup namespace)" } else { "" };
        return Err(format!("no mount shows the group {path}{why}"));
    };
    // Only groups below the machine's own have these files, and only it has that one.
    let whole = if version == 2 { !dir.join("cgroup.events").exists() } else { dir.join("release_agent").exists() };
    if whole {
        return Err("it is in the root group, which is the whole machine".to_owned());
    }
    let top = mount.dir(root, &mount.root).unwrap_or_else(|| dir.clone());
    Ok(Group { controller: name, version, path: path.to_owned(), dir, top })
}

/// Whether every process of one group is in another as well. Groups without processes say nothing.
fn is_within(inner: &Path, outer: &Path) -> bool {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    processes(inner, &mut few);
    processes(outer, &mut many);
    !few.is_empty() && few.iter().all(|pid| many.contains(pid))
}

/// The processes of a group and of those below it.
fn processes(dir: &Path, into: &mut Vec<u32>) {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    into.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes(&entry.path(), into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_the_group_that_has_its_id() {
        let id = "0123456789abcdef".repeat(4);
        for (path, end) in [
            (format!("/docker/{id}"), ""),
            (format!("/docker/{id}/init.scope"), "/init.scope"),
            (format!("/machine.slice/libpod-{id}.scope/container"), "/container"),
            (format!("/docker/{id}/docker/{id}"), ""),
            (format!("/kubepods.slice/kubepods-burstable.slice/cri-containerd-{id}.scope"), ""),
            ("/user.slice/session-1.scope".to_owned(), ""),
        ] {
            assert_eq!(container_group(&path), path.strip_suffix(end).expect("the end"), "{path}");
        }
    }

    #[test]
    fn a_directory_is_the_group_that_it_is() {
        let mounts = parse(
            "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             32 23 0:29 /docker/a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
        );
        assert_eq!(in_hierarchy(&mounts, "/sys/fs/cgroup/memory/docker/x"), "/docker/x");
        assert_eq!(in_hierarchy(&mounts, "/sys/fs/cgroup/cpu/x"), "/docker/a/x");
        assert_eq!(in_hierarchy(&mounts, "docker/x/"), "/docker/x");
        assert_eq!(in_hierarchy(&mounts, "/sys/fs/cgroup/memory"), "/");
    }
}
