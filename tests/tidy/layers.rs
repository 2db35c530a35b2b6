//! Who may name what: paths are collected from parsed source, resolved through the file's own imports, and compared
//! with what a layer must not know.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Attribute, File, ItemMod, ItemUse, Macro, UseTree};

use crate::source::{Finding, SourceFile};

/// One layer's ignorance.
pub struct Layer {
    /// The rule's name.
    pub rule: &'static str,
    /// The folder that it binds.
    within: &'static str,
    /// Path prefixes that are free of it.
    except: &'static [&'static str],
    /// Whether test code is free of it.
    tests_are_free: bool,
    /// What must not be named, with everything below it.
    banned: &'static [&'static str],
    /// Why.
    reason: &'static str,
}

/// All layers, from the bottom up.
pub const LAYERS: [Layer; 6] = [
    Layer {
        rule: "engine-knows-no-actor",
        within: "engine/",
        except: &[],
        tests_are_free: false,
        banned: &[
            "actix",
            "actix_rt",
            "actix_web",
            "tokio",
            "futures",
            "futures_util",
            "std::future",
            "std::task",
        ],
        reason: "the engine is plain synchronous code over values",
    },
    Layer {
        rule: "engine-knows-no-clock",
        within: "engine/src/",
        except: &[],
        tests_are_free: false,
        banned: &[
            "std::net",
            "std::os::unix::net",
            "std::time::Instant",
            "std::time::SystemTime",
        ],
        reason: "time and sockets are passed in, so that a cluster can be simulated from one seed",
    },
    Layer {
        rule: "engine-files-in-vfs",
        within: "engine/src/",
        except: &["engine/src/storage/vfs"],
        tests_are_free: true,
        banned: &["std::fs", "rustix::fs"],
        reason: "all files go through the vfs, so that crashes can be simulated",
    },
    Layer {
        rule: "actix-in-driver",
        within: "actors/",
        except: &["actors/src/runtime/driver.rs", "actors/benches/runtime.rs"],
        tests_are_free: false,
        banned: &["actix", "actix_rt"],
        reason: "one file knows which actor library drives the processes",
    },
    Layer {
        rule: "actors-open-no-file",
        within: "actors/src/",
        except: &[],
        tests_are_free: true,
        banned: &["std::fs", "tokio::fs"],
        reason: "files are opened by the engine through the vfs",
    },
    Layer {
        rule: "root-opens-no-file",
        within: "src/",
        except: &["src/config", "src/cli"],
        tests_are_free: true,
        banned: &["std::fs", "tokio::fs"],
        reason: "below the engine's storage nothing but our own ini files is opened",
    },
];

/// Adds a finding for every path that the file's layer must not name.
pub fn check(file: &SourceFile, parsed: &File, findings: &mut Vec<Finding>) {
    let layers: Vec<&Layer> = LAYERS
        .iter()
        .filter(|layer| file.path.starts_with(layer.within))
        .filter(|layer| !layer.except.iter().any(|path| file.path.starts_with(path)))
        .collect();
    if layers.is_empty() {
        return;
    }
    for named in names(file, parsed) {
        for layer in &layers {
            if layer.tests_are_free && named.in_test {
                continue;
            }
            if let Some(banned) = layer.banned.iter().find(|banned| named.reaches(banned)) {
                findings.push(file.finding(
                    layer.rule,
                    format!(
                        "names {} ({banned} is not known here: {})",
                        named.path, layer.reason
                    ),
                ));
            }
        }
    }
}

/// A path as the file names it, after its imports have been followed.
pub struct Named {
    /// Segments joined by `::`.
    pub path: String,
    /// Whether everything below the path was imported.
    glob: bool,
    /// Whether test code names it.
    pub in_test: bool,
}

impl Named {
    /// Whether the path is `banned`, lies below it, or imports it among all its neighbours.
    pub fn reaches(&self, banned: &str) -> bool {
        let below = |whole: &str, part: &str| {
            whole
                .strip_prefix(part)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        below(&self.path, banned) || self.glob && below(banned, &self.path)
    }
}

/// Every path that a file names, in imports, expressions, types and macro arguments.
pub fn names(file: &SourceFile, parsed: &File) -> Vec<Named> {
    let mut imports = Imports::default();
    imports.visit_file(parsed);
    let test_depth = usize::from(file.is_test());
    let mut names = Names {
        imports: imports.by_name,
        test_depth,
        found: Vec::new(),
    };
    names.visit_file(parsed);
    names.found
}

/// Whether an item is compiled for tests only.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Last name -> full path of everything imported anywhere in the file.
#[derive(Default)]
struct Imports {
    by_name: BTreeMap<String, String>,
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        flatten(&item.tree, "", &mut |path, name| {
            if let Some(name) = name {
                self.by_name.insert(name, path);
            }
        });
    }
}

/// Calls `found` with each full path of a use tree, and the name it gets (none for a glob).
fn flatten(tree: &UseTree, above: &str, found: &mut dyn FnMut(String, Option<String>)) {
    let join = |name: &str| match (above, name) {
        ("", name) => name.to_owned(),
        (above, "self") => above.to_owned(),
        (above, name) => format!("{above}::{name}"),
    };
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &join(&path.ident.to_string()), found),
        UseTree::Name(name) => {
            let path = join(&name.ident.to_string());
            let last = path.rsplit("::").next().map(str::to_owned);
            found(path, last);
        }
        UseTree::Rename(rename) => found(join(&rename.ident.to_string()), Some(rename.rename.to_string())),
        UseTree::Glob(_) => found(above.to_owned(), None),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, above, found)),
    }
}

struct Names {
    imports: BTreeMap<String, String>,
    test_depth: usize,
    found: Vec<Named>,
}

impl Names {
    fn add(&mut self, path: String, glob: bool) {
        self.found.push(Named {
            path,
            glob,
            in_test: self.test_depth > 0,
        });
    }

    /// Adds a path as written, with its first segment replaced by what it was imported as.
    fn resolve(&mut self, written: &str) {
        let (first, rest) = written.split_once("::").unwrap_or((written, ""));
        let whole = match (self.imports.get(first), rest) {
            (Some(imported), "") => imported.clone(),
            (Some(imported), rest) => format!("{imported}::{rest}"),
            (None, _) => written.to_owned(),
        };
        self.add(whole, false);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut found = Vec::new();
        flatten(&item.tree, "", &mut |path, name| {
            found.push((path, name.is_none()))
        });
        found.into_iter().for_each(|(path, glob)| self.add(path, glob));
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = usize::from(is_test_only(&item.attrs));
        self.test_depth += is_test;
        visit::visit_item_mod(self, item);
        self.test_depth -= is_test;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.resolve(&segments.join("::"));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        // Arguments of a macro are tokens, not paths; take them as words.
        let tokens = invocation
            .tokens
            .to_string()
            .replace(" :: ", "::")
            .replace(":: ", "::")
            .replace(" ::", "::");
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in tokens.split(|c| !is_word(c)).map(|word| word.trim_matches(':')) {
            if word.contains("::") {
                self.resolve(word);
            }
        }
        visit::visit_macro(self, invocation);
    }
}
