//! The resource sampler: cgroups of either version, process trees and the host, read by one thread.
//!
//! Files stay open and are read by `pread` into one buffer, numbers are parsed from its bytes. What a source has and has not is
//! found once, per controller, and told in its facts.
//!
//! Where a group is (`layout`, `mounts`, `limits`), which file has what (`files`, `bytes`), files that stay open (`kept`,
//! `group_files`), ends and restarts (`cgroup`, `source`, `watched`), limits that were met (`held`), what is asked without
//! sampling (`groups`), sums over processes that come and go (`process`, `member`, `account`), one thread on an absolute
//! schedule (`sampler`, `ticks`).

mod account;
mod bytes;
mod cgroup;
pub mod columns;
mod files;
mod group_files;
pub mod groups;
mod held;
mod host;
mod kept;
mod layout;
mod limits;
mod member;
mod mounts;
mod parent;
pub mod plan;
mod proc_files;
mod process;
mod proportional;
mod sampler;
mod source;
mod sys;
#[cfg(test)]
#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;
mod ticks;
mod watched;

pub use plan::Plan;
pub use sampler::Sampler;
