//! Process groups: any number of processes under one name.

use std::sync::Arc;

use ahash::AHashMap;
use parking_lot::RwLock;

use super::pid::Pid;

/// Groups with their members in the order of joining, and the groups of each member.
#[derive(Default)]
pub(crate) struct Groups {
    tables: RwLock<Tables>,
}

#[derive(Default)]
struct Tables {
    members: AHashMap<Arc<str>, Vec<Pid>>,
    groups_of: AHashMap<Pid, Vec<Arc<str>>>,
}

impl Groups {
    /// Joins once; joining again changes nothing.
    pub(crate) fn join(&self, group: Arc<str>, pid: Pid) {
        let mut tables = self.tables.write();
        let members = tables.members.entry(Arc::clone(&group)).or_default();
        if !members.contains(&pid) {
            members.push(pid);
            tables.groups_of.entry(pid).or_default().push(group);
        }
    }

    pub(crate) fn leave(&self, group: &str, pid: Pid) -> bool {
        let mut tables = self.tables.write();
        let left = tables.take_out(group, pid);
        if let Some(groups) = tables.groups_of.get_mut(&pid) {
            groups.retain(|name| &**name != group);
            if groups.is_empty() {
                tables.groups_of.remove(&pid);
            }
        }
        left
    }

    /// Takes a dead process out of every group.
    pub(crate) fn forget(&self, pid: Pid) {
        if !self.tables.read().groups_of.contains_key(&pid) {
            return;
        }
        let mut tables = self.tables.write();
        for group in tables.groups_of.remove(&pid).unwrap_or_default() {
            tables.take_out(&group, pid);
        }
    }

    pub(crate) fn members(&self, group: &str) -> Vec<Pid> {
        self.tables.read().members.get(group).cloned().unwrap_or_default()
    }

    /// The names of all groups with members, sorted.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.tables.read().members.keys().cloned().collect();
        names.sort();
        names
    }
}

impl Tables {
    fn take_out(&mut self, group: &str, pid: Pid) -> bool {
        let Some(members) = self.members.get_mut(group) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| *member != pid);
        let left = members.len() < before;
        if members.is_empty() {
            self.members.remove(group);
        }
        left
    }
}
